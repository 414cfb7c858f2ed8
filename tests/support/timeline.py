"""Builds small Chrome traces like torch.profiler's, for tests: times in µs, one process, thread 1 unless said."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

CALL = "mlpfusion.call"
WARMUP = "mlpfusion.warmup"
GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
GELU = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
    "at::native::GeluType)::{lambda()#1}::operator()() const::{lambda()#4}::operator()() const::{lambda(c10::BFloat16)"
    "#1}, std::array<char*, 2ul> >(int)"
)
MUL = (
    "void at::native::vectorized_elementwise_kernel<8, at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, "
    "c10::BFloat16, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int)"
)
SPLIT_K = "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, true>(int)"
EAGER = ((GEMM, "aten::mm"), (GELU, "aten::gelu"), (GEMM, "aten::mm"), (MUL, "aten::mul"), (GEMM, "aten::mm"))


class Timeline:
    """Entries of a trace. Each method adds one and gives the timeline back."""

    def __init__(self, base_us: int = 0) -> None:
        self.base_us = base_us
        self.entries: list[dict[str, Any]] = []
        self.correlation = 0

    def add(self, category: str, name: str, start: float, length: float, *, tid: Any = 1, **args: Any) -> Timeline:
        entry = {"ph": "X", "cat": category, "name": name, "pid": 9, "tid": tid, "ts": start, "dur": length}
        self.entries.append({**entry, "args": args})
        return self

    def call(self, start: float, length: float, name: str = CALL) -> Timeline:
        return self.add("user_annotation", name, start, length)

    def op(self, name: str, start: float, length: float, tid: int = 1) -> Timeline:
        return self.add("cpu_op", name, start, length, tid=tid)

    def api(self, name: str, start: float, length: float = 1, *, tid: int = 1, correlation: int = 0) -> Timeline:
        category = "cuda_driver" if name.startswith("cu") and not name.startswith("cuda") else "cuda_runtime"
        return self.add(category, name, start, length, tid=tid, correlation=correlation)

    def device(self, name: str, start: float, length: float, correlation: int, *, stream: int = 7) -> Timeline:
        category = {"Memset": "gpu_memset", "Memcpy": "gpu_memcpy"}.get(name.split(maxsplit=1)[0], "kernel")
        return self.add(category, name, start, length, tid=stream, stream=stream, correlation=correlation)

    def launch(
        self, name: str, at: float, runs: float, length: float, *, api: str = "cudaLaunchKernel", tid: int = 1,
        stream: int = 7,
    ) -> Timeline:  # fmt: skip
        """An API call at `at` whose device work runs at `runs`."""
        self.correlation += 1
        self.api(api, at, tid=tid, correlation=self.correlation)
        return self.device(name, runs, length, self.correlation, stream=stream)

    def mlp(self, start: float, kernels: Any = EAGER, name: str = CALL) -> Timeline:
        """A call of 100 µs: every 10 µs an operator that launches one kernel of 5 µs, 50 µs later."""
        self.call(start, 100, name)
        for index, (kernel, operator) in enumerate(kernels):
            at = start + 10 * index + 2
            self.op(operator, at, 8)
            self.launch(kernel, at + 3, at + 50, 5)
        return self

    def text(self) -> str:
        entries = [dict(entry) for entry in self.entries]
        parts = []
        for entry in entries:
            times = {key: entry.pop(key) for key in ("ts", "dur")}
            written = f'"ts": {_decimal(times["ts"], self.base_us)}, "dur": {_decimal(times["dur"], 0)}'
            parts.append(json.dumps(entry)[:-1] + ", " + written + "}")
        return '{"schemaVersion": 1, "traceEvents": [' + ",\n".join(parts) + "]}"

    def write(self, folder: Path, name: str = "t.json") -> Path:
        path = folder / name
        data = self.text().encode()
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return path


def _decimal(value: float, base: int) -> str:
    """An integer stays one; a fraction gets three decimals, as torch prints it."""
    if isinstance(value, int):
        return str(value + base)
    nanoseconds = round(value * 1000) + base * 1000
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03d}"
