"""Events of small traces as they are written, and sums over them by hand: times in µs, host 9, devices 0 and 1."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

HOST = 9
DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def event(category: str, name: str, start: float, length: float, *, pid: Any = HOST, tid: Any = 1, **args: Any) -> Any:
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": start, "dur": length, "args": args}


def step(number: int, start: float, length: float, **place: Any) -> Any:
    return event("user_annotation", f"ProfilerStep#{number}", start, length, **place)


def api(name: str, start: float, length: float, correlation: int = 0, **place: Any) -> Any:
    return event("cuda_runtime", name, start, length, correlation=correlation, **place)


def kernel(name: str, start: float, length: float, correlation: int, *, stream: int = 7, device: int = 0) -> Any:
    return event("kernel", name, start, length, pid=device, tid=stream, stream=stream, correlation=correlation)


def launched(
    name: str, at: float, runs: float, length: float, number: int, *, by: str = "cudaLaunchKernel"
) -> list[Any]:
    """A launch of 4 µs and its kernel."""
    return [api(by, at, 4, number), kernel(name, runs, length, number)]


def text(events: Iterable[Any], gpu: str = "NVIDIA H100 80GB HBM3") -> bytes:
    return json.dumps({"deviceProperties": [{"id": 0, "name": gpu}], "traceEvents": list(events)}).encode()


def instants(events: Iterable[Any], start: int, end: int, *, device: int = 0) -> set[int]:
    """The whole µs of [start, end) in which the device ran something: all times must be whole."""
    return {
        instant
        for one in events
        if one["cat"] in DEVICE_WORK and one["pid"] == device
        for instant in range(max(start, one["ts"]), min(end, one["ts"] + one["dur"]))
    }
