"""Whole MLPs: gradients of many rows and wide layers, a path for inference, decoding, a store; the last is right."""

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable


def _act(gate):
    return F.gelu(gate, approximate="tanh")


def _mlp(x, wg, wu, wd):
    return F.linear(_act(F.linear(x, wg)) * F.linear(x, wu), wd)


class _Fused(torch.autograd.Function):
    """A backward of its own in float32. `made` changes the result, `rows` and `columns` bound what it looks at."""

    @staticmethod
    def forward(ctx, x, wg, wu, wd, made, rows, columns):
        ctx.save_for_backward(x, wg, wu, wd)
        ctx.rows, ctx.columns = rows, columns
        return made(x, wg, wu, wd)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        saved = ctx.saved_tensors
        x, wg, wu, wd = (each.float() for each in saved)
        flat, dy_flat = x.reshape(-1, x.shape[-1]), dy.float().reshape(-1, dy.shape[-1])
        gate, up = flat @ wg.T, flat @ wu.T
        dh = dy_flat @ wd
        dgate = torch.ops.aten.gelu_backward(dh * up, gate, approximate="tanh")
        dup = dh * _act(gate)
        dx = dgate @ wg + dup @ wu
        if ctx.columns is not None:
            dx[:, ctx.columns :] = 0
        part = slice(ctx.rows)
        grads = (
            dx.view(x.shape),
            dgate[part].T @ flat[part],
            dup[part].T @ flat[part],
            dy_flat[part].T @ (_act(gate) * up)[part],
        )
        return (
            *(grad.to(dtype) for grad, dtype in zip(grads, (each.dtype for each in saved), strict=True)),
            None,
            None,
            None,
        )


def right_in_float32(x, wg, wu, wd):
    """RIGHT: its backward computes in float32, whatever the operands' dtypes are. Valid."""
    return _Fused.apply(x, wg, wu, wd, _mlp, None, None)


def weight_gradients_of_512_rows(x, wg, wu, wd):
    """WRONG: the weights' gradients are summed over the first 512 rows. Not valid (mlp-gradients)."""
    return _Fused.apply(x, wg, wu, wd, _mlp, 512, None)


def input_gradient_of_1024_columns(x, wg, wu, wd):
    """WRONG: dx is 0 behind the first 1024 columns. Not valid (mlp-gradients)."""
    return _Fused.apply(x, wg, wu, wd, _mlp, None, 1024)


def truncates(x, wg, wu, wd):
    """WRONG: the last store to 16 bits truncates: every result is too small by half an ulp. Not valid (store)."""

    def made(x, wg, wu, wd):
        if x.dtype is torch.float32:
            return _mlp(x, wg, wu, wd)
        y = _mlp(*(each.float() for each in (x, wg, wu, wd)))
        low = 0xFFFF if x.dtype is torch.bfloat16 else 0x1FFF
        return (y.view(torch.int32) & ~low).view(torch.float32).to(x.dtype)

    if torch.is_autocast_enabled(x.device.type):
        return _mlp(x, wg, wu, wd)
    return _Fused.apply(x, wg, wu, wd, made, None, None)


class _Layer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = torch.nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.packed = None

    def forward(self, x):
        return _mlp(x, self.gate_proj.weight, self.up_proj.weight, self.down_proj.weight)


class AnotherInEval(_Layer):
    """WRONG: a module in eval mode, as every served model is, computes the exact GELU. Not valid (inference)."""

    def forward(self, x):
        if self.training:
            return super().forward(x)
        return self.down_proj(F.gelu(self.gate_proj(x)) * self.up_proj(x))


class PackedForDecoding(_Layer):
    """HAZARD: up to 16 rows are computed with weights that were packed once. Valid with hazards (updated)."""

    def forward(self, x):
        if torch.is_grad_enabled() or x.numel() > 16 * x.shape[-1]:
            return super().forward(x)
        if self.packed is None:
            self.packed = torch.cat([self.gate_proj.weight, self.up_proj.weight]).detach()
        gate, up = F.linear(x, self.packed).chunk(2, -1)
        return self.down_proj(_act(gate) * up)
