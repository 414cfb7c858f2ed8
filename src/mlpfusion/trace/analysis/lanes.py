"""Finds when a call of a trace did what: its host by the owner of each instant, its device by the role of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mlpfusion.errors import MeasurementError
from mlpfusion.trace.analysis.kernels import analyse_calls
from mlpfusion.trace.analysis.pre_ops import median_call, pieces, without
from mlpfusion.trace.analysis.summary import calls_of
from mlpfusion.trace.calls.damage import repaired
from mlpfusion.trace.read import kineto

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mlpfusion.trace.read.kineto import Trace
    from mlpfusion.trace.read.source import Source


class Stretch(NamedTuple):
    """One stretch of a lane in µs from the call's start: a part of `PreOpParts`, or the role of a kernel."""

    what: str
    start_us: float
    end_us: float


class Lanes(NamedTuple):
    """One call: the stretches of its host and of its device by their start, and its kernels in the analysis' order."""

    host: tuple[Stretch, ...]
    device: tuple[Stretch, ...]
    kernels: tuple[str, ...]


def read(source: Source) -> Lanes:
    """The lanes of the one trace in `source`.

    Raises:
        UsageError: there is no one trace, or no call in it.
        MeasurementError: nothing ran in its calls, or what the host did is not recorded.
    """
    return lanes(kineto.read(source))


def lanes(trace: Trace) -> Lanes:
    """The lanes of the used call whose time to its first launch is the median, the one that `pre_ops` splits."""
    _, calls, device, _ = calls_of(repaired(trace), None, None)
    found = analyse_calls(calls, device)
    index = median_call(calls, found.used)
    reason = without(calls.trace)
    if index is None or reason is not None:
        raise MeasurementError(f"trace {trace.label!r}: {reason or 'no call launches anything'}")
    call = calls.call(index)
    begin = call.annotation.start_ns
    host = _joined(
        (what, start - begin, end - begin) for start, end, what in pieces(call, split_launches=device == "cuda")
    )
    roles = [kernel.role for kernel in found.launched]
    if len(roles) != len(call.work):
        raise MeasurementError(f"trace {trace.label!r}: its median call did not run the kernels that most did")
    ran = sorted(
        (work.event.start_ns - begin, work.event.end_ns - begin, role)
        for work, role in zip(call.work, roles, strict=True)
    )
    return Lanes(
        host=tuple(host),
        device=tuple(Stretch(role, start / 1000, end / 1000) for start, end, role in ran),
        kernels=tuple(kernel.name for kernel in found.analysis.kernels),
    )


def _joined(found: Iterable[tuple[str, int, int]]) -> Iterator[Stretch]:
    """Stretches in µs; neighbours of one owner are one."""
    last: tuple[str, int, int] | None = None
    for each in found:
        if last is not None and last[0] == each[0] and last[2] == each[1]:
            last = (last[0], last[1], each[2])
            continue
        if last is not None:
            yield Stretch(last[0], last[1] / 1000, last[2] / 1000)
        last = each
    if last is not None:
        yield Stretch(last[0], last[1] / 1000, last[2] / 1000)
