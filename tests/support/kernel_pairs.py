"""Kernels of a call by name and role, and how pairs of them changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.records.profile import Kernel
from mlpfusion.trace.names.decode import decode
from support.timeline import GELU, GEMM, MUL

if TYPE_CHECKING:
    from mlpfusion.records.trace import KernelPair

FUSED = "triton_poi_fused__unsafe_view_gelu_mul_0"
GATE: Final = "gate_gemm"
UP: Final = "up_gemm"
DOWN: Final = "down_gemm"
EAGER = [(GEMM, GATE), (GELU, "activation"), (GEMM, UP), (MUL, "mul"), (GEMM, DOWN)]


def kernels(given: list[tuple[str, str]], time_us: float = 10.0) -> list[Kernel]:
    return [Kernel(name=name, role=role, decoded=decode(name), time_us=time_us) for name, role in given]  # type: ignore[arg-type]


def changes(pairs: tuple[KernelPair, ...]) -> list[tuple[str, str]]:
    return [(each.change, each.role) for each in pairs]
