"""Names of files' backends and models as figures show them: on one line, short, and no two alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.report.grid import middle_out
from mlpfusion.storage.letters import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST: Final = {84: 24, 178: 40}  # letters of a name, by the figure's width in mm


def shown(name: str, width: int) -> str:
    """`name` without what steers a terminal or turns the direction of writing, the middle of a long one gone."""
    return printable(middle_out(name, LONGEST[width])) or "(no name)"


def distinct(names: Iterable[str], width: int) -> dict[str, str]:
    """Each name as it is shown; those that look alike are numbered."""
    found: dict[str, str] = {}
    for name in names:
        if name in found:
            continue
        text = base = shown(name, width)
        number = 1
        while text in found.values():
            number += 1
            text = f"{base} ({number})"
        found[name] = text
    return found
