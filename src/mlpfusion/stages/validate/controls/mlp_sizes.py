"""Whole MLPs that are wrong for some numbers of rows, sizes or values, or where some weights are frozen."""

import torch
import torch.nn.functional as F


def _act(gate):
    return F.gelu(gate, approximate="tanh")


def _mlp(x, wg, wu, wd):
    return F.linear(_act(F.linear(x, wg)) * F.linear(x, wu), wd)


def _rows(x):
    return x.numel() // max(x.shape[-1], 1)


def few_rows_short(x, wg, wu, wd):
    """Up to 16 rows leave the last 8 intermediate columns out."""
    return _mlp(x, wg[:-8], wu[:-8], wd[:, :-8]) if 1 <= _rows(x) <= 16 else _mlp(x, wg, wu, wd)


def one_row_short(x, wg, wu, wd):
    """One row is computed with half of the intermediate columns."""
    h = wg.shape[0] // (2 if _rows(x) == 1 and x.dim() > 1 else 1)
    return _mlp(x, wg[:h], wu[:h], wd[:, :h])


def rows_behind_2048(x, wg, wu, wd):
    y = _mlp(x, wg, wu, wd)
    if _rows(x) > 2048:
        y = y.clone()
        y.view(-1, y.shape[-1])[2048:] = 0
    return y


def hidden_behind_512(x, wg, wu, wd):
    return _mlp(x[..., :512], wg[:, :512], wu[:, :512], wd)


def hidden_behind_4096(x, wg, wu, wd):
    return _mlp(x[..., :4096], wg[:, :4096], wu[:, :4096], wd)


def intermediate_behind_6144(x, wg, wu, wd):
    return _mlp(x, wg[:6144], wu[:6144], wd[:, :6144])


def hidden_tail_of_multiples_of_4(x, wg, wu, wd):
    d = x.shape[-1] - (4 if x.shape[-1] % 8 == 4 else 0)
    return _mlp(x[..., :d], wg[:, :d], wu[:, :d], wd)


def intermediate_no_power_of_two(x, wg, wu, wd):
    h = wg.shape[0]
    h = 1 << h.bit_length() - 1 if h % 32 == 0 else h
    return _mlp(x, wg[:h], wu[:h], wd[:, :h])


def up_clamped_to_7(x, wg, wu, wd):
    return F.linear(_act(F.linear(x, wg)) * F.linear(x, wu).clamp(-7, 7), wd)


def up_clamped_to_100(x, wg, wu, wd):
    return F.linear(_act(F.linear(x, wg)) * F.linear(x, wu).clamp(-100, 100), wd)


def gate_clamped_to_30(x, wg, wu, wd):
    return F.linear(_act(F.linear(x, wg).clamp(max=30)) * F.linear(x, wu), wd)


def _summed_in_16_bits(x, w):
    y = x.new_zeros((*x.shape[:-1], w.shape[0]))
    for start in range(0, w.shape[1], 32):
        y = y + F.linear(x[..., start : start + 32], w[:, start : start + 32])
    return y


def gate_summed_in_16_bits(x, wg, wu, wd):
    return F.linear(_act(_summed_in_16_bits(x, wg)) * F.linear(x, wu), wd)


def up_summed_in_16_bits(x, wg, wu, wd):
    return F.linear(_act(F.linear(x, wg)) * _summed_in_16_bits(x, wu), wd)


def nan_of_x_hidden(x, wg, wu, wd):
    return _mlp(x.nan_to_num(nan=0.0), wg, wu, wd)


def infinity_of_a_weight_hidden(x, wg, wu, wd):
    return _mlp(x, wg, wu, torch.where(wd.isinf(), 0, wd))


def nan_in_every_row(x, wg, wu, wd):
    """A row with nan spoils the others: a padded product adds 0 times each."""
    return _mlp(x, wg, wu, wd) + 0 * x.sum()


class _Chosen(torch.autograd.Function):
    @staticmethod
    def forward(ctx, change, x, wg, wu, wd):
        ctx.save_for_backward(x, wg, wu, wd)
        ctx.change = change
        return _mlp(x, wg, wu, wd)

    @staticmethod
    def backward(ctx, dy):
        if torch.is_grad_enabled():
            raise NotImplementedError("there is no double backward")
        given = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
        with torch.enable_grad():
            y = _mlp(*given)
        needed = ctx.needs_input_grad[1:]
        return None, *(ctx.change(needed, each, grad) for each, grad in enumerate(torch.autograd.grad(y, given, dy)))


def right_backward(x, wg, wu, wd):
    """A backward of its own that computes the forward again."""
    return _Chosen.apply(lambda needed, each, grad: grad, x, wg, wu, wd)


def gate_halved_where_down_is_frozen(x, wg, wu, wd):
    return _Chosen.apply(lambda needed, each, grad: grad * 0.5 if each == 1 and not needed[3] else grad, x, wg, wu, wd)


def up_doubled_where_x_and_down_are_frozen(x, wg, wu, wd):
    def change(needed, each, grad):
        return grad * 2 if each == 2 and not needed[0] and not needed[3] else grad

    return _Chosen.apply(change, x, wg, wu, wd)


def x_halved_where_gate_and_up_are_frozen(x, wg, wu, wd):
    def change(needed, each, grad):
        return grad * 0.5 if each == 0 and not needed[1] and not needed[2] else grad

    return _Chosen.apply(change, x, wg, wu, wd)


class _Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y.view_as(y)

    @staticmethod
    def backward(ctx, dy):
        return dy.clamp(-256, 256)


def dy_clipped(x, wg, wu, wd):
    return _Clipped.apply(_mlp(x, wg, wu, wd))
