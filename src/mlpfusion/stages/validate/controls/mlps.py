"""Whole MLPs with one thing wrong."""

import torch
import torch.nn.functional as F


def _mlp(x, wg, wu, wd, act=lambda g: F.gelu(g, approximate="tanh")):
    return F.linear(act(F.linear(x, wg)) * F.linear(x, wu), wd)


def erf_inside(x, wg, wu, wd):
    return _mlp(x, wg, wu, wd, F.gelu)


def weights_overwritten(x, wg, wu, wd):
    y = _mlp(x, wg, wu, wd)
    with torch.no_grad():
        wd.mul_(2)
    return y


def _to_tf32(tensor):
    """The value with 10 bits after the point, as a tensor core takes it."""
    if tensor.dtype is not torch.float32:
        return tensor
    bits = tensor.detach().contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def tf32_products(x, wg, wu, wd):
    if x.dtype is not torch.float32:
        raise TypeError("float32 only")
    x, wg, wu, wd = map(_to_tf32, (x, wg, wu, wd))
    hidden = F.gelu(F.linear(x, wg), approximate="tanh") * F.linear(x, wu)
    return F.linear(_to_tf32(hidden), wd)


class _GradientScaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight):
        return weight.clone()

    @staticmethod
    def backward(ctx, dw):
        return dw * 1.1


def weight_gradient_wrong(x, wg, wu, wd):
    return _mlp(x, wg, wu, _GradientScaled.apply(wd))


def input_gradient_halved(x, wg, wu, wd):
    """dx reaches x through gate alone."""
    return F.linear(F.gelu(F.linear(x, wg), approximate="tanh") * F.linear(x.detach(), wu), wd)


def dtype_kept_under_autocast(x, wg, wu, wd):
    return _mlp(x, wg, wu, wd).to(x.dtype)


def rows_left_out(x, wg, wu, wd):
    """The rows behind the last whole tile of 16 are not written."""
    y = torch.empty_like(x)
    rows = x.reshape(-1, x.shape[-1])
    whole = rows.shape[0] // 16 * 16
    y.view(rows.shape)[:whole] = _mlp(rows[:whole], wg, wu, wd)
    return y


def weights_taken_for_dense(x, wg, wu, wd):
    def read(w):
        return w if w.is_contiguous() else torch.as_strided(w, (w.numel(),), (1,)).view(w.shape)

    return _mlp(x, *map(read, (wg, wu, wd)))


def columns_left_out(x, wg, wu, wd):
    """The intermediate columns behind the last whole tile of 64 are not summed."""
    h = wg.shape[0] // 64 * 64
    return _mlp(x, wg[:h], wu[:h], wd[:, :h])


def square_exchanged(x, wg, wu, wd):
    """A square weight is read by columns."""
    return _mlp(x, wg.T if wg.shape[0] == wg.shape[1] else wg, wu, wd)


def one_tile_of_products(x, wg, wu, wd):
    """The loop over the products runs once."""
    return _mlp(x[..., :256], wg[:, :256], wu[:, :256], wd)
