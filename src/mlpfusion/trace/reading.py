"""Reads one trace file, whoever recorded it, into a record of all that it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.errors import MeasurementError
from mlpfusion.readings import Integrity, Reading
from mlpfusion.trace import kineto, select
from mlpfusion.trace.analysis import analyse
from mlpfusion.trace.calls import is_launch
from mlpfusion.trace.chrome import DEVICE_WORK

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.device import DeviceKind

MAX_BYTES: Final = 8 * 2**30


def read(
    source: str | Path, *, call: str | None = None, device: DeviceKind | None = None, max_bytes: int = MAX_BYTES
) -> Reading:
    """The reading of the one trace in `source`: a .json, .json.gz, or - for stdin, `archive.zip:member`, or an archive.

    `call` names the annotation that delimits a call; else `select.choose` finds one. `device` is "cuda" when the trace
    has device work, else "cpu", unless said.

    Raises:
        UsageError: there is no one trace in `source`, no such call, or more than `max_bytes` of text.
        MeasurementError: the trace has calls but nothing that ran in them.
    """
    trace = kineto.read(source)
    launches = [event.start_ns for event in trace.events if event.category == "api" and is_launch(event.name)]
    on_device = any(event.category in DEVICE_WORK for event in trace.events)
    if device is None:
        if launches and not on_device:
            raise MeasurementError("no GPU events in the trace: the profiler recorded the host only")
        device = "cuda" if on_device else "cpu"
    marks = [event for event in trace.events if event.category == "annotation"]
    choice, _ = select.choose(marks, launches, trace.events[0], asked=call)
    analysis = analyse(trace, call=choice.name or "", device=device)
    return Reading(
        source=str(source),
        device=device,
        gpu=None,
        call=choice,
        analysis=analysis,
        integrity=Integrity(events=len(trace.events), dropped=trace.dropped),
        incomplete="; ".join(analysis.faults) or None,
        notes=analysis.notes,
    )
