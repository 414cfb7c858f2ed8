"""Analyses one trace: the device work of a call, its launches, and their cost to the host."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from mlpfusion.records.profile import Analysis, Kernel, Launches
from mlpfusion.records.traffic import DeviceWork
from mlpfusion.stats import fifths
from mlpfusion.trace.analysis.pre_ops import pre_ops
from mlpfusion.trace.analysis.roles import roles
from mlpfusion.trace.calls.busy import busy_ns, union_ns
from mlpfusion.trace.calls.call import is_sync
from mlpfusion.trace.calls.damage import repaired
from mlpfusion.trace.calls.link import annotated, find_calls, flags, rows_of
from mlpfusion.trace.calls.select import CALL
from mlpfusion.trace.names.decode import decode
from mlpfusion.trace.words import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.device import DeviceKind
    from mlpfusion.trace.calls.call import Calls, Part, Work
    from mlpfusion.trace.read.columns import Kind
    from mlpfusion.trace.read.kineto import Trace
    from mlpfusion.trace.read.launch_configs import LaunchConfigs

__all__ = ["CALL", "Analysed", "analyse", "analyse_calls", "analyse_work", "union_ns"]

# Events of a compilation; inside a call they mean that it was compiled while it was measured.
COMPILING: Final = frozenset({"entire_frame_compile", "_compile.compile_inner", "compile_attempt_0"})

_T = TypeVar("_T", bound="Hashable")


class Analysed(NamedTuple):
    """An analysis with what it is of: the calls used, and for each kernel, in its order, the times in those, in µs.

    `order` is for each kernel its place in the order of the launches; `work` is that of the first call used, in that
    order.
    """

    analysis: Analysis
    used: tuple[int, ...]
    times: tuple[list[float], ...]
    order: tuple[int, ...]
    work: tuple[Work, ...]

    @property
    def launched(self) -> list[Kernel]:
        """The kernels in the order of `work`."""
        placed = dict(zip(self.order, self.analysis.kernels, strict=True))
        return [placed[place] for place in range(len(placed))]


def analyse(trace: Trace, *, call: str = CALL, device: DeviceKind) -> Analysis:
    """The analysis of one call: its kernels with medians over the calls, its launches, its host time.

    `kernel_us` is per call the union over all streams of the intervals of its kernels, copies and fills; on the CPU, of
    its leaf operators. Calls that did not run the kernels that most did are left out, which is a fault, as are lost
    events and compilation inside a call.

    Raises:
        MeasurementError: no annotation is named `call`, or a GPU trace has no GPU event.
    """
    return analyse_calls(find_calls(repaired(trace), annotated(trace, call), device), device).analysis


def analyse_work(
    trace: Trace, *, call: str = CALL, device: DeviceKind, configs: LaunchConfigs | None = None
) -> tuple[Analysis, tuple[DeviceWork, ...]]:
    """The analysis of a trace, and the device work of one of its calls in launch order.

    With `configs` of that trace kernels have those of the first call that is used.
    """
    calls = find_calls(repaired(trace), annotated(trace, call), device)
    analysed = analyse_calls(calls, device)
    if not configs:
        return analysed.analysis, _device_work(analysed)
    kernels = tuple(
        msgspec.structs.replace(kernel, launch=configs.get((work.event.start_ns, work.event.name)))
        for kernel, work in zip(analysed.analysis.kernels, (analysed.work[at] for at in analysed.order), strict=True)
    )
    return msgspec.structs.replace(analysed.analysis, kernels=kernels), _device_work(analysed)


def analyse_calls(calls: Calls, device: DeviceKind) -> Analysed:
    """As `analyse`, of calls that were found."""
    used, disagreement = _agreeing(calls)
    faults = [*lost(calls), *_compiled(calls), *disagreement]
    notes = _doubts(calls)
    work = calls.call(used[0]).work
    kernels, times, order = _kernels(calls, used, work)
    busy = busy_ns(calls)
    analysis = Analysis(
        calls=len(used),
        kernels=kernels,
        launches=_launches(calls, used, notes, device),
        pre_ops=pre_ops(calls, used, split_launches=device == "cuda"),
        kernel_us=tuple((busy[list(used)] / 1000).tolist()),
        host_us=tuple(calls.windows[index].duration_ns / 1000 for index in used),
        faults=tuple(faults),
        notes=tuple(notes),
    )
    return Analysed(analysis, used, times, order, work)


def _agreeing(calls: Calls) -> tuple[tuple[int, ...], list[str]]:
    """The whole calls that ran the most frequent sequence of kernels, and a note if others ran another.

    Where no two agree, it is the one whose host time is the median.
    """
    kinds, bounds = calls.trace.kind[calls.work.rows], calls.work.bounds.tolist()
    sequences = [kinds[start:end].tobytes() for start, end in pairwise(bounds)]
    # Calls that lost work, have none, or a time that cannot be, count only where all are like that.
    lossless = calls.missing == 0
    for good in (lossless & (calls.damaged == 0), lossless, lossless | True):
        candidates = [index for index in good.nonzero()[0].tolist() if sequences[index]]
        if candidates:
            break
    else:
        candidates = lossless.nonzero()[0].tolist() or list(range(len(sequences)))
    common, times = Counter(sequences[index] for index in candidates).most_common(1)[0]
    if times == 1:
        by_length = sorted(candidates, key=lambda index: (calls.windows[index].duration_ns, index))
        common = sequences[by_length[(len(by_length) - 1) // 2]]
    used = tuple(index for index in candidates if sequences[index] == common)
    if len(used) == len(sequences):
        return used, []
    counts = Counter(end - start for start, end in pairwise(bounds))
    if len(counts) > 1:
        shown = ", ".join(f"{count} in {times}" for count, times in sorted(counts.items()))
        reason = f"calls differ in their number of kernels ({shown} calls)"
    elif len(set(sequences)) > 1:
        reason = "calls differ in the names of their kernels"
    else:
        reason = "calls lost events, or have times that cannot be"
    return used, [f"{reason}; figures are of the {len(used)} of {len(sequences)} calls that agree"]


def lost(calls: Calls) -> list[str]:
    """What the trace lost or leaves ambiguous."""
    whole = calls.trace.integrity
    found = (
        (calls.lost, "launch", "inside calls without device event"),
        (whole.dropped, "event", "that could not be read"),
        (whole.negative, "event", "with an end before the beginning"),
        (
            calls.unsure,
            "device event",
            "with the correlation of launches in several processes; ambiguous",
        ),
    )
    return [f"{counted(count, noun)} {text}" for count, noun, text in found if count]


def _doubts(calls: Calls) -> list[str]:
    """What the trace holds of other work, and where its two clocks disagree."""
    notes = []
    if calls.orphans:
        notes.append(f"{counted(calls.orphans, 'device event')} without a launch in the trace, in no call")
    if calls.early:
        notes.append(f"{counted(calls.early, 'device event')} before their launch: the two clocks disagree")
    return notes


def _compiled(calls: Calls) -> list[str]:
    compiling = calls.trace.start[rows_of(calls.trace, lambda kind: kind.name in COMPILING)].tolist()
    if not compiling:
        return []
    hit = sum(any(one.start_ns <= instant < one.end_ns for instant in compiling) for one in calls.windows)
    return [f"{hit} of {len(calls.windows)} calls were compiled while they were measured"] if hit else []


def _kernels(
    calls: Calls, used: Sequence[int], work: Sequence[Work]
) -> tuple[tuple[Kernel, ...], tuple[list[float], ...], tuple[int, ...]]:
    """The kernels in device order, each with its median time over calls, their times, and their places by launch.

    Calls are compared in launch order, which overlap on the device cannot change.
    """
    import numpy as np

    rows = np.array([calls.work.of(index) for index in used]).reshape(len(used), len(work))
    starts = np.array([calls.windows[index].start_ns for index in used], dtype=np.int64)
    begins = np.median(calls.trace.start[rows] - starts[:, None], axis=0).tolist()
    known = {name: decode(name) for name in {item.event.name for item in work}}
    decoded = [known[item.event.name] for item in work]
    given = roles(work, decoded)
    found = []
    unknown = np.isin(rows, calls.unknown) if calls.unknown is not None else np.zeros(rows.shape, dtype=np.bool_)
    for position, (item, name, role, begin) in enumerate(zip(work, decoded, given, begins, strict=True)):
        times = (calls.trace.duration[rows[:, position][~unknown[:, position]]] / 1000).tolist()
        p20, p80 = fifths(times)
        kernel = Kernel(
            name=item.event.name,
            role=role,
            decoded=name,
            time_us=median(times) if times else None,
            p20_us=p20,
            p80_us=p80,
            op=item.owners[0].name if item.owners else None,
            launched_by=None if item.launch is item.event else item.launch.name,
        )
        found.append((begin, position, kernel, times))
    found.sort(key=lambda entry: entry[:2])
    kernels, times = tuple(kernel for *_, kernel, _ in found), tuple(times for *_, times in found)
    return kernels, times, tuple(position for _, position, *_ in found)


def _device_work(analysed: Analysed) -> tuple[DeviceWork, ...]:
    """Every piece of work of a call like those that were analysed."""
    place = {position: index for index, position in enumerate(analysed.order)}
    numbers: dict[tuple[object, int, str], int] = {}
    found = []
    for position, item in enumerate(analysed.work):
        own = (item.event,) if item.event is item.launch else ()  # on a CPU the work is an operator itself
        ops = [(event.name, (event.tid, event.start_ns, event.name)) for event in (*own, *item.owners)]
        found.append(
            DeviceWork(
                name=item.event.name,
                kernel=place[position],
                kind=decode(item.event.name).kind,
                ops=tuple((name, numbers.setdefault(key, len(numbers))) for name, key in ops),
                replayed="GraphLaunch" in item.launch.name,
            )
        )
    return tuple(found)


def _launches(calls: Calls, used: Sequence[int], notes: list[str], device: DeviceKind) -> Launches:
    """Launches per call; where calls differ in an API count the most frequent one, with a note."""
    kinds = Counter(calls.trace.kinds[kind].category for kind in calls.trace.kind[calls.work.of(used[0])].tolist())
    by_api = _counts(calls, used)
    queries = _flagged(calls, used, calls.api, lambda kind: "Occupancy" in kind.name)
    waits = _flagged(calls, used, calls.api, lambda kind: is_sync(kind.name))
    for what, counts in (("launch API calls", by_api), ("occupancy queries", queries), ("synchronisations", waits)):
        if len(set(counts)) > 1:
            notes.append(f"calls differ in their {what}; the most frequent count is given")
    has_api = device == "cuda" and len(calls.api.rows) > 0
    return Launches(
        kernels=kinds["kernel"] if device == "cuda" else sum(kinds.values()),
        memcpys=kinds["memcpy"],
        memsets=kinds["memset"],
        runtime_launches=dict(_most_common(by_api)) if has_api else {},
        occupancy_queries=_most_common(queries),
        syncs=_most_common(waits),
    )


def _counts(calls: Calls, used: Sequence[int]) -> list[tuple[tuple[str, int], ...]]:
    """For each call used its launches by API. Calls with one sequence of launches are counted once."""
    kinds, bounds = calls.trace.kind[calls.launches.rows], calls.launches.bounds.tolist()
    known: dict[bytes, tuple[tuple[str, int], ...]] = {}
    found = []
    for index in used:
        part = kinds[bounds[index] : bounds[index + 1]]
        key = part.tobytes()
        if key not in known:
            names = Counter(calls.trace.kinds[kind].name for kind in part.tolist())
            known[key] = tuple(sorted(names.items()))
        found.append(known[key])
    return found


def _flagged(calls: Calls, used: Sequence[int], part: Part, wanted: Callable[[Kind], bool]) -> list[int]:
    """For each call used how many of its rows in `part` are of a wanted kind."""
    import numpy as np

    hit: NDArray[np.bool_] = flags(calls.trace, wanted)[calls.trace.kind[part.rows]]
    return np.diff(np.concatenate(([0], np.cumsum(hit)))[part.bounds])[list(used)].tolist()  # type: ignore[no-any-return]


def _most_common(values: Sequence[_T]) -> _T:
    return Counter(values).most_common(1)[0][0]
