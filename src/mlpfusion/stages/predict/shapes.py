"""Tells the shape of a launch's matrix product, and whether a library made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlpfusion.records.profile import Row
    from mlpfusion.records.traffic import Step
    from mlpfusion.spec import Workload

Shape = tuple[int, int, int]


def steps(row: Row) -> tuple[Step, ...]:
    """The launches of a row's ledger, in order."""
    return () if row.traffic is None else row.traffic.steps


def is_product(step: Step, row: Row) -> bool:
    """Whether a launch is a matrix product, by its operations or by a kernel's name."""
    return bool(step.flops) or any(row.kernels[index].decoded.kind == "gemm" for index in step.kernels)


def lacks_operations(step: Step, row: Row) -> bool:
    """Whether a kernel's name says that a launch is a matrix product, and nothing says how large."""
    return step.flops is None and is_product(step, row)


def is_library_product(step: Step, row: Row) -> bool:
    """Whether a launch is a library's plain product, as a table of PyTorch's products has it."""
    fused = any(row.kernels[index].decoded.fused_ops for index in step.kernels)
    return step.op.startswith("aten::") and is_product(step, row) and not fused


def shapes(step: Step, workload: Workload) -> tuple[Shape, ...]:
    """The (m, n, k) that a launch of a gated MLP can have: one forward; backward any that its operations allow.

    Tables time x [m, k] · wᵀ [k, n]; a backward product reads its operands in other orders, which count as equal.
    Empty where the operations are those of none.
    """
    m, hidden, inner = workload.tokens, workload.spec.hidden_size, workload.spec.intermediate_size
    forward: dict[str | None, Shape] = {
        "gate_gemm": (m, inner, hidden),
        "up_gemm": (m, inner, hidden),
        "gate_up_gemm": (m, 2 * inner, hidden),
        "down_gemm": (m, hidden, inner),
    }
    if not step.backward and step.role in forward:
        return (forward[step.role],)
    if not step.flops:
        return ()
    double = step.flops == 4 * m * hidden * inner
    wide = 2 * inner if double else inner
    if step.flops != 2 * m * hidden * wide:
        return ()
    return ((m, wide, hidden), (m, hidden, wide), (wide, hidden, m))
