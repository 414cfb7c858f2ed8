"""Labels the rows of a figure that has one row per backend and shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mlpfusion.report.figures.drawing.names import distinct
from mlpfusion.report.figures.figure import Key
from mlpfusion.report.figures.reading import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.profile import Row
    from mlpfusion.report.figures.shape import Shape


class Labelled(NamedTuple):
    """What rows are called: `labels` no two alike, `texts` their shapes, `groups` which shape, `names` the backends."""

    labels: tuple[str, ...]
    texts: tuple[str, ...]
    groups: tuple[int, ...]
    shapes: tuple[Shape, ...]
    names: dict[str, str]
    keys: tuple[Key, ...]

    @property
    def backends(self) -> dict[str, str]:
        """The backends by what they are called."""
        return {shown: name for name, shown in self.names.items()}

    def only(self, places: Sequence[int]) -> Labelled:
        """Those of the rows at these places, called as they are among all."""
        shapes = {id(self.keys[place].shape): self.keys[place].shape for place in places}
        return self._replace(
            labels=tuple(self.labels[place] for place in places),
            texts=tuple(self.texts[place] for place in places),
            groups=tuple(self.groups[place] for place in places),
            shapes=tuple(shapes.values()),
            keys=tuple(self.keys[place] for place in places),
        )


def label(pairs: Sequence[tuple[Shape, Row]], width: int) -> Labelled:
    """The labels of these rows: the backend, and of several shapes what tells its own from the others."""
    drawn = list({id(shape): shape for shape, _ in pairs}.values())
    places = {id(shape): place for place, shape in enumerate(drawn)}
    told = words.labels(drawn, width)
    names = distinct((row.backend for _, row in pairs), width)
    texts = tuple(told[places[id(shape)]] for shape, _ in pairs)
    labels = tuple(
        " · ".join(part for part in (names[row.backend] + _mark(row), text) if part)
        for (_, row), text in zip(pairs, texts, strict=True)
    )
    keys = tuple(
        Key(one, row.backend, text, shape) for one, text, (shape, row) in zip(labels, texts, pairs, strict=True)
    )
    return Labelled(labels, texts, tuple(places[id(shape)] for shape, _ in pairs), tuple(drawn), names, keys)


def _mark(row: Row) -> str:
    return " (emulated)" if row.emulated else ""
