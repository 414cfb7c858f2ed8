"""Adds roofline limits and, on request, Nsight Compute counters to the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion.errors import MlpfusionError
from mlpfusion.trace.analysis.kernels import analyse
from mlpfusion.trace.read import kineto
from mlpfusion.traffic import counters as counters_traffic
from mlpfusion.traffic import inductor_check, roofline
from mlpfusion.workers import supervise, tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mlpfusion.device import Device
    from mlpfusion.records.profile import Row
    from mlpfusion.records.traffic import Ceilings
    from mlpfusion.spec import Dtype, Workload

CALLS: Final = 20
_NOT_ASKED: Final = "not requested; --counters reads them"
_SUFFIX: Final = ".trace.json"


def ceilings(
    dtype: Dtype,
    products: Sequence[tuple[int, int, int]],
    here: Device,
    *,
    folder: Path,
    time_limit_s: float,
    copies: Sequence[int] = roofline.COPIES,
    calls: int = CALLS,
) -> Ceilings | str:
    """What this card reaches, or why that could not be measured. Copies that do not fit into memory are left out."""
    fitting = tuple(size for size in copies if here.free_bytes is None or 2 * size < here.free_bytes)
    task = tasks.Ceilings(
        dtype=dtype, device=here.kind, copies=fitting, products=tuple(products), folder=str(folder), calls=calls
    )
    answer = supervise.run(task, folder=folder, name="ceilings", time_limit_s=time_limit_s)
    if isinstance(answer, tasks.Broken):
        return f"the card's ceilings could not be measured: {answer.reason}"
    times = {}
    try:
        for kind in ("copy", "product"):
            for path in sorted(folder.glob(f"{kind}-*{_SUFFIX}")):
                times[path.name.removesuffix(_SUFFIX)] = analyse(kineto.read(path), device=here.kind).kernel_us
                path.unlink()
    except MlpfusionError as error:
        return f"the card's ceilings could not be measured: {error}"
    found = roofline.ceilings(dtype, times)
    if not found.copies or not found.products:
        return "the card's ceilings could not be measured: there is no memory for a copy and a matrix product"
    return found


def weighed(
    rows: Sequence[Row],
    workload: Workload,
    here: Device,
    *,
    counters: bool,
    folder: Path,
    seed: int,
    time_limit_s: float,
    tell: Callable[[str, str], None],
) -> tuple[list[Row], Ceilings | None]:
    """The rows with measured bytes where `counters` asks for them and, on a GPU, limits; and the card's ceilings.

    `counters` also reads Inductor's scheduler for compiled rows, which costs a compilation of each.
    """
    names = [row.backend for row in rows]
    if counters:
        rows = inductor_check.checked(
            rows, workload, here, folder=folder, seed=seed, time_limit_s=time_limit_s, tell=tell
        )
    else:
        rows = [_with_reason(row, "scheduled", _NOT_ASKED) if inductor_check.is_compiled(row) else row for row in rows]
    if counters and names:
        tell("count", f"{', '.join(names)}: one call each under Nsight Compute, twice")
        found = counters_traffic.count(names, workload, here, folder=folder, seed=seed, time_limit_s=time_limit_s)
        rows = [counters_traffic.with_counters(row, *found, here) for row in rows]
    elif here.kind == "cuda":
        rows = [_with_reason(row, "measured_bytes", _NOT_ASKED) for row in rows]
    if here.kind == "cpu" or not names:
        return list(rows), None
    tell("ceilings", "copies and matrix products")
    reached = ceilings(workload.spec.dtype, roofline.products(workload), here, folder=folder, time_limit_s=time_limit_s)
    if isinstance(reached, str):
        return [_with_reason(row, "limit_us", reached) for row in rows], None
    return [limited(row, reached, here) for row in rows], reached


def limited(row: Row, found: Ceilings, here: Device) -> Row:
    """The row with limits on its steps, and a note for every time that cannot be right."""
    if row.traffic is None or not row.traffic.steps or not row.kernels:
        return row
    traffic = roofline.weighed(row.traffic, found, here.l2_bytes)
    return msgspec.structs.replace(row, traffic=traffic, notes=(*row.notes, *roofline.faults(traffic)))


def _with_reason(row: Row, field: str, reason: str) -> Row:
    if row.traffic is None:
        return row
    reasons = {**row.traffic.reasons, field: reason}
    return msgspec.structs.replace(row, traffic=msgspec.structs.replace(row.traffic, reasons=reasons))
