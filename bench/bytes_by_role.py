"""Derives a call's minimum HBM traffic from the roles of its kernels, for traces without a ledger.

Each role reads its operands and writes its result once; see `_ELEMENTS`. For the usual backends the sums are, in
elements, eager 3DH + 3MD + 8MH, one fused act·mul kernel 3DH + 3MD + 6MH, packed 3DH + 2MD + 6MH.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.records.profile import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlpfusion.records.profile import Kernel
    from mlpfusion.records.traffic import Role
    from mlpfusion.spec import Workload

# Elements read and written by a kernel of each role, from M tokens, D hidden_size, H intermediate_size.
_ELEMENTS: Final[dict[Role, Callable[[int, int, int], int]]] = {
    "gate_gemm": lambda m, d, h: m * d + d * h + m * h,
    "up_gemm": lambda m, d, h: m * d + d * h + m * h,
    "gate_up_gemm": lambda m, d, h: m * d + 2 * d * h + 2 * m * h,
    "activation": lambda m, d, h: 2 * m * h,
    "mul": lambda m, d, h: 3 * m * h,
    "act_mul": lambda m, d, h: 3 * m * h,
    "down_gemm": lambda m, d, h: m * h + d * h + m * d,
    # cuBLAS clears a few bytes of workspace before some GEMMs on Hopper; they do not count.
    "memset": lambda m, d, h: 0,
}


def traffic(workload: Workload, kernels: Sequence[Kernel]) -> Traffic:
    """The minimum of the workload and the bytes derived from these kernels, or the reason why none can be derived."""
    minimum = workload.minimum_bytes
    reason = _unknown(workload, kernels)
    if reason is not None:
        return Traffic(minimum_bytes=minimum, reasons={"derived_bytes": reason})
    m, d, h = workload.tokens, workload.spec.hidden_size, workload.spec.intermediate_size
    elements = sum(_ELEMENTS[kernel.role](m, d, h) for kernel in kernels)
    biases = 2 * h + d if workload.spec.bias else 0
    return Traffic(minimum_bytes=minimum, derived_bytes=(elements + biases) * workload.spec.itemsize)


def _unknown(workload: Workload, kernels: Sequence[Kernel]) -> str | None:
    if workload.mode == "training":
        return "there are no formulas for backward kernels"
    if not kernels:
        return "no kernel was observed"
    roles = [kernel.role for kernel in kernels if kernel.role != "memset"]
    strange = [kernel.name for kernel in kernels if kernel.role not in _ELEMENTS]
    if strange:
        return f"there is no formula for {strange[0]!r}"
    if len(set(roles)) != len(roles):
        twice = next(role for role in roles if roles.count(role) > 1)
        return f"{twice} takes more than one kernel, whose workspace is not in the formulas"
    return None
