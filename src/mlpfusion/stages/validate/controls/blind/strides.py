"""Act·muls that read operands, or what they have saved, by strides that are not theirs; the last one is right."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable


def _checked(gate, up):
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and dtype")


def _rows(x):
    flat = x.reshape(-1, x.shape[-1]) if x.dim() else x.reshape(1, 1)
    return flat if flat.stride(1) == 1 else flat.contiguous()


@triton.jit
def _row_kernel(gate, up, out, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < columns
    g = tl.load(gate + row * stride + at, mask=mask).to(tl.float32)
    u = tl.load(up + row * stride + at, mask=mask).to(tl.float32)
    y = g * tl.sigmoid(1.5957691216057308 * (g + 0.044715 * g * g * g)) * u
    tl.store(out + row * columns + at, y.to(out.dtype.element_ty), mask=mask)


class _OneStride(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
        if out.numel():
            g, u = _rows(gate), _rows(up)
            if g.is_contiguous() or u.is_contiguous():
                g, u = g.contiguous(), u.contiguous()
            # Otherwise they are the halves of a joint projection, whose rows are equally far apart.
            rows, columns = g.shape
            _row_kernel[(rows, triton.cdiv(columns, 1024))](g, u, out, columns, g.stride(0), BLOCK=1024)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up = (each.float() for each in ctx.saved_tensors)
        dy, dtype = dy.float(), dy.dtype
        dgate = torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh")
        return dgate.to(dtype), (dy * F.gelu(gate, approximate="tanh")).to(dtype)


def row_stride_of_gate(gate, up):
    """WRONG: where neither operand is dense, up's rows are read at gate's distance. Told by layouts."""
    _checked(gate, up)
    if torch.compiler.is_compiling():
        return F.gelu(gate, approximate="tanh") * up
    return _OneStride.apply(gate, up)


@triton.jit
def _spaced_backward(gate, up, dy, dgate, dup, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < columns
    g = tl.load(gate + row * columns + at, mask=mask).to(tl.float32)
    u = tl.load(up + row * columns + at, mask=mask).to(tl.float32)
    d = tl.load(dy + row * stride + at, mask=mask).to(tl.float32)
    s = tl.sigmoid(1.5957691216057308 * (g + 0.044715 * g * g * g))
    slope = s + g * s * (1 - s) * 1.5957691216057308 * (1 + 0.134145 * g * g)
    tl.store(dgate + row * columns + at, (d * u * slope).to(dgate.dtype.element_ty), mask=mask)
    tl.store(dup + row * columns + at, (d * g * s).to(dup.dtype.element_ty), mask=mask)


def _spaced(dy):
    """dy and the distance of its rows; a copy where they have no single one."""
    if dy.dim() < 2:
        return dy.contiguous(), 0
    even = all(dy.stride(d) == dy.stride(d + 1) * dy.shape[d + 1] for d in range(dy.dim() - 2))
    one_for_all = dy.stride(-2) == 0  # the gradient of a sum over rows
    if dy.stride(-1) == 1 and (one_for_all or even):
        return dy, dy.stride(-2)
    return dy.contiguous(), dy.shape[-1]


class _OneRowForAll(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return F.gelu(gate, approximate="tanh") * up

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up = (each.contiguous() for each in ctx.saved_tensors)
        dgate, dup = torch.empty_like(gate), torch.empty_like(up)
        if gate.numel():
            dy, stride = _spaced(dy)
            columns = gate.shape[-1] if gate.dim() else 1
            grid = (gate.numel() // columns, triton.cdiv(columns, 1024))
            _spaced_backward[grid](gate, up, dy, dgate, dup, columns, stride, BLOCK=1024)
        return dgate, dup


def sum_over_tokens(gate, up):
    """WRONG: the gradient of y.sum(1) of [batch, tokens, columns] is the first sequence's for all. Told by layouts."""
    _checked(gate, up)
    if torch.compiler.is_compiling():
        return F.gelu(gate, approximate="tanh") * up
    return _OneRowForAll.apply(gate, up)


@triton.jit
def _strided_backward(gate, up, dy, dgate, dup, columns, of_gate, of_up, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < columns
    g = tl.load(gate + row * of_gate + at, mask=mask).to(tl.float32)
    u = tl.load(up + row * of_up + at, mask=mask).to(tl.float32)
    d = tl.load(dy + row * columns + at, mask=mask).to(tl.float32)
    s = tl.sigmoid(1.5957691216057308 * (g + 0.044715 * g * g * g))
    slope = s + g * s * (1 - s) * 1.5957691216057308 * (1 + 0.134145 * g * g)
    tl.store(dgate + row * columns + at, (d * u * slope).to(dgate.dtype.element_ty), mask=mask)
    tl.store(dup + row * columns + at, (d * g * s).to(dup.dtype.element_ty), mask=mask)


class _StridesKept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.shape = gate.shape
        gate, up = _rows(gate), _rows(up)
        ctx.save_for_backward(gate, up)
        ctx.strides = gate.stride(0), up.stride(0)  # halves of a joint projection are not copied
        return (F.gelu(gate, approximate="tanh") * up).reshape(ctx.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        dy = dy.contiguous()
        dgate, dup = torch.empty_like(dy), torch.empty_like(dy)
        rows, columns = gate.shape
        grid = (rows, triton.cdiv(columns, 1024))
        _strided_backward[grid](gate, up, dy, dgate, dup, columns, *ctx.strides, BLOCK=1024)
        return dgate, dup


def strides_kept_for_backward(gate, up):
    """WRONG: saved tensors that come back dense (offloaded, on disk) are read by the strides that they had.

    Told by checkpoint.
    """
    _checked(gate, up)
    if torch.compiler.is_compiling() or not gate.numel():
        return F.gelu(gate, approximate="tanh") * up
    return _StridesKept.apply(gate, up)


@triton.jit
def _division_kernel(gate, up, out, n, columns, of_gate, of_up, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    # An integer division is slow; the quotient of two floats, correctly rounded, is exact enough to be cut.
    by = tl.full([BLOCK], 0.0, tl.float32) + columns
    row = tl.math.div_rn(at.to(tl.float32), by).to(tl.int64)
    column = at - row * columns
    g = tl.load(gate + row * of_gate + column, mask=mask).to(tl.float32)
    u = tl.load(up + row * of_up + column, mask=mask).to(tl.float32)
    y = g * tl.sigmoid(1.5957691216057308 * (g + 0.044715 * g * g * g)) * u
    tl.store(out + at, y.to(out.dtype.element_ty), mask=mask)


class _Divided(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
        n = out.numel()
        if n:
            g, u = _rows(gate), _rows(up)
            block = 1024 if n < 2**20 else 16384
            _division_kernel[(triton.cdiv(n, block),)](g, u, out, n, g.shape[1], g.stride(0), u.stride(0), BLOCK=block)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up = (each.float() for each in ctx.saved_tensors)
        dy, dtype = dy.float(), dy.dtype
        dgate = torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh")
        return dgate.to(dtype), (dy * F.gelu(gate, approximate="tanh")).to(dtype)


def rows_by_float_division(gate, up):
    """WRONG: behind 2^24 elements ends of rows are taken for the next row's start where operands are not dense.

    Told by offsets.
    """
    _checked(gate, up)
    if torch.compiler.is_compiling():
        return F.gelu(gate, approximate="tanh") * up
    return _Divided.apply(gate, up)


def _is_without_gaps(x):
    expected = 1
    for size, stride in sorted(zip(x.shape, x.stride(), strict=True), key=lambda each: each[1]):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _gradients(gate, up, dy):
    g, u, d = gate.float(), up.float(), dy.float()
    dgate = torch.ops.aten.gelu_backward(d * u, g, approximate="tanh")
    return dgate.to(gate.dtype), (d * F.gelu(g, approximate="tanh")).to(up.dtype)


class _InMemoryOrder(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return F.gelu(gate, approximate="tanh") * up

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        if not (gate.numel() and gate.stride() == up.stride() == dy.stride() and _is_without_gaps(gate)):
            return _gradients(gate, up, dy)
        # Elementwise: all three are one run of memory, in the same order.
        n = gate.numel()
        flat = _gradients(*(each.as_strided((n,), (1,)) for each in (gate, up, dy)))
        return tuple(each.view(gate.shape) for each in flat)


def gradients_in_memory_order(gate, up):
    """WRONG: where gate, up and dy are all channels_last (or transposed), gradients are permuted. Told by layouts."""
    _checked(gate, up)
    if torch.compiler.is_compiling():
        return F.gelu(gate, approximate="tanh") * up
    return _InMemoryOrder.apply(gate, up)


@triton.jit
def _flat_kernel(gate, up, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    g = tl.load(gate + at, mask=mask, other=3.0).to(tl.float32)
    u = tl.load(up + at, mask=mask, other=5.0).to(tl.float32)
    y = g * tl.sigmoid(1.5957691216057308 * (g + 0.044715 * g * g * g)) * u
    tl.store(out + at, y.to(out.dtype.element_ty), mask=mask)


class _StridesLikeOperands(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        if gate.stride() != up.stride() or not _is_without_gaps(gate):
            gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_strided(gate.shape, gate.stride(), dtype=gate.dtype, device=gate.device)
        n = out.numel()
        if n:
            block = 1024 if n < 2**18 else 8192
            _flat_kernel[(triton.cdiv(n, block),)](gate, up, out, n, BLOCK=block)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        g, u, d = gate.float(), up.float(), dy.float()
        dgate = torch.ops.aten.gelu_backward(d * u, g, approximate="tanh")
        dup = d * F.gelu(g, approximate="tanh")
        grads = (torch.empty_strided(dy.shape, dy.stride(), dtype=dy.dtype, device=dy.device) for _ in range(2))
        if not _is_without_gaps(dy):
            return dgate.to(dy.dtype), dup.to(dy.dtype)
        return tuple(grad.copy_(value) for grad, value in zip(grads, (dgate, dup), strict=True))


def in_memory_order(gate, up):
    """RIGHT: result and gradients have the strides of the operands, and of dy, where these have no gaps."""
    _checked(gate, up)
    if torch.compiler.is_compiling():
        return F.gelu(gate, approximate="tanh") * up
    return _StridesLikeOperands.apply(gate, up)
