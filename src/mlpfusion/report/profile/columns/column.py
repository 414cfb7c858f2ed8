"""Defines a column of a profile's tables: name, meaning, and a row's value as text and in full precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from mlpfusion import units
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.records.profile import Row

Value = str | int | float | bool | None
Group = Literal["speed", "host", "memory"]


class Column(NamedTuple):
    """One column: its name for `--columns`, its heading, its table, a row's text and data, and what it means.

    `of` are the fields of the row's clocks, traffic and memory that it shows, which may be absent for a reason.
    `disturbed`: background load of the host changes it.
    """

    key: str
    head: str
    group: Group
    text: Callable[[Row], str]
    data: Callable[[Row], dict[str, Value]]
    meaning: str
    right: bool = True
    of: tuple[str, ...] = ()
    disturbed: bool = False


def number(
    key: str,
    head: str,
    group: Group,
    value: Callable[[Row], float | None],
    meaning: str,
    *,
    scale: float = 1.0,
    of: tuple[str, ...] = (),
) -> Column:
    """A column of plain numbers; `scale` is the size of the text's unit in the record's unit."""

    def text(row: Row) -> str:
        number = value(row)
        return ABSENT if number is None else units.plain(number / scale)

    return Column(key, head, group, text, lambda row: {key: value(row)}, meaning, of=of)
