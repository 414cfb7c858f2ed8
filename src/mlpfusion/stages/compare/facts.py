"""The exact facts of a profile's row, and which of two rows' differ."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final

from mlpfusion import units
from mlpfusion.records.comparison import FactChange
from mlpfusion.stages.compare.subjects import Fact
from mlpfusion.trace.names.same import compared
from mlpfusion.trace.names.shown import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from mlpfusion.records.profile import Row
    from mlpfusion.stages.compare.subjects import Subject

KERNELS: Final = "kernels by name"
LAUNCHED: Final = "kernels as launched"  # told where the names are the same
RACED: Final = "kernels of the races"  # those that were timed; told where those that were qualified are the same
OTHER_WORK: Final = (KERNELS, LAUNCHED, RACED)
_STATUS: Final = {"ok": 0, "unavailable": 1, "failed": 2}
_LONGEST: Final = 160  # letters of a text that a message quotes
_SHOWN: Final = 100  # letters of the kernels that one side has and the other has not
_BEFORE: Final = 30  # letters before the first that differs


def of_row(row: Row) -> tuple[Fact, ...]:
    """What a row says that needs no statistics; what it does not know is left out."""
    return tuple(_of_row(row))


def _of_row(row: Row) -> Iterator[Fact]:
    reason = "" if row.status == "ok" or not row.reason else f": {row.reason}"
    yield Fact("status", clipped(f"{row.status}{reason}"), _STATUS[row.status], row.status)
    if row.kernels:
        yield names([(kernel.name, 1) for kernel in row.kernels])
        if any(kernel.launch is not None for kernel in row.kernels):
            launched = [
                (f"{shown(compared(kernel.name))}: {kernel.launch or 'not known'}", 1) for kernel in row.kernels
            ]
            yield names(launched, LAUNCHED)
    if row.launches is not None:
        found = row.launches
        yield count("kernel launches", found.kernels)
        yield count("memcpys", found.memcpys)
        yield count("memsets", found.memsets)
        yield count("launch calls of the host", sum(found.runtime_launches.values()))
        yield count("synchronisations", found.syncs)
    if row.traffic is not None:
        if row.traffic.round_trips is not None:
            yield count("round-trips", row.traffic.round_trips)
        if row.traffic.derived_bytes is not None:
            yield size("HBM bytes", row.traffic.derived_bytes)
    if row.memory is not None:
        if row.memory.peak_bytes is not None:
            yield size("peak memory", row.memory.peak_bytes)
        if row.memory.saved_for_backward_bytes is not None:
            yield size("saved for backward", row.memory.saved_for_backward_bytes)
    if row.accuracy is not None:
        beyond = row.accuracy.is_broken or row.accuracy.ratio > row.accuracy.limit
        text = row.accuracy.times("eager")
        # Within the limit an error is as good as another; beyond it, the larger the worse.
        rank = math.inf if row.accuracy.is_broken else row.accuracy.ratio if beyond else 0.0
        yield Fact("error", f"{text}, beyond {row.accuracy.limit:g}" if beyond else text, rank, text)


def count(name: str, number: int) -> Fact:
    """A number of which more is worse."""
    return Fact(name, str(number), number, number)


def size(name: str, number: int) -> Fact:
    """Bytes of which more is worse."""
    return Fact(name, units.megabytes(number), number, number)


def names(kernels: Sequence[tuple[str, int]], what: str = KERNELS) -> Fact:
    """Kernels in their order, each with how often it ran: a file may claim any number."""
    return Fact(
        what,
        f"{sum(number for _, number in kernels)} kernels",
        None,
        tuple((compared(name), number) for name, number in kernels),
    )


def clipped(text: str, most: int = _LONGEST) -> str:
    """A text on one line of bounded length."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def changes(baseline: Subject, candidate: Subject) -> tuple[FactChange, ...]:
    """The facts that both know and that differ; of rows that ran different numbers of tokens, only the status."""
    before = {fact.name: fact for fact in baseline.facts}
    alike = baseline.tokens == candidate.tokens
    differ = [
        (before[fact.name], fact)
        for fact in candidate.facts
        if fact.name in before and before[fact.name].value != fact.value and (alike or fact.name == "status")
    ]
    renamed = any(fact.name == KERNELS for _, fact in differ)
    return tuple(_change(a, b) for a, b in differ if not (renamed and b.name in (LAUNCHED, RACED)))


def _change(a: Fact, b: Fact) -> FactChange:
    worse = a.rank is not None and b.rank is not None and b.rank > a.rank
    first, second = a.text, b.text
    if a.name in OTHER_WORK and isinstance(a.value, tuple) and isinstance(b.value, tuple):
        before, after = _counted(a.value), _counted(b.value)
        gone, new = before - after, after - before
        spelled = str if a.name == LAUNCHED else shown
        told = _apart(_listed(gone, spelled), _listed(new, spelled))
        first, second = told if gone or new else (a.text, "the same in another order")
    elif first == second:  # bytes that differ below what is shown
        first, second = str(a.value), str(b.value)
    return FactChange(name=a.name, baseline=first, candidate=second, worse=worse)


def _counted(kernels: Iterable[tuple[str, int]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, number in kernels:
        found[name] += number
    return found


def _listed(found: Counter[str], spelled: Callable[[str], str]) -> str:
    parts = [" ".join(spelled(name).split()) + (f" ×{number}" if number > 1 else "") for name, number in found.items()]
    return "; ".join(parts) or "none"


def _apart(first: str, second: str) -> tuple[str, str]:
    """Both clipped so that they still differ: of long names that start alike from shortly before they do not."""
    differ = (place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    alike = next(differ, min(len(first), len(second)))
    if max(len(first), len(second)) > _SHOWN and alike > _BEFORE:
        first, second = f"…{first[alike - _BEFORE :]}", f"…{second[alike - _BEFORE :]}"
    return clipped(first, _SHOWN), clipped(second, _SHOWN)
