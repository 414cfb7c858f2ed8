"""Reads one trace file, whoever recorded it, into one record."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion.errors import MeasurementError, UsageError
from mlpfusion.records.trace import Reading
from mlpfusion.trace.analysis import facts
from mlpfusion.trace.analysis.breakdown import breakdown_of
from mlpfusion.trace.analysis.frames import modules, python_use
from mlpfusion.trace.analysis.idling.idle import device_use
from mlpfusion.trace.analysis.kernels import COMPILING, analyse_calls, lost
from mlpfusion.trace.analysis.pre_ops import median_call, without
from mlpfusion.trace.calls import select
from mlpfusion.trace.calls.damage import repaired
from mlpfusion.trace.calls.link import adopted, by_call, find_calls, issued, rows_of
from mlpfusion.trace.calls.waits import waits
from mlpfusion.trace.read import kineto
from mlpfusion.trace.read.chrome import DEVICE_WORK
from mlpfusion.trace.read.kineto import Event
from mlpfusion.trace.read.source import MAX_BYTES
from mlpfusion.trace.words import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.device import DeviceKind
    from mlpfusion.records.trace import CallChoice, Integrity
    from mlpfusion.trace.analysis.kernels import Analysed
    from mlpfusion.trace.calls.call import Calls
    from mlpfusion.trace.calls.damage import Repaired
    from mlpfusion.trace.read.kineto import Trace
    from mlpfusion.trace.read.source import Source

_TIMELINE: Final = 2000
_SHOWN_BETWEEN: Final = 20


def read(
    source: Source, *, call: str | None = None, device: DeviceKind | None = None, max_bytes: int = MAX_BYTES
) -> Reading:
    """The reading of the one trace in `source`: a .json, .json.gz, or - for stdin, `archive.zip:member`, or an archive.

    `call` names the annotation that delimits a call, or ProfilerStep; else `select.choose` finds one. `device` is
    "cuda" when the trace has device work, else "cpu", unless said.

    Raises:
        UsageError: there is no one trace in `source`, no such call, or more than `max_bytes` of text.
        MeasurementError: the trace has calls but nothing that ran in them.
    """
    return reading(kineto.read(source, max_bytes=max_bytes), call=call, device=device)


def read_all(
    source: Source, *, call: str | None = None, device: DeviceKind | None = None, max_bytes: int = MAX_BYTES
) -> tuple[Reading, ...]:
    """The reading of every trace in `source`, which may be an archive of several; as `read` otherwise."""
    traces = kineto.traces(source, max_bytes=max_bytes)
    return tuple(reading(trace, call=call, device=device) for trace in traces)


def reading(trace: Trace, *, call: str | None = None, device: DeviceKind | None = None) -> Reading:
    """The calls of a trace; raises as `with_calls`."""
    return with_calls(trace, call=call, device=device)[0]


def with_calls(
    trace: Trace, *, call: str | None = None, device: DeviceKind | None = None
) -> tuple[Reading, tuple[Event, ...]]:
    """The reading of a trace, and the events that delimit its calls.

    Raises:
        UsageError: it has no such call, or was cut off before the end of its first one.
        MeasurementError: it has calls but nothing that ran in them.
    """
    import numpy as np

    written, damage = trace, repaired(trace)
    trace = damage.trace
    choice, calls, device, process = calls_of(damage, call, device)
    found = analyse_calls(calls, device)
    analysis, used = found.analysis, found.used
    shown = median_call(calls, used)
    one = calls.call(used[0] if shown is None else shown)
    inside, outside = facts.overhead(calls)
    compiling = rows_of(trace, lambda kind: kind.name in COMPILING or kind.name.endswith("(dynamo_timed)"))
    on_device = device == "cuda"
    waited = waits(calls)
    use = device_use(calls, used, waited) if on_device else None
    told = Reading(
        source=trace.label,
        device=device,
        gpu=trace.gpu,
        call=choice,
        analysis=analysis,
        integrity=_integrity(trace, calls, damage, used),
        incomplete=_incomplete(trace, calls, used),
        pre_ops_reason=_no_pre_ops(trace, found),
        kernel_spread=tuple(facts.spread(times) for times in found.times),
        host_spread=facts.spread(analysis.host_us),
        device_spread=facts.spread(analysis.kernel_us),
        first_call=facts.first_call(calls),
        idle_share=use.idle_us / use.length_us if use else None,
        device_use=use,
        host_use=facts.host_use(calls, used, compiling, waited) if on_device else None,
        breakdown=breakdown_of(calls, found, use, waited),
        python=python_use(calls, used, split_launches=on_device),
        modules=_modules(calls, found),
        graphs=facts.graphs(one),
        streams=facts.streams(calls, used) if on_device else (),
        timeline=facts.timeline(one, _TIMELINE),
        timeline_limit=_TIMELINE if len(one.host) > _TIMELINE else None,
        apis=facts.tallies(trace, calls.api.rows),
        overhead=inside,
        overhead_outside=outside,
        compiling=facts.tallies(trace, by_call(trace, compiling, calls.windows, whole=True).rows),
        regions=facts.regions(calls),
        odd_calls=facts.odd_calls(calls, used),
        left_out=len(calls.windows) - len(used),
        damaged=facts.tallies(written, np.union1d(damage.unknown, damage.outside), most=_SHOWN_BETWEEN),
        between_calls=facts.tallies(trace, calls.between, most=_SHOWN_BETWEEN),
        notes=(*analysis.notes, *_of_choice(choice, process), *_notes(trace, calls, device, damage)),
    )
    return told, calls.windows


def _modules(calls: Calls, found: Analysed) -> tuple[tuple[str, ...], ...]:
    """For each kernel, in its order, the modules around its launch in the first call used."""
    by_launch = modules(calls, found.used[0])
    return tuple(by_launch[place] for place in found.order) if by_launch else ()


def calls_of(
    damage: Repaired, asked: str | None, device: DeviceKind | None
) -> tuple[CallChoice, Calls, DeviceKind, str | None]:
    """Which events delimit a call, the calls, what they ran on, and a note on their process."""
    trace = damage.trace
    launches = issued(trace)
    cut_off = trace.integrity.lost_bytes is not None
    try:
        on = device or _device(trace, launched=len(launches.at) > 0)
        marks = trace.rows(rows_of(trace, lambda kind: kind.category == "annotation"))
        whole = _whole(trace)
        choice, windows = select.choose(marks, launches, whole, asked=asked)
        if cut_off:
            windows = _ended(trace, windows)
            if not windows or choice.by == "whole_trace":
                raise UsageError(_cut_off(trace))
            choice = msgspec.structs.replace(choice, count=len(windows))
        note = None
        if choice.by != "whole_trace":
            windows, note = adopted(trace, windows)
        calls = find_calls(damage, windows, on, whole=choice.by == "whole_trace")
    except MeasurementError as error:
        if cut_off:
            raise UsageError(_cut_off(trace)) from error
        raise
    if cut_off and not _survivors(calls):
        raise UsageError(_cut_off(trace))
    return choice, calls, on, note


def _device(trace: Trace, *, launched: bool) -> DeviceKind:
    if any(kind.category in DEVICE_WORK for kind in trace.kinds):
        return "cuda"
    if trace.foreign is not None:
        raise MeasurementError(f"no GPU events in the trace: it is {trace.foreign}")
    if launched:
        raise MeasurementError("no GPU events in the trace: the profiler recorded the host only")
    if trace.gpu is not None:
        raise MeasurementError(
            f"no GPU events in the trace, although it names an {trace.gpu}: the profiler recorded the host only; "
            "if all work ran on the CPU, say device cpu"
        )
    return "cpu"


def _whole(trace: Trace) -> Event:
    """An event that spans all others, on the thread that launches most, or else does most."""
    import numpy as np

    for category in ("api", "op"):
        rows = rows_of(trace, lambda kind, wanted=category: kind.category == wanted)  # type: ignore[misc]
        if len(rows):
            break
    else:
        rows = np.arange(len(trace.start))
    place = trace.places[Counter(trace.place[rows].tolist()).most_common(1)[0][0]]
    start = int(trace.start.min())
    end = max(int((trace.start + trace.duration).max()), int(trace.start.max()) + 1)
    return Event(
        name="the whole trace",
        category="annotation",
        start_ns=start,
        duration_ns=end - start,
        pid=place.pid,
        tid=place.tid,
    )


def _ended(trace: Trace, windows: list[Event]) -> list[Event]:
    """The calls after whose end something still happens in a trace that was cut off."""
    other = rows_of(trace, lambda kind: kind.category != "annotation")
    last = int(trace.start[other].max()) if len(other) else 0
    return [window for window in windows if window.end_ns <= last]


def _survivors(calls: Calls) -> int:
    """How many calls have work and lost none."""
    import numpy as np

    return int(np.count_nonzero((np.diff(calls.work.bounds) > 0) & (calls.missing == 0)))


def _cut_off(trace: Trace) -> str:
    why = trace.damaged_by or f"it ends early, in the middle of an event of {trace.integrity.lost_bytes} bytes"
    return f"trace {trace.label!r} is cut off ({why}): not one whole call of it survives"


def _integrity(trace: Trace, calls: Calls, damage: Repaired, used: Sequence[int]) -> Integrity:
    return msgspec.structs.replace(
        trace.integrity,
        orphans=calls.orphans,
        lost=calls.lost,
        early=calls.early,
        damaged=len(damage.unknown) + len(damage.outside),
        impossible=len(damage.unknown),
        crowded=damage.crowded,
        loose=damage.loose if damage.matched else 0,
        matched=damage.matched,
        captured=int(calls.captured[list(used)].sum()) if calls.captured is not None else 0,
    )


def _incomplete(trace: Trace, calls: Calls, used: Sequence[int]) -> str | None:
    """Why averages of this trace would not be of whole calls, or None: the calls that are used lost something."""
    reasons = []
    if trace.integrity.lost_bytes is not None:
        why = f" ({trace.damaged_by})" if trace.damaged_by else ""
        reasons.append(
            f"the file is cut off{why}: {trace.integrity.lost_bytes} bytes after its last whole event are lost"
        )
    if calls.unsure or calls.missing[list(used)].any():
        reasons += lost(calls)
    return "; ".join(reasons) or None


def _no_pre_ops(trace: Trace, found: Analysed) -> str | None:
    reason = without(trace)
    if reason is None and found.analysis.pre_ops.time_to_first_launch is None:
        reason = "no call launches anything"
    return reason


def _of_choice(choice: CallChoice, process: str | None) -> list[str]:
    """What is to be said of the events that delimit calls."""
    notes = [process] if process else []
    if choice.rounded:
        notes.append(
            f"{counted(choice.rounded, 'call')} overlapping the one before by less than 1 µs, as the clock rounds"
        )
    if choice.overlapping:
        notes.append(
            f"{counted(choice.overlapping, 'annotation')} of the calls' name overlapping a call, as on another thread: "
            "left out"
        )
    return notes


def _notes(trace: Trace, calls: Calls, device: DeviceKind, damage: Repaired) -> list[str]:
    notes = []
    whole = trace.integrity
    if device == "cpu":
        notes.append("no GPU events: a CPU run, whose leaf operators take the place of kernels")
    elif not len(calls.api.rows):
        notes.append("no API calls are recorded: device work belongs to the call in which it ran")
    if whole.repaired:
        notes.append(f"repaired: {counted(whole.repaired, 'damaged event')}")
    if whole.zero:
        notes.append(f"{counted(whole.zero, 'device event')} of duration 0")
    if calls.captured is not None and calls.captured.any():
        launches = counted(int(calls.captured.sum()), "launch")
        notes.append(f"a capture: {launches} recorded into a graph, which runs nothing yet")
    notes += _of_damage(damage, whole)
    if whole.linked_by_flow:
        notes.append(f"{counted(whole.linked_by_flow, 'device event')} linked by arrows, without a correlation")
    return notes


def _of_damage(damage: Repaired, whole: Integrity) -> list[str]:
    """What is to be said of events that cannot be as they are written."""
    texts = (
        (whole.frames, "Python frame", "could not be read"),
        (len(damage.unknown), "device event", "with a duration that cannot be (past the next of its stream, negative, "
         "or 0 where others of its name are not): left out of sums"),
        (len(damage.outside), "device event", "damaged, with no time or another's correlation: in no call"),
        (damage.crowded, "device event", "overlapping the next of its stream, which runs several at once"),
    )  # fmt: skip
    notes = [f"{counted(count, noun)} {text}" for count, noun, text in texts if count]
    if damage.matched:
        what = f"{damage.matched} of {damage.loose} kernels without a correlation of their own"
        notes.append(f"{what} were matched to their launches by name, order and stream")
    return notes
