"""A ledger of Liger's call at the article's shape, the kernels of its trace, and what they move."""

from __future__ import annotations

from mlpfusion.records.profile import Decoded, Kernel
from mlpfusion.records.traffic import Access, Buffer, DeviceWork, Launch, Ledger, Run
from mlpfusion.spec import MLPSpec, Workload

WORK = Workload(spec=MLPSpec(hidden_size=768, intermediate_size=3072), batch=64, seq=128)
M, D, H = WORK.tokens, 768, 3072
ROLES = ("gate_gemm", "up_gemm", "act_mul", "down_gemm")
OPS = ("aten::mm", "aten::mm", "_geglu_tanh_forward_kernel", "aten::mm")


def whole(buffer, size):
    return Access(buffer=buffer, runs=(Run(0, size, size, 1),))


x, wg, wu, wd = whole(0, 2 * M * D), whole(1, 2 * D * H), whole(2, 2 * D * H), whole(3, 2 * D * H)
g, u, p, y = whole(4, 2 * M * H), whole(5, 2 * M * H), whole(6, 2 * M * H), whole(7, 2 * M * D)
LIGER = Ledger(
    launches=(
        Launch(op=OPS[0], source="operator", reads=(x, wg), writes=(g,), flops=2 * M * D * H),
        Launch(op=OPS[1], source="operator", reads=(x, wu), writes=(u,), flops=2 * M * D * H),
        Launch(op=OPS[2], source="triton", kernel=OPS[2], reads=(g, u), writes=(p,)),
        Launch(op=OPS[3], source="operator", reads=(p, wd), writes=(y,)),
    ),
    buffers=(Buffer(bytes=1),) * 8,
)
KERNELS = [Kernel(name=f"k{i}", role=role, decoded=Decoded(), time_us=10.0 + i) for i, role in enumerate(ROLES)]
WORKS = [
    DeviceWork(name=op if "_kernel" in op else f"nvjet{i}", kernel=i, kind="gemm", ops=((op, i),))
    for i, op in enumerate(OPS)
]
