"""Attributes time of the host in no operator to Python's frames and modules, and kernels to the modules that launch."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.records.trace import PythonUse, Share
from mlpfusion.trace.analysis.pre_ops import median_call, unowned, without
from mlpfusion.trace.analysis.spans import Spans, own_ns
from mlpfusion.trace.names import frames as names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.trace.analysis.pre_ops import Stretch
    from mlpfusion.trace.calls.call import Calls, Rows
    from mlpfusion.trace.read.kineto import Trace


_DEEPEST: Final = 12  # modules around a launch


class Line(NamedTuple):
    """The frames of one thread, by start and the longest first."""

    start: Rows
    end: Rows
    kind: NDArray[np.int32]


def line(trace: Trace, place: int, begin: int, end: int) -> Line:
    """The frames of a thread that run somewhere in [begin, end), in ns."""
    import numpy as np

    frames = trace.frames
    here = np.flatnonzero((frames.place == place) & (frames.start < end) & (frames.start + frames.duration > begin))
    here = here[np.lexsort((-frames.duration[here], frames.start[here]))]
    return Line(frames.start[here], frames.start[here] + frames.duration[here], frames.kind[here])


def by_name(trace: Trace, place: int, spans: Spans) -> tuple[Counter[str], int]:
    """How much of `spans`, in ns, a thread was in each frame, innermost, by the name that is shown; and in none."""
    import numpy as np

    if not len(spans.start) or not len(trace.frames.start):
        return Counter(), spans.total
    found = line(trace, place, int(spans.start[0]), int(spans.end[-1]))
    own = own_ns(spans, found.start, found.end)
    total = np.bincount(found.kind, weights=own, minlength=len(trace.kinds))
    times: Counter[str] = Counter()
    for kind in np.flatnonzero(total).tolist():
        times[names.shown(trace.kinds[kind].name)] += int(total[kind])
    return times, spans.total - int(own.sum())


def shares(times: Mapping[str, int], most: int) -> tuple[Share, ...]:
    """Times in ns as shares, most first; the modules of one class are one, `nn.Module: LlamaMLP_*`."""
    alike: dict[str, list[str]] = defaultdict(list)
    for name in times:
        alike[names.module_class(name) if names.module(name) is not None else name].append(name)
    found = [
        (-sum(times[name] for name in group), group[0] if len(group) == 1 else f"{key}_*")
        for key, group in alike.items()
    ]
    return tuple(Share(name=name, us=-ns / 1000) for ns, name in sorted(found)[:most])


def python_use(calls: Calls, used: Sequence[int], *, split_launches: bool, most: int = 5) -> PythonUse | None:
    """The frames of what pre-ops, if known, leave unattributed in their call; None in a trace without frames."""
    if not len(calls.trace.frames.start):
        return None
    index = median_call(calls, used)
    if index is None or without(calls.trace) is not None:
        return PythonUse()
    first, between = unowned(calls.call(index))
    pid = calls.windows[index].pid
    return PythonUse(
        before_first=_split(calls.trace, pid, first, most),
        between_launches=_split(calls.trace, pid, between, most) if split_launches else (),
    )


def _split(trace: Trace, pid: int | str, stretches: Iterable[Stretch], most: int) -> tuple[Share, ...]:
    import numpy as np

    by_thread: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for thread, *times in stretches:
        by_thread[thread].append((times[0], times[1]))
    total: Counter[str] = Counter()
    for number, place in enumerate(trace.places):
        if place.pid == pid and place.tid in by_thread:
            start, end = np.array(sorted(by_thread[place.tid]), dtype=np.int64).T
            total.update(by_name(trace, number, Spans(start, end))[0])
    return shares(total, most)


def modules(calls: Calls, index: int) -> tuple[tuple[str, ...], ...]:
    """For each piece of a call's work the modules around its launch, outermost first; nothing without such frames."""
    import numpy as np

    trace = calls.trace
    is_module = np.array([names.module(kind.name) is not None for kind in trace.kinds], dtype=np.bool_)
    if not is_module[trace.frames.kind].any():
        return ()
    begin, end = calls.work.bounds[index : index + 2].tolist()
    by = calls.launched_by[begin:end]
    found: list[tuple[str, ...]] = [()] * len(by)
    for place in np.unique(trace.place[by]).tolist():
        here = np.flatnonzero(trace.place[by] == place)
        at = trace.start[by[here]]
        around = line(trace, place, int(at.min()), int(at.max()) + 1)
        wanted = is_module[around.kind]
        chains = _chains(Line(around.start[wanted], around.end[wanted], around.kind[wanted]), at)
        for position, chain in zip(here.tolist(), chains, strict=True):
            found[position] = tuple(names.module(trace.kinds[kind].name) or "" for kind in chain)
    return tuple(found)


def _chains(around: Line, instants: Rows) -> list[tuple[int, ...]]:
    """For each instant the kinds of the innermost frames that run then, outermost first."""
    import numpy as np

    found: list[tuple[int, ...]] = [()] * len(instants)
    starts, ends, kinds = (column.tolist() for column in around)
    running: list[int] = []
    position = 0
    for number in np.argsort(instants, kind="stable").tolist():
        instant = int(instants[number])
        while position < len(starts) and starts[position] <= instant:
            while running and ends[running[-1]] <= starts[position]:
                running.pop()
            running.append(position)
            position += 1
        while running and ends[running[-1]] <= instant:
            running.pop()
        found[number] = tuple(kinds[one] for one in running[-_DEEPEST:] if ends[one] > instant)
    return found
