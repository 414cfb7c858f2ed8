"""Computes a row's HBM traffic from its ledger, after checking the ledger against the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion.records.profile import Traffic
from mlpfusion.records.traffic import Alignment
from mlpfusion.traffic.alignment import align
from mlpfusion.traffic.round_trips import flow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.profile import Kernel
    from mlpfusion.records.traffic import DeviceWork, Launch, Ledger, Role, Step
    from mlpfusion.spec import Workload

# What needs a ledger that accounts for every kernel.
_COUNTED: Final = ("derived_bytes", "round_trips", "intermediate_bytes")
# Matrix products that add a tensor, their first argument.
_ADDS: Final = frozenset({"aten::addmm", "aten::baddbmm", "aten::addmv", "aten::addbmm"})
_BIAS_COPY: Final = "bias copy"
# How many reasons are listed; a call that ran something else entirely has one for each of its kernels.
_MOST_REASONS: Final = 3


def without_ledger(workload: Workload, reason: str | None) -> Traffic:
    """The minimum alone, and why there is no more."""
    said = reason or "the worker kept no ledger"
    return Traffic(minimum_bytes=workload.minimum_bytes, reasons=dict.fromkeys(_COUNTED, said))


def traffic(
    workload: Workload,
    ledger: Ledger | None,
    kernels: Sequence[Kernel],
    work: Sequence[DeviceWork],
    *,
    no_ledger: str | None = None,
) -> Traffic:
    """The traffic of a call from its ledger and the kernels of its trace; no count where the two differ.

    `no_ledger` is why there is none.
    """
    if ledger is None:
        return without_ledger(workload, no_ledger)
    found = align(ledger, work)
    hidden = _hidden_copies(ledger, kernels, found)
    if hidden:
        found = msgspec.structs.replace(found, missing=(*found.missing, *hidden))
    if found.missing:
        seen = [
            launch if mine else msgspec.structs.replace(launch, unknown="not in the trace")
            for launch, mine in zip(ledger.launches, found.kernels, strict=True)
        ]
        bound = flow(msgspec.structs.replace(ledger, launches=tuple(seen)))
        more = len(found.missing) - _MOST_REASONS
        reason = "; ".join(found.missing[:_MOST_REASONS]) + (f"; and {more} more" if more > 0 else "")
        return msgspec.structs.replace(
            without_ledger(workload, reason),
            round_trips_at_least=len(bound.intermediates),
            other=found.other,
            captured=ledger.captured,
        )
    return _counted(workload, *_replayed(ledger, found), kernels)


def _replayed(ledger: Ledger, found: Alignment) -> tuple[Ledger, Alignment]:
    """Drops launches that exist only during capture (input and output copies)."""
    kept = [(launch, mine) for launch, mine in zip(ledger.launches, found.kernels, strict=True) if mine]
    return (
        msgspec.structs.replace(ledger, launches=tuple(launch for launch, _ in kept)),
        msgspec.structs.replace(found, kernels=tuple(mine for _, mine in kept)),
    )


def emulated(workload: Workload, tokens: int, ledger: Ledger | None, *, no_ledger: str | None = None) -> Traffic:
    """What a ledger of an interpreted call of a few tokens says.

    It has no trace to be checked against: the interpreter itself shows every launch.
    """
    workload = msgspec.structs.replace(workload, batch=1, seq=tokens)
    if ledger is None:
        return without_ledger(workload, no_ledger)
    lost = [*ledger.faults, *(f"{op}: what it runs inside cannot be observed" for op in ledger.opaque)]
    lost += [f"{launch.op}: {launch.unknown}" for launch in ledger.launches if launch.unknown]
    if lost:
        return without_ledger(workload, "; ".join(lost[:_MOST_REASONS]))
    return _counted(workload, ledger, Alignment(kernels=((),) * len(ledger.launches)), ())


def _counted(
    workload: Workload,
    ledger: Ledger,
    aligned: Alignment,
    kernels: Sequence[Kernel],
) -> Traffic:
    ledger, aligned = _bias_copies_apart(ledger, kernels, aligned)
    roles = [_role(mine, kernels) for mine in aligned.kernels]
    found = flow(ledger, roles, aligned.kernels)
    return Traffic(
        minimum_bytes=workload.minimum_bytes,
        derived_bytes=found.derived_bytes,
        round_trips=len(found.intermediates),
        intermediate_bytes=found.intermediate_bytes,
        intermediates=found.intermediates,
        steps=tuple(_with_times(workload, step, role, kernels) for step, role in zip(found.steps, roles, strict=True)),
        other=(*aligned.other, *_beside(ledger, kernels, aligned)),
        captured=ledger.captured,
    )


def _bias_copies_apart(ledger: Ledger, kernels: Sequence[Kernel], aligned: Alignment) -> tuple[Ledger, Alignment]:
    """Make two launches of a matrix product that copies its bias into its result and then adds to that.

    Most such products add the bias on their way out; the trace alone shows which do not.
    """
    launches, places = [], []
    for launch, mine in zip(ledger.launches, aligned.kernels, strict=True):
        work = [index for index in mine if kernels[index].role != "memset"]
        copies = _adds(launch) and len(work) > 1 and _is_copy(kernels[work[0]])
        if copies:
            bias, out = launch.reads[0], launch.writes
            launches.append(msgspec.structs.replace(launch, op=_BIAS_COPY, reads=(bias,), flops=None))
            launches.append(msgspec.structs.replace(launch, reads=(*out, *launch.reads[1:])))
            places += [(work[0],), tuple(index for index in mine if index != work[0])]
        else:
            launches.append(launch)
            places.append(mine)
    return (
        msgspec.structs.replace(ledger, launches=tuple(launches)),
        msgspec.structs.replace(aligned, kernels=tuple(places)),
    )


def _hidden_copies(ledger: Ledger, kernels: Sequence[Kernel], aligned: Alignment) -> list[str]:
    """PyTorch's own operators that copy an operand first, as a product does whose library cannot take its strides.

    The copy is a value that the call writes and reads back, and which operand it is of, the trace does not say.
    """
    found = []
    for launch, mine in zip(ledger.launches, aligned.kernels, strict=True):
        if launch.source != "operator":
            continue
        work = [kernels[index] for index in mine if kernels[index].role != "memset"]
        last = max((place for place, kernel in enumerate(work) if not _is_copy(kernel)), default=0)
        copies = sum(_is_copy(kernel) for kernel in work[:last])
        if copies > _adds(launch):
            found.append(f"{launch.op} copies an operand before it computes with it")
    return found


def _adds(launch: Launch) -> bool:
    """Whether a launch is a product that reads what it adds to, and may have copied that into its result."""
    return launch.op in _ADDS and len(launch.reads) > 2


def _is_copy(kernel: Kernel) -> bool:
    return kernel.role == "memcpy" or any("copy" in op for op in kernel.decoded.fused_ops)


def _beside(ledger: Ledger, kernels: Sequence[Kernel], aligned: Alignment) -> list[str]:
    """A library's internal work, whose bytes are not derived: fills, and kernels after the first."""
    found = []
    for launch, mine in zip(ledger.launches, aligned.kernels, strict=True):
        fills = [index for index in mine if kernels[index].role == "memset"]
        more = [index for index in mine if index not in fills][1:]
        found += [f"{kernels[index].name} (memset) of {launch.op}" for index in fills if len(mine) > len(fills)]
        found += [f"{kernels[index].name}, after the first kernel of {launch.op}: its workspace" for index in more]
    return found


def _role(mine: tuple[int, ...], kernels: Sequence[Kernel]) -> Role | None:
    """What the kernels of a launch are to the MLP: the first that is more than a fill or a copy says it."""
    roles = [kernels[index].role for index in mine]
    telling = [role for role in roles if role not in ("memset", "memcpy")]
    return next(iter([*telling, *roles]), None)


def _with_times(workload: Workload, step: Step, role: Role | None, kernels: Sequence[Kernel]) -> Step:
    times = [kernels[index].time_us for index in step.kernels]
    known = [time for time in times if time is not None]
    return msgspec.structs.replace(
        step,
        role=role,
        flops=_flops(workload, role) if step.flops is None else step.flops,
        time_us=sum(known) if known and len(known) == len(times) else None,
    )


def _flops(workload: Workload, role: Role | None) -> int | None:
    """Operations of a matrix product that no operator declares, from what it is to the MLP."""
    one = 2 * workload.tokens * workload.spec.hidden_size * workload.spec.intermediate_size
    if role == "gate_up_gemm":
        return 2 * one
    return one if role in ("gate_gemm", "up_gemm", "down_gemm") else None
