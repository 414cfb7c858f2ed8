"""Runs a profile's rows under Nsight Compute and adds measured bytes to derived ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion.errors import MeasurementError
from mlpfusion.traffic import nsight_compute
from mlpfusion.workers import supervise, tasks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mlpfusion.device import Device
    from mlpfusion.records.profile import Row, Traffic
    from mlpfusion.records.traffic import Step
    from mlpfusion.spec import Workload
    from mlpfusion.traffic.nsight_compute import Caches, KernelBytes

Counts = dict[str, "tuple[KernelBytes, ...] | str"]  # by backend its kernels, or why there are none

# Up to this share of the derived bytes the two count as equal: the counters include the memory's own bookkeeping.
AGREES: Final = 0.05


def count(
    names: Sequence[str], workload: Workload, here: Device, *, folder: Path, seed: int, time_limit_s: float
) -> tuple[Counts, Counts]:
    """The kernels of one call of each backend: with the caches as the call leaves them, and emptied before each kernel.

    Nothing here fails a backend: where counters cannot be read there is the reason.
    """
    ncu = nsight_compute.find()
    reason = nsight_compute.unavailable(here, ncu)
    if reason is not None or ncu is None:
        nothing: Counts = dict.fromkeys(names, reason or "")
        return nothing, dict(nothing)

    def run(caches: Caches) -> Counts:
        found = _run(names, caches)
        together = next(iter(found.values()), None)
        if len(names) < 2 or not isinstance(together, str) or together == nsight_compute.NOT_PERMITTED:
            return found
        return {name: _run([name], caches)[name] for name in names}  # one of them may have broken it for all

    def _run(some: Sequence[str], caches: Caches) -> Counts:
        task = tasks.Count(backends=tuple(some), workload=workload, device=here.kind, seed=seed)
        name = f"count-{caches}-{len(some)}-{some[0] if len(some) == 1 else 'all'}".replace("/", "-")
        log = folder / f"{name}.csv"
        log.unlink(missing_ok=True)
        limit = time_limit_s * len(some)
        before = nsight_compute.command(ncu, str(log), caches)
        answer = supervise.run(task, folder=folder, name=name, time_limit_s=limit, before=before)
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        try:
            if isinstance(answer, tasks.Broken) and "ERR_NVGPUCTRPERM" not in text:
                raise MeasurementError(f"the run under Nsight Compute failed: {answer.reason}")
            return dict(nsight_compute.by_backend(nsight_compute.parse(text), some))
        except MeasurementError as error:
            return dict.fromkeys(some, str(error))

    in_sequence = run("none")
    if all(isinstance(found, str) for found in in_sequence.values()):
        return in_sequence, dict(in_sequence)
    return in_sequence, run("all")


def with_counters(row: Row, in_sequence: Counts, alone: Counts, here: Device) -> Row:
    """The row with measured bytes per step and in all, and what explains their difference to the derived ones."""
    traffic = row.traffic
    found = in_sequence.get(row.backend)
    if traffic is None or found is None:
        return row
    if isinstance(found, str):
        return _with(row, _without(traffic, found))
    names = [kernel.name for kernel in row.kernels if kernel.decoded.kind not in ("memset", "memcpy")]
    reason = _other_kernels(names, [kernel.name for kernel in found])
    if reason is not None:
        return _with(row, _without(traffic, reason))
    places = [index for index, kernel in enumerate(row.kernels) if kernel.decoded.kind not in ("memset", "memcpy")]
    measured = dict(zip(places, found, strict=True))
    beside = _alone(names, alone.get(row.backend, "no run with the caches emptied before each kernel"))
    cold = None if isinstance(beside, str) else dict(zip(places, beside, strict=True))
    steps = tuple(_measured(step, row, measured, cold) for step in traffic.steps)
    changed = msgspec.structs.replace(
        traffic,
        steps=steps,
        measured_bytes=sum(kernel.bytes for kernel in found),
        alone_bytes=None if cold is None else sum(kernel.bytes for kernel in cold.values()),
        reasons=traffic.reasons if cold is not None else {**traffic.reasons, "alone_bytes": str(beside)},
    )
    apart = set(range(len(row.kernels))) - {index for step in steps for index in step.kernels}
    copies = [row.kernels[index].name for index in sorted(apart) if row.kernels[index].decoded.kind == "memcpy"]
    more = [kernel for index, kernel in measured.items() if index in apart]
    return _with(row, in_all(changed, here.l2_bytes, copies=copies, more=more))


def _alone(names: Sequence[str], found: tuple[KernelBytes, ...] | str) -> tuple[KernelBytes, ...] | str:
    """The kernels of the run with emptied caches, or why there are none of this call."""
    if isinstance(found, str):
        return found
    reason = _other_kernels(names, [kernel.name for kernel in found])
    return found if reason is None else f"with the caches emptied before each kernel {reason}"


def in_all(
    traffic: Traffic, l2_bytes: int | None, *, copies: Sequence[str] = (), more: Sequence[KernelBytes] = ()
) -> Traffic:
    """Explains a call's measured bytes by its steps' counters: the difference to derived bytes, or why there are none.

    A sum without a step that was not counted is no measurement of the call, nor is one without a copy by the driver,
    `copies`, that belongs to no step. `more` are counted kernels of none.
    """
    lost = [step for step in traffic.steps if step.measured_read_bytes is None]
    if not lost and not copies:
        return msgspec.structs.replace(traffic, explained=explain(traffic, l2_bytes, more))
    names = ", ".join([*(step.op for step in lost), *copies])
    moved = f", which move {_mb(sum(step.bytes for step in lost))} as derived" if lost and not copies else ""
    counted = [step for step in traffic.steps if step.measured_read_bytes is not None]
    derived = f", {_mb(sum(step.bytes for step in counted))} as derived" if counted else ""
    reason = (
        f"Nsight Compute counts kernels, not the copies and fills of {names}{moved}; the kernels move "
        f"{_mb(traffic.measured_bytes or 0)}{derived}"
    )
    return _without(msgspec.structs.replace(traffic, measured_bytes=None, alone_bytes=None, explained=None), reason)


def _measured(step: Step, row: Row, measured: dict[int, KernelBytes], alone: dict[int, KernelBytes] | None) -> Step:
    """The step with what its kernels were counted to move; copies and fills by the driver are none."""
    mine = [index for index in step.kernels if row.kernels[index].role != "memset"]
    if not mine or any(index not in measured for index in mine):
        return step
    return msgspec.structs.replace(
        step,
        measured_read_bytes=sum(measured[index].read_bytes for index in mine),
        measured_write_bytes=sum(measured[index].write_bytes for index in mine),
        alone_bytes=None if alone is None else sum(alone[index].bytes for index in mine),
    )


def explain(traffic: Traffic, l2_bytes: int | None, more: Sequence[KernelBytes] = ()) -> str | None:
    """Why measured and derived bytes differ, None where they agree or one is missing; `more` are kernels of no step."""
    derived, measured, alone = traffic.derived_bytes, traffic.measured_bytes, traffic.alone_bytes
    if derived is None or measured is None or abs(measured - derived) <= AGREES * derived:
        return None
    difference = f"{_mb(abs(measured - derived))} {'less' if measured < derived else 'more'} than derived"
    cache = "the L2" if l2_bytes is None else f"the L2 ({l2_bytes / 2**20:.0f} MiB)"
    largest = max((value.bytes for value in traffic.intermediates), default=0)
    if measured < derived:
        if alone is not None and alone - measured >= (derived - measured) / 2:
            return (
                f"{difference}: {cache} cached part of what one kernel wrote until the next read it; with it emptied "
                f"before each kernel they move {_mb(alone)}"
            )
        if alone is None and l2_bytes is not None and 0 < largest <= 2 * l2_bytes:
            return f"{difference}: the largest value that goes through memory has {_mb(largest)}, near {cache}'s size"
        return f"{difference}, which the caches do not explain"
    return f"{difference}: {_beyond(traffic.steps, cache, more) or 'by nothing that a counter names'}"


def _beyond(steps: Sequence[Step], cache: str, more: Sequence[KernelBytes]) -> str:
    """What the call moves beyond its derived bytes: operands read again, what is written that is no result, `more`."""
    read = [(step.measured_read_bytes or 0) - step.read_bytes for step in steps]
    written = [(step.measured_write_bytes or 0) - step.write_bytes for step in steps]
    parts = []
    for beyond, what in (
        (read, "more read, as operands are read again"),
        (written, f"more written, as {cache} still cached earlier writes, or for a workspace"),
    ):
        if sum(beyond) > 0:
            most, step = max(zip(beyond, steps, strict=True), key=lambda pair: pair[0])
            parts.append(f"{_mb(sum(beyond))} {what}, most in {step.role or step.op} ({_mb(most)})")
    return "; ".join(
        [*parts, *(f"{_mb(kernel.bytes)} by {kernel.name}, which belongs to no launch" for kernel in more)]
    )


def _other_kernels(traced: Sequence[str], counted: Sequence[str]) -> str | None:
    """Why two lists of kernels are not of one call, or None."""
    if len(traced) != len(counted):
        return f"Nsight Compute saw {len(counted)} kernels where the trace shows {len(traced)}"
    for one, other in zip(traced, counted, strict=True):
        if not nsight_compute.same_kernel(one, other):
            return f"Nsight Compute saw {other!r} where the trace shows {one!r}"
    return None


def _without(traffic: Traffic, reason: str) -> Traffic:
    return msgspec.structs.replace(traffic, reasons={**traffic.reasons, "measured_bytes": reason})


def _with(row: Row, traffic: Traffic) -> Row:
    return msgspec.structs.replace(row, traffic=traffic)


def _mb(size: int) -> str:
    return f"{size / 1e6:.3g} MB"
