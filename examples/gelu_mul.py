"""A Triton kernel for GeGLU's activation, gelu(gate)·up, to start from.

    mlpfusion validate examples/gelu_mul.py:gelu_mul

says whether it is right. Change something (a constant, the mask) and run it again: the verdict names what is wrong.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def tanh(x):
    # libdevice.tanh is not there in Triton's interpreter, which runs this without a GPU.
    return 2 * tl.sigmoid(2 * x) - 1


@triton.jit
def gelu_mul_kernel(gate, up, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n  # the last block may reach beyond the end
    # fp32 from here on: 16 bits inside would cost digits that the result has.
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    u = tl.load(up + offsets, mask=mask).to(tl.float32)
    gelu = 0.5 * g * (1 + tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)))
    tl.store(out + offsets, (gelu * u).to(out.dtype.element_ty), mask=mask)  # the only rounding to 16 bits


@triton.jit
def gelu_mul_backward_kernel(dy, gate, up, dgate, dup, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    v = tl.load(dy + offsets, mask=mask).to(tl.float32)
    g = tl.load(gate + offsets, mask=mask).to(tl.float32)
    u = tl.load(up + offsets, mask=mask).to(tl.float32)
    t = tanh(0.7978845608028654 * (g + 0.044715 * g * g * g))
    slope = 0.7978845608028654 * (1 + 3 * 0.044715 * g * g)
    derivative = 0.5 * (1 + t) + 0.5 * g * (1 - t * t) * slope
    tl.store(dgate + offsets, (v * u * derivative).to(dgate.dtype.element_ty), mask=mask)
    tl.store(dup + offsets, (v * 0.5 * g * (1 + t)).to(dup.dtype.element_ty), mask=mask)


BLOCK = 1024


class GeluMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        if gate.shape != up.shape or gate.dtype != up.dtype:
            raise ValueError(f"gate and up differ: {gate.shape} {gate.dtype} and {up.shape} {up.dtype}")
        if gate.dtype not in (torch.bfloat16, torch.float16, torch.float32):
            raise TypeError(f"gate and up are {gate.dtype}, and the kernel computes in float32")
        gate, up = gate.contiguous(), up.contiguous()  # the kernel knows no strides
        out = torch.empty_like(gate)
        n = out.numel()
        if n:
            gelu_mul_kernel[(triton.cdiv(n, BLOCK),)](gate, up, out, n, BLOCK=BLOCK)
        ctx.save_for_backward(gate, up)
        return out

    @staticmethod
    def backward(ctx, dy):
        if torch.is_grad_enabled():  # a gradient of this gradient would be silently wrong
            raise NotImplementedError("gelu_mul has no double backward")
        gate, up = ctx.saved_tensors
        dy = dy.contiguous()
        dgate, dup = torch.empty_like(gate), torch.empty_like(up)
        n = gate.numel()
        if n:
            gelu_mul_backward_kernel[(triton.cdiv(n, BLOCK),)](dy, gate, up, dgate, dup, n, BLOCK=BLOCK)
        return dgate, dup


def gelu_mul(gate, up):
    """gelu(gate)·up, tanh form: gate, up [...] of one shape and dtype -> [...]."""
    return GeluMul.apply(gate, up)
