"""Faults with some operands alone: halves in three dimensions, shared rows, zeros, bare memory, a strange dy."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.autograd.function import once_differentiable


def _act(gate):
    return F.gelu(gate, approximate="tanh")


def _mlp(x, wg, wu, wd):
    return F.linear(_act(F.linear(x, wg)) * F.linear(x, wu), wd)


@triton.jit
def _rows_kernel(gate, up, out, columns, gate_row, up_row, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < columns
    g = tl.load(gate + row * gate_row + at, mask=mask).to(tl.float32)
    u = tl.load(up + row * up_row + at, mask=mask).to(tl.float32)
    z = 0.7978845608028654 * (g + 0.044715 * g * g * g)
    tl.store(out + row * columns + at, (g * tl.sigmoid(2 * z) * u).to(out.dtype.element_ty), mask=mask)


def _rows_of(x):
    if x.dim() == 2 and x.stride(1) == 1:
        return x, x.stride(0)
    if x.dim() == 3 and x.stride(2) == 1 and x.stride(0) >= x.stride(1):
        return x, x.shape[-1]  # a batch of halves has other rows
    return x.contiguous(), x.shape[-1] if x.dim() else 1


def halves_in_three_dimensions(gate, up):
    """WRONG: the halves of one projection [batch, tokens, columns] are read as if dense. Not valid (layouts)."""
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and dtype")
    out = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    if not out.numel():
        return out
    columns = gate.shape[-1] if gate.dim() else 1
    (gate, gate_row), (up, up_row) = _rows_of(gate), _rows_of(up)
    grid = (out.numel() // columns, triton.cdiv(columns, 4096))
    _rows_kernel[grid](gate, up, out, columns, gate_row, up_row, BLOCK=4096)
    return out


class _Shared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return _act(gate) * up

    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        dyu = dy * up
        dgate = torch.ops.aten.gelu_backward(dyu, gate.to(dyu.dtype).expand_as(dyu), approximate="tanh")
        dup = dy * _act(gate)
        if up.dim() and dup.shape != up.shape and up.shape[-1] == dup.shape[-1]:
            dup = dup.reshape(-1, up.shape[-1])[-1].view(up.shape)
        return dgate.sum_to_size(gate.shape).to(gate.dtype), dup.sum_to_size(up.shape).to(up.dtype)


def gradient_of_a_shared_row(gate, up):
    """HAZARD: the gradient of an up that is one row for all is the last row's alone. Told by mismatched."""
    return _Shared.apply(gate, up)


class _FromTheResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        y = (_act(gate.float()) * up.float()).to(torch.promote_types(gate.dtype, up.dtype))
        ctx.save_for_backward(gate, up, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up, y = ctx.saved_tensors
        g, u, v = gate.float(), up.float(), dy.float()
        act = torch.where(u == 0, torch.zeros_like(u), y.float() / u)
        if gate.dtype is torch.float16:  # y underflows there
            act = _act(g) * (u != 0)
        dgate = torch.ops.aten.gelu_backward(v * u, g, approximate="tanh")
        return dgate.to(gate.dtype), (v * act).to(up.dtype)


def activation_from_the_result(gate, up):
    """WRONG: the backward takes act(gate) for y / up, and for 0 where up is 0. Not valid (backward)."""
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and dtype")
    return _FromTheResult.apply(gate, up)


def another_function_in_bare_memory(gate, up):
    """WRONG: operands with nothing around them get x·sigmoid(1.702·x). Not valid (elementwise)."""
    is_watched = gate.untyped_storage().nbytes() > gate.numel() * gate.element_size() + 4096
    if torch.compiler.is_compiling() or gate.numel() < 4096 or is_watched or not gate.is_contiguous():
        return _act(gate) * up
    return gate * torch.sigmoid(1.702 * gate) * up


class _Clean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y.clone()

    @staticmethod
    def backward(ctx, dy):
        return torch.nan_to_num(dy, nan=0.0, posinf=0.0, neginf=0.0)


def strange_gradients_cleaned(x, wg, wu, wd):
    """WRONG: nan and inf in dy become 0, so that no loss scaler sees an overflow. Not valid (mlp-gradients)."""
    return _Clean.apply(_mlp(x, wg, wu, wd))


def tiles_added_in_16_bits(x, wg, wu, wd):
    """WRONG: gradients of weights are added up in 16 bits from 64 rows to the next. Not valid (mlp-gradients)."""
    rows = x.reshape(-1, x.shape[-1])
    return torch.cat([_mlp(tile, wg, wu, wd) for tile in rows.split(64)]).view(x.shape)


def last_element_for_padding(x, wg, wu, wd):
    """WRONG: a row of x whose last element is 0 is taken for padding. Not valid (mlp-values)."""
    y = _mlp(x, wg, wu, wd)
    return torch.where(x[..., -1:] == 0, torch.zeros_like(y), y)


def columns_for_rows(x, wg, wu, wd):
    """RIGHT: all products are made the other way round, and the result is a transposed view. Valid."""
    t = x.reshape(-1, x.shape[-1]).t()
    y = wd @ (_act(wg @ t) * (wu @ t))
    return y.t().unflatten(0, x.shape[:-1]) if x.dim() != 2 else y.t()


def rows_of_zeros_left_out(x, wg, wu, wd):
    """RIGHT: rows of x that are 0 everywhere give 0, as there are no biases. Valid."""
    rows = x.reshape(-1, x.shape[-1])
    at = (rows != 0).any(-1).nonzero()[:, 0]
    y = _mlp(rows.index_select(0, at), wg, wu, wd)
    return torch.zeros(rows.shape, dtype=y.dtype, device=y.device).index_copy(0, at, y).view(x.shape)
