"""Right kernels behind what PyTorch offers around them: a triton_op, and a backward that is @once_differentiable."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable


@triton.jit
def kernel(gate, up, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    u = tl.load(up + offsets, mask=mask).to(tl.float32)
    y = g * tl.sigmoid(g * (1.5957691216057308 + 0.07135481627260025 * g * g)) * u
    tl.store(out + offsets, y.to(out.dtype.element_ty), mask=mask)


@torch.library.triton_op("mlpfusion_controls::geglu", mutates_args={})
def operator(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and dtype")
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    n = out.numel()
    if n:
        torch.library.wrap_triton(kernel)[(triton.cdiv(n, 2048),)](gate, up, out, n, BLOCK=2048)
    return out


def wrapped_operator(gate, up):
    return operator(gate, up)


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return F.gelu(gate, approximate="tanh") * up

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        return torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh"), dy * F.gelu(gate, approximate="tanh")


def differentiable_once(gate, up):
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and dtype")
    return _Once.apply(gate, up)
