"""Keeps what is written of the inputs of operators, dimensions and types, each text once and by row."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Text(NamedTuple):
    """The dimensions and the types of an operator's inputs, as they are written; empty where they are not."""

    dims: bytes
    types: bytes


class Inputs(NamedTuple):
    """The texts, and which rows have them: `rows` in order, `texts[which[i]]` is that of `rows[i]`."""

    rows: NDArray[np.int32]
    which: NDArray[np.int32]
    texts: tuple[Text, ...]

    def of(self, rows: NDArray[np.int64]) -> list[Text | None]:
        """The text of each of these rows, or None."""
        import numpy as np

        if not len(self.rows):
            return [None] * len(rows)
        at = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        found = np.where(self.rows[at] == rows, self.which[at], -1)
        return [None if number < 0 else self.texts[number] for number in found.tolist()]

    def kept(self, wanted: NDArray[np.bool_]) -> Inputs:
        """Those of the wanted rows of a trace, by their places among these."""
        import numpy as np

        places = np.cumsum(wanted, dtype=np.int32) - 1
        here = wanted[self.rows]
        return Inputs(places[self.rows[here]].astype(np.int32), self.which[here], self.texts)


class Gathered:
    """The texts so far, by the number of their entry."""

    def __init__(self) -> None:
        self._rows, self._which = array("i"), array("i")
        self._texts: dict[Text, int] = {}

    def add(self, row: int, text: Text) -> None:
        """Keep the text of one entry."""
        self._rows.append(row)
        self._which.append(self._texts.setdefault(text, len(self._texts)))

    def sorted(self, order: NDArray[np.int32]) -> Inputs:
        """The texts by the rows' places in this order."""
        import numpy as np

        rows = np.frombuffer(self._rows, dtype=np.int32)
        which = np.frombuffer(self._which, dtype=np.int32)
        if not len(rows):
            return Inputs(rows, which, ())
        places = np.empty(len(order), dtype=np.int32)
        places[order] = np.arange(len(order), dtype=np.int32)
        places = places[rows]
        by_place = np.argsort(places)
        return Inputs(places[by_place], which[by_place], tuple(self._texts))
