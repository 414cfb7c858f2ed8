"""The record of a figure: its specification, its caption, and the table of the numbers that it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from mlpfusion.records.base import Record
from mlpfusion.records.profile import BASELINE

if TYPE_CHECKING:
    from mlpfusion.report.figures.shape import Shape
    from mlpfusion.report.profile.columns.clocks import ClockName

Value = Literal["time", "tflops"]
Width = Literal[84, 178]
Cell = str | int | float | None

VALUES: Final = ("time", "tflops")
WIDTHS: Final = (84, 178)  # mm: one column of a paper, and both


class Key(NamedTuple):
    """What a row of a figure is of, by the name in the field `row` of its data; `text` is what its shape is called."""

    row: str
    backend: str
    text: str
    shape: Shape


class Figure(Record, frozen=True, kw_only=True):
    """One figure. `title` are the first words of its `caption`; the figure itself has no title.

    `spec` is Vega-Lite of version 6 (and 5) with its data inline, as wide as asked for at 96 pixels an inch. Names
    from files are in its data and never in an expression. `columns` and `rows` are the numbers that it shows, in full
    precision, and `notes` what it leaves out and why.

    `keys` say which backend and shape each row is of, with those of the baseline that has no mark; data without rows
    have the fields `tokens` and `mode`. `names` are the backends by what they are called in the field `backend`.
    """

    name: str
    title: str
    caption: str
    spec: dict[str, Any]
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    keys: tuple[Key, ...] = ()
    names: dict[str, str] = msgspec.field(default_factory=dict)


class Options(NamedTuple):
    """What may be chosen of a figure; each figure takes some of these. `clock` None is the first that has numbers."""

    width: Width = 178
    clock: ClockName | None = None
    baseline: str = BASELINE
    value: Value = "time"
