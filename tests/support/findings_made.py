"""Small traces of calls that are alike, and what is found in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.findings.host import findings
from support.timeline import EAGER, GEMM, Timeline

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mlpfusion.records.trace import Finding

FUSED = "triton_poi_fused__unsafe_view_gelu_mul_0"
COMPILED = ((GEMM, "aten::mm"), (GEMM, "aten::mm"), (FUSED, FUSED), (GEMM, "aten::mm"))
COPY = (
    "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)"
    "::{lambda()#3}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul> >(int)"
)
LOOKUP = "TorchDynamo Cache Lookup"


def every(calls: int = 5, kernels: Any = EAGER, each: Callable[[Any, int, int], object] | None = None) -> Any:
    """A trace of calls 1000 µs apart; `each` adds to a call, given the timeline, the call's start and its index."""
    made = Timeline()
    for index in range(calls):
        start = 1000 * (index + 1)
        made.mlp(start, kernels)
        if each:
            each(made, start, index)
    return made


def said(made: Any, folder: Path, **options: Any) -> dict[str, Finding]:
    return {finding.id: finding for finding in findings(read(made.write(folder)), **options)}
