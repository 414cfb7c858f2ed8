"""`triton`: what it needs."""

from __future__ import annotations

from mlpfusion.backends.triton import Triton
from mlpfusion.device import Device
from mlpfusion.spec import MLPSpec


def test_it_needs_a_gpu_or_the_interpreter_and_sm80_for_bfloat16():
    bf16, fp16 = (MLPSpec(hidden_size=16, intermediate_size=24, dtype=dtype) for dtype in ("bfloat16", "float16"))
    volta = Device(kind="cuda", name="Tesla V100", runtime="cuda", capability=(7, 0))
    assert "need a GPU" in Triton().unsupported(bf16, Device(kind="cpu", name="c"))
    assert Triton().unsupported(bf16, Device(kind="cpu", name="c", interpreted=True)) is None
    assert "bfloat16 kernels need compute capability 8.0" in Triton().unsupported(bf16, volta)
    assert Triton().unsupported(fp16, volta) is None
