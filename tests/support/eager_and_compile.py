"""Recorded traces of eager and of torch.compile, and what becomes of the kernels from the one to the other."""

from __future__ import annotations

from support.paths import DATA

EAGER, COMPILE = (str(DATA / f"h200_{name}.json.gz") for name in ("eager", "compile"))
# Change and role of all kernels but the fills, which are the same.
EAGER_TO_COMPILE = [
    ("same", "gate_gemm"),
    ("gone", "activation"),
    ("same", "up_gemm"),
    ("new", "act_mul"),
    ("gone", "mul"),
    ("same", "down_gemm"),
]
