"""Small traces of the ranks of a job: in each step a matrix product and an all-reduce behind it, several times."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

GEMM = "ampere_sgemm_128x64_tn"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def rank_trace(
    all_reduces: Sequence[float],
    *,
    product: float = 100.0,
    steps: int = 3,
    first_step: int = 5,
    job: dict[str, Any] | None = None,
    gpu: str | None = "NVIDIA H200",
    collective: str = ALL_REDUCE,
    base: float = 1000.0,
) -> dict[str, Any]:
    """A trace of steps of 1000 µs; before each all-reduce, of the given µs, a product of `product` µs."""
    entries: list[dict[str, Any]] = []
    correlation = 0

    def add(category: str, name: str, at: float, lasts: float, pid: int, tid: int, **args: Any) -> None:
        entry = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": round(at, 3), "dur": lasts}
        entries.append({**entry, "args": args})

    for step in range(steps):
        start = base + 1000.0 * step
        add("user_annotation", f"ProfilerStep#{first_step + step}", start, 950.0, 9, 9)
        at = start + 20
        for index, lasts in enumerate(all_reduces):
            for name, runs, length, stream in ((GEMM, at, product, 7), (collective, at + product, lasts, 20)):
                correlation += 1
                launched = start + 2 + 4 * index
                add("cuda_runtime", "cudaLaunchKernel", launched, 1.0, 9, 9, correlation=correlation)
                add("kernel", name, runs, length, 0, stream, correlation=correlation, stream=stream, device=0)
            at += product + lasts
    document: dict[str, Any] = {"schemaVersion": 1}
    if gpu is not None:
        document["deviceProperties"] = [{"id": 0, "name": gpu}]
    if job is not None:
        document["distributedInfo"] = job
    return {**document, "traceEvents": entries}


def place_in(rank: int, world: int, backend: str = "nccl") -> dict[str, Any]:
    return {"backend": backend, "rank": rank, "world_size": world, "pg_count": 1}


def write_trace(path: Path, document: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps(document).encode()
    path.write_bytes(gzip.compress(data, compresslevel=1) if path.name.endswith(".gz") else data)
    return path


def write_job(folder: Path, ranks: Sequence[Sequence[float]], *, name: str = "rank_{}.json", **options: Any) -> Path:
    """A file for each rank, whose all-reduces last as given."""
    for rank, all_reduces in enumerate(ranks):
        write_trace(folder / name.format(rank), rank_trace(all_reduces, job=place_in(rank, len(ranks)), **options))
    return folder
