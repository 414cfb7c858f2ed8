"""Writes counts and tallies of events in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.trace import Share, Tally

# A name longer than this is cut, and more names than this are counted.
NAME: Final = 60
_NAMES: Final = 4
_PARTS: Final = 8


def counted(count: int, noun: str) -> str:
    """`1 copy`, `2 copies`."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        return f"{count} {noun[:-1]}ies"
    return f"{count} {noun}{'es' if noun.endswith('ch') else 's'}"


def numbers(names: Sequence[int | str]) -> str:
    """`0–3, 5, 8–9`; what is no number is quoted, at most eight parts."""
    parts: list[str] = []
    run: list[int] = []
    known = {name for name in names if isinstance(name, int)}
    for number in sorted(known):
        run.append(number)
        if number + 1 not in known:
            parts.append(f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]))
            run = []
    parts += [repr(name) for name in names if isinstance(name, str)]
    left = len(parts) - _PARTS
    return ", ".join(parts[:_PARTS]) + (f" and {left} more" if left > 0 else "")


def tallied(tallies: Sequence[Tally]) -> str:
    """`2x cudaMalloc, 900 µs`, at most four names."""
    return _listed([f"{tally.count}x {tally.name[:NAME]}, {tally.total_us:.0f} µs" for tally in tallies])


def shared(shares: Sequence[Share]) -> str:
    """`aten::mm 12 µs`, at most four names."""
    return _listed([f"{share.name[:NAME]} {share.us:.0f} µs" for share in shares])


def _listed(texts: Sequence[str]) -> str:
    left = len(texts) - _NAMES
    return ", ".join(texts[:_NAMES]) + (f" and {left} more" if left > 0 else "")
