"""Kernels that are wrong only where a model is trained, or only in some sizes of it."""

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable


def _act_mul(gate, up):
    return F.gelu(gate, approximate="tanh") * up


def _gradients(gate, up, dy):
    g, u, v = gate.float(), up.float(), dy.float()
    s = torch.sigmoid(g * (1.5957691216057308 + 0.07135481627260025 * g * g))
    slope = s + g * s * (1 - s) * (1.5957691216057308 + 0.21406444881780075 * g * g)
    return (v * u * slope).to(gate.dtype), (v * g * s).to(up.dtype)


class _Trained(torch.autograd.Function):
    """Right; `change` may spoil the gradients."""

    @staticmethod
    def forward(ctx, gate, up, change):
        ctx.save_for_backward(gate, up)
        ctx.change = change
        return _act_mul(gate, up)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        return *ctx.change(dy, *_gradients(gate, up, dy)), None


def _doubled_in_three_dimensions(dy, dgate, dup):
    return (dgate * 2, dup) if dy.dim() == 3 else (dgate, dup)


def doubled_in_three_dimensions(gate, up):
    return _Trained.apply(gate, up, _doubled_in_three_dimensions)


def _later_rows_left_out(dy, dgate, dup):
    if dgate.dim() == 2:
        dgate[33:] = 0
    return dgate, dup


def later_rows_left_out(gate, up):
    return _Trained.apply(gate, up, _later_rows_left_out)


def _later_columns_left_out(dy, dgate, dup):
    if dgate.dim() == 2 and dgate.shape[0] > 1:
        dgate[:, 1024:] = 0
    return dgate, dup


def later_columns_left_out(gate, up):
    return _Trained.apply(gate, up, _later_columns_left_out)


def _fails_when_empty(dy, dgate, dup):
    if not dy.numel():
        raise ZeroDivisionError("no programs")
    return dgate, dup


def empty_backward_raises(gate, up):
    return _Trained.apply(gate, up, _fails_when_empty)


_RESULTS = {}


def _in_one_buffer(dy, dgate, dup):
    size = dgate.numel()
    if size < 1024:
        return dgate, dup
    memory = _RESULTS.setdefault(
        (dgate.dtype, dgate.device, size), torch.empty_like(torch.cat((dgate, dup)).reshape(-1))
    )
    memory[:size], memory[size:] = dgate.reshape(-1), dup.reshape(-1)
    return memory[:size].view(dgate.shape), memory[size:].view(dup.shape)


def one_buffer_for_gradients(gate, up):
    return _Trained.apply(gate, up, _in_one_buffer)


class _DenseGradient(torch.autograd.Function):
    """Takes rows of adjacent elements for rows without gaps."""

    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return _act_mul(gate, up)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        if dy.dim() == 2 and dy.stride(1) == 1 and dy.stride(0) > dy.shape[1]:
            dy = torch.as_strided(dy, dy.shape, (dy.shape[1], 1))
        return _gradients(gate, up, dy)


def gradient_taken_for_dense(gate, up):
    return _DenseGradient.apply(gate, up)


_KEPT = {}


class _OneBuffer(torch.autograd.Function):
    """Keeps act(gate) for the backward in one buffer for each shape."""

    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        ctx.key = (tuple(gate.shape), gate.dtype, gate.device)
        act = F.gelu(gate, approximate="tanh")
        _KEPT.setdefault(ctx.key, torch.empty_like(act, memory_format=torch.contiguous_format)).copy_(act)
        return act * up

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        return _gradients(gate, up, dy)[0], dy * _KEPT[ctx.key]


def one_buffer_for_the_backward(gate, up):
    return _OneBuffer.apply(gate, up)


def wide_when_trained(gate, up):
    y = _act_mul(gate, up)
    return y.float() if y.requires_grad else y


def _mlp(x, wg, wu, wd):
    return F.linear(_act_mul(F.linear(x, wg), F.linear(x, wu)), wd)


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w):
        return w.view_as(w)

    @staticmethod
    def backward(ctx, dw):
        return dw * 2


def doubled_for_a_first_layer(x, wg, wu, wd):
    """dWg is doubled where x needs no gradient, as that of a first layer does not."""
    return _mlp(x, wg if x.requires_grad else _Doubled.apply(wg), wu, wd)


def one_row_doubled(x, wg, wu, wd):
    return _mlp(x, wg, wu, wd) * (2 if x.dim() == 2 and x.shape[0] == 1 else 1)


def long_sums_in_16_bits(x, wg, wu, wd):
    """Adds up the down product in the dtype of x, 32 columns at a time."""
    h = _act_mul(F.linear(x, wg), F.linear(x, wu))
    y = x.new_zeros((*x.shape[:-1], wd.shape[0]))
    for start in range(0, wd.shape[1], 32):
        y = y + F.linear(h[..., start : start + 32], wd[:, start : start + 32])
    return y


def up_read_by_the_strides_of_gate(x, wg, wu, wd):
    return _mlp(x, wg, torch.as_strided(wu, wu.shape, wg.stride()), wd)
