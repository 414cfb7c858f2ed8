"""Reports which calls ran something else than most calls."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from mlpfusion.records.trace import OddCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.trace.calls.call import Calls

_SHOWN: Final = 20


def odd_calls(calls: Calls, used: Sequence[int]) -> tuple[OddCall, ...]:
    """The first calls that are not among those `used`, each with the kernel that it ran most above the usual number."""
    usual = _names(calls, used[0]) if used else Counter()
    rest = sorted(set(range(len(calls.windows))) - set(used))
    found = []
    for index in rest[:_SHOWN]:
        names = _names(calls, index)
        if not names:
            continue
        most = max(names, key=lambda name: (names[name] - usual[name], name))
        found.append(
            OddCall(
                index=index,
                work=names.total(),
                usual_work=usual.total(),
                most=most,
                times=names[most],
                usual_times=usual[most],
            )
        )
    return tuple(found)


def _names(calls: Calls, index: int) -> Counter[str]:
    trace = calls.trace
    counts: Counter[str] = Counter()
    for kind, times in Counter(trace.kind[calls.work.of(index)].tolist()).items():
        counts[trace.kinds[kind].name] += times
    return counts
