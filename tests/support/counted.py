"""A card with counters, and one kernel's name as two demanglers spell it."""

from __future__ import annotations

from mlpfusion.device import Device

GPU = Device(kind="cuda", name="NVIDIA H200", runtime="cuda", capability=(9, 0), l2_bytes=60 * 2**20)
CPU = Device(kind="cpu", name="a CPU")
GELU = "void vectorized_elementwise_kernel<4, at::GeluCUDAKernelImpl(at::TensorIteratorBase &, at::GeluType)>(int, T2)"
TRACED = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::GeluCUDAKernelImpl>(int, x)"
)
