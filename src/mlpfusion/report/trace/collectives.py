"""A table of the collectives of a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion import units
from mlpfusion.report.grid import middle_out, tabulated
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.breakdown import Collective

_LISTED: Final = 12


def collective_table(collectives: Sequence[Collective], *, github: bool) -> tuple[str, str]:
    """Its title and the table: those with the most time first, and how many more there are."""
    cells = [
        [
            str(one.count),
            one.operation,
            one.dtype or ABSENT,
            _group(one),
            units.plain(one.us),
            units.plain(one.exposed_us),
            ABSENT if one.bytes is None else f"{one.bytes / 1e6:.3g}",
            ABSENT if one.bus_gb_s is None else f"{one.bus_gb_s:.3g}",
        ]
        for one in collectives[:_LISTED]
    ]
    left = len(collectives) - len(cells)
    if left:
        cells.append(["", f"and {left} more; --json has them all", *[""] * 6])
    heads = ["number", "collective", "type", "group", "µs", "exposed µs", "MB", "bus GB/s"]
    return "Communication in a call", tabulated(cells, heads, [True, False, False, False, *[True] * 4], github=github)


def _group(one: Collective) -> str:
    ranks = f"{one.group_size} ranks" if one.group_size else ""
    return " of ".join(text for text in (middle_out(one.group) if one.group else "", ranks) if text) or ABSENT
