"""A card's measured matrix products: the times of many shapes, in one dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from mlpfusion.records.prediction import MeasuredProduct


@dataclass(frozen=True)
class Table:
    """Products x [m, k] · wᵀ [k, n] that were timed on one card: `shapes` int64 [rows, 3] as (m, n, k), `us` [rows].

    Every shape is there once. `source` names where they come from; `spread` is how far other
    collections of the same shapes lie from these, as the 80th percentile of |log ratio|.
    """

    card: str
    source: str
    shapes: NDArray[np.int64]
    us: NDArray[np.float64]
    spread: float

    def __len__(self) -> int:
        return len(self.us)


# Where one collection is all there is: what two of them differ by on the cards that have several.
ONE_COLLECTION: Final = 0.08
_WHOLE: Final = 0.9  # of the shapes of the largest collection

Collection = tuple["NDArray[np.int64]", "NDArray[np.float64]"]  # shapes [rows, 3], µs [rows]


def merged(card: str, source: str, collections: Sequence[Collection]) -> Table:
    """One table of several collections of a card: of those that are whole, the median in logarithms.

    A collection of a part of the shapes would bend the times between its shapes and the others'; it only tells how far
    collections lie apart.
    """
    most = max(len(us) for _, us in collections)
    whole = [each for each in collections if len(each[1]) >= _WHOLE * most]
    shapes, logs, starts, counts = _grouped(whole)
    # Sorted within a shape, so the median is the middle one, or the mean of the middle two.
    middle = (logs[starts + (counts - 1) // 2] + logs[starts + counts // 2]) / 2
    apart = []
    for rows, us in collections:
        if len(whole) == 1 and rows is whole[0][0]:
            continue  # it is the table
        _, values, firsts, many = _grouped([(shapes[starts], np.exp(middle)), (rows, us)])
        twice = many > 1
        apart.append(np.abs(values[firsts + many - 1] - values[firsts])[twice])
    found = np.concatenate(apart) if apart else np.array([])
    spread = float(np.quantile(found, 0.8)) if len(found) else ONE_COLLECTION
    return Table(card=card, source=source, shapes=shapes[starts], us=np.exp(middle), spread=spread)


def _grouped(
    collections: Sequence[Collection],
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """All shapes in order, the logarithms of their µs, where each shape starts, and how often it is there."""
    shapes = np.concatenate([rows for rows, _ in collections])
    logs = np.log(np.concatenate([us for _, us in collections]))
    order = np.lexsort((logs, shapes[:, 2], shapes[:, 1], shapes[:, 0]))
    shapes, logs = shapes[order], logs[order]
    starts = np.flatnonzero(np.r_[True, (shapes[1:] != shapes[:-1]).any(axis=1)])
    return shapes, logs, starts, np.diff(np.r_[starts, len(logs)])


def own_rows(card: str, source: str, products: Sequence[MeasuredProduct]) -> Table:
    """The products that a user or a profile measured on a card, as a table."""
    shapes = np.array([(each.m, each.n, each.k) for each in products], dtype=np.int64).reshape(-1, 3)
    return merged(card, source, [(shapes, np.array([each.us for each in products], dtype=np.float64))])
