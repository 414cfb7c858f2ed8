"""Makes profiles whose figures are known, for tests of what is shown of them."""

from __future__ import annotations

import statistics
from typing import Any

import msgspec

from mlpfusion.device import Device
from mlpfusion.records.clocks import Bound, Clock, Clocks, Ratio
from mlpfusion.records.environment import Environment, Process
from mlpfusion.records.profile import (
    SCHEMA,
    Accuracy,
    Decoded,
    Kernel,
    Launches,
    Memory,
    PreOps,
    Profile,
    Row,
    Setup,
    Traffic,
)
from mlpfusion.spec import MLPSpec, Workload

GELU = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
    "at::native::GeluType)::{lambda()#1}, std::array<char*, 2ul> >(int, float)"
)


def clock(median: float, **changes: object) -> Clock:
    fields = {"n": 60, "median": median, "p20": median - 0.7, "p80": median + 0.8, "l2": "cold", **changes}
    return Clock(**fields)


def ratio(median: float) -> Ratio:
    return Ratio(baseline="eager", median=median, low=median - 0.003, high=median + 0.003, confidence=0.95, n=60)


def kernel(name: str, role: str, time_us: float) -> Kernel:
    decoded = Decoded(library="cublas", kind="gemm", arch="sm90", tile="128x256", stages=4)
    return Kernel(name=name, role=role, decoded=decoded, time_us=time_us, p20_us=time_us - 0.3, p80_us=time_us + 0.4)


def launches(kernels: int) -> Launches:
    apis = {"cuLaunchKernelEx": 3, "cudaLaunchKernel": kernels - 3}
    return Launches(kernels=kernels, memcpys=0, memsets=2, runtime_launches=apis, occupancy_queries=0, syncs=0)


EAGER = Row(
    backend="eager",
    status="ok",
    tokens=8192,
    setup=Setup(bind_s=0.0004, first_call_s=0.25),
    accuracy=Accuracy(
        max_error=0.01, rms_error=0.001, eager_max_error=0.01, eager_rms_error=0.001, rows=256, elements=65536
    ),
    kernels=(
        kernel("nvjet_tst_128x256", "gate_gemm", 61.8),
        kernel(GELU, "activation", 41.05),
        *(kernel(f"kernel_{number}", "other", 20.0) for number in range(3)),
    ),
    launches=launches(5),
    pre_ops=PreOps(n=20, time_to_first_launch=31.5, dispatch=31.5),
    clocks=Clocks(
        event_us=clock(242.61),
        kernel_us=clock(238.0, n=20),
        reasons={"graph_us": "capture is off", "wall_us": "not raced"},
    ),
    bound=Bound(by="gpu", margin=2.314, host_us=104.8, device_us=242.6, n=60, host_p20_us=103.9, host_p80_us=106.1),
    traffic=Traffic(minimum_bytes=39_000_000, derived_bytes=455_000_000),
    memory=Memory(peak_bytes=151_000_000, reasons={"saved_for_backward_bytes": "inference keeps nothing"}),
)
COMPILE = msgspec.structs.replace(
    EAGER,
    backend="compile",
    accuracy=Accuracy(
        max_error=0.0098, rms_error=0.0011, eager_max_error=0.01, eager_rms_error=0.001, rows=256, elements=65536
    ),
    kernels=(
        kernel("triton_poi_fused__unsafe_view_gelu_mul_0", "act_mul", 41.9),
        *(kernel(f"kernel_{number}", "other", 20.0) for number in range(3)),
    ),
    launches=launches(4),
    pre_ops=PreOps(n=20, time_to_first_launch=80.5, dynamo_cache_lookup=22.5, compiled_graph_entry=9.1),
    clocks=Clocks(
        event_us=clock(228.83, n=58, dropped=2, ratio_to_eager=ratio(0.943)), reasons={"graph_us": "capture is off"}
    ),
    notes=("asked for nothing special",),
)
LIGER = Row(backend="liger", status="unavailable", reason="no GPU | and no driver")
HUB = Row(backend="hub", status="failed", reason="numerically wrong: 41 times eager's error")
TRITON = Row(
    backend="triton",
    status="ok",
    emulated=True,
    tokens=8,
    reason="emulated: 8 tokens, no times",
    clocks=Clocks(reasons={"wall_us": "emulated"}),
)


def environment(**known: Any) -> Environment:
    """One of which no more is known than every one has."""
    absent = dict.fromkeys(("triton", "liger_kernel", "kernels", "cuda", "driver", "sm_clock_mhz", "memory_clock_mhz"))
    always = {"python": "3.12.3", "platform": "Linux", "torch": "2.11.0", "float32_matmul_precision": "highest"}
    return Environment(**{**absent, **always, **known})


def profile(*rows: Row, **changes: object) -> Profile:
    """Of a large MLP on an H100; without rows, with one of each status."""
    made = Profile(
        schema=SCHEMA,
        kind="profile",
        mlpfusion="0.1.0",
        created="2026-01-02T03:04:05+00:00",
        workload=Workload(spec=MLPSpec(hidden_size=768, intermediate_size=3072), batch=64, seq=128),
        device=Device(
            kind="cuda",
            name="NVIDIA H100 80GB HBM3",
            runtime="cuda",
            capability=(9, 0),
            multiprocessors=132,
            memory_bytes=80 * 2**30,
            l2_bytes=50 * 2**20,
        ),
        environment=environment(
            triton="3.6.0",
            liger_kernel="0.8.5",
            kernels="0.17.2",
            cuda="12.8",
            driver="570.1",
            sm_clock_mhz=1980,
            memory_clock_mhz=2619,
            flags={"OMP_NUM_THREADS": "1"},
        ),
        rows=rows or (EAGER, COMPILE, LIGER, HUB, TRITON),
        complete=True,
        processes=(Process(started="2026-01-02T03:04:05+00:00", neighbours=0.04),),
    )
    return msgspec.structs.replace(made, **changes)


def on_a_cpu(*rows: Row, **changes: object) -> Profile:
    """Of a small MLP on a CPU."""
    here: dict[str, object] = {
        "workload": Workload(spec=MLPSpec(hidden_size=8, intermediate_size=16), batch=1, seq=4),
        "device": Device(kind="cpu", name="a CPU"),
        "environment": environment(),
        "rows": rows,
    }
    return profile(**{**here, **changes})


def timed(name: str, *values: float, clock: str = "event_us", load: float | None = None, **changes: Any) -> Row:
    """A row whose rounds took these times over and over; eager is meant to take 100 in all rounds."""
    samples = tuple(values[place % len(values)] for place in range(60))
    ratios = sorted(value / 100 for value in samples)
    found = Clock(
        n=60,
        median=statistics.median(samples),
        p20=sorted(samples)[12],
        p80=sorted(samples)[48],
        l2="cold",
        rounds=(samples,),
        ratio_to_eager=Ratio(
            baseline="eager", median=ratios[30], low=ratios[22], high=ratios[37], confidence=0.95, n=60
        ),
    )
    clocks = Clocks(**{clock: found}, neighbours=load)
    return msgspec.structs.replace(EAGER, backend=name, clocks=clocks, **changes)
