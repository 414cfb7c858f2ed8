"""Backwards with an autotuner of their own."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable


@triton.jit
def _backward_kernel(dy, gate, up, dgate, dup, n, TAIL: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n if TAIL else offsets < n // BLOCK * BLOCK
    v = tl.load(dy + offsets, mask=mask).to(tl.float32)
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    u = tl.load(up + offsets, mask=mask).to(tl.float32)
    s = tl.sigmoid(g * (1.5957691216057308 + 0.07135481627260025 * g * g))
    slope = s + g * s * (1 - s) * (1.5957691216057308 + 0.21406444881780075 * g * g)
    tl.store(dgate + offsets, (v * u * slope).to(dgate.dtype.element_ty), mask=mask)
    tl.store(dup + offsets, (v * g * s).to(dup.dtype.element_ty), mask=mask)


def _tuned(*tails):
    configs = [triton.Config({"BLOCK": 2048 >> place, "TAIL": tail}) for place, tail in enumerate(tails)]
    return triton.autotune(configs=configs, key=["n"])(_backward_kernel)


def _backward_by(kernel, dy, gate, up):
    dy, gate, up = (each.contiguous() for each in (dy, gate, up))
    dgate, dup = torch.empty_like(gate), torch.empty_like(up)
    n = gate.numel()
    if n:
        kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](dy, gate, up, dgate, dup, n)
    return dgate, dup


_TUNED, _TUNED_WRONG = _tuned(True, True), _tuned(True, False)


class _Tuned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up, kernel):
        ctx.save_for_backward(gate, up)
        ctx.kernel = kernel
        return F.gelu(gate, approximate="tanh") * up

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return *_backward_by(ctx.kernel, dy, *ctx.saved_tensors), None


def tuned_backward(gate, up):
    """Right, in each of two configurations."""
    if gate.shape != up.shape:
        raise ValueError("gate and up must have one shape")
    return _Tuned.apply(gate, up, _TUNED)


def one_backward_configuration_wrong(gate, up):
    return _Tuned.apply(gate, up, _TUNED_WRONG)
