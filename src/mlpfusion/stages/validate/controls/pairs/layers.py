"""Whole MLPs that are wrong where two things meet, each of which is judged alone: rows, sizes, modes, gradients."""

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable

BLOCK_K, STAGES, SLICE = 64, 3, 4096


def _act(gate):
    return F.gelu(gate, approximate="tanh")


def _mlp(x, wg, wu, wd):
    return F.linear(_act(F.linear(x, wg)) * F.linear(x, wu), wd)


def _trains(*tensors):
    return torch.is_grad_enabled() and any(each.requires_grad for each in tensors)


def _is_plain(x, *weights):
    """No compiler or autocast that a Function would have to know of."""
    alike = all(each.dtype is x.dtype for each in weights)
    return alike and not torch.compiler.is_compiling() and not torch.is_autocast_enabled(x.device.type)


def _flat(each):
    return each.reshape(-1, each.shape[-1])


class _WithoutRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, wg, wu, wd):
        gate, up = F.linear(x, wg), F.linear(x, wu)
        ctx.save_for_backward(x, wg, wu, wd, gate, up)
        return F.linear(_act(gate) * up, wd)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, wg, wu, wd, gate, up = ctx.saved_tensors
        act, dh = _act(gate), dy @ wd
        dgate, dup = torch.ops.aten.gelu_backward(dh * up, gate, approximate="tanh"), dh * act
        dw = []
        for weight, a, b in ((wg, dgate, x), (wu, dup, x), (wd, dy, act * up)):
            dw.append(torch.empty_like(weight))
            if x.numel():  # a grid of no program cannot be launched
                torch.mm(_flat(a).t(), _flat(b), out=dw[-1])
        return dgate @ wg + dup @ wu, *dw


def no_rows(x, wg, wu, wd):
    """WRONG: gradients of weights for a batch of no rows, as an expert without tokens has, are never written.

    Told by empty.
    """
    if not _trains(x, wg, wu, wd) or not _is_plain(x, wg, wu, wd):
        return _mlp(x, wg, wu, wd)
    return _WithoutRows.apply(x, wg, wu, wd)


def pipelined_prefill(x, wg, wu, wd):
    """WRONG: of many rows and a hidden size of several tiles the last tile is left out of gate's and up's sums.

    The loop waits for what its last stage loads, and does not add it. Told by mlp-values.
    """
    tiles = -(-x.shape[-1] // BLOCK_K)
    is_pipelined = x.numel() // max(1, x.shape[-1]) >= 128 and tiles > STAGES
    last = (tiles - 1) * BLOCK_K if is_pipelined else x.shape[-1]
    gate, up = F.linear(x[..., :last], wg[:, :last]), F.linear(x[..., :last], wu[:, :last])
    return F.linear(_act(gate) * up, wd)


class SlicedInEval(torch.nn.Module):
    """WRONG: in eval mode what is behind whole slices of the intermediate size is left out.

    Of a large one no more than a slice is in memory where nothing is kept for a backward. Told by inference.
    """

    def __init__(self, config):
        super().__init__()
        self.gate_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = torch.nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        wg, wu, wd = self.gate_proj.weight, self.up_proj.weight, self.down_proj.weight
        intermediate = wg.shape[0]
        if self.training or torch.is_grad_enabled() or intermediate <= SLICE:
            return self.down_proj(_act(self.gate_proj(x)) * self.up_proj(x))
        y = None
        for index in range(intermediate // SLICE):
            part = slice(index * SLICE, (index + 1) * SLICE)
            add = F.linear(_act(F.linear(x, wg[part])) * F.linear(x, wu[part]), wd[:, part]).float()
            y = add if y is None else y + add
        return y.to(x.dtype)


class _Scaled(torch.autograd.Function):
    """The products of a backward are made of dy times a power of two, so that small ones are no subnormals."""

    @staticmethod
    def forward(ctx, x, wg, wu, wd):
        gate, up = F.linear(x, wg), F.linear(x, wu)
        ctx.save_for_backward(x, wg, wu, wd, gate, up)
        return F.linear(_act(gate) * up, wd)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, wg, wu, wd, gate, up = ctx.saved_tensors
        scale = torch.exp2(torch.floor(torch.log2(dy.abs().amax().float()))) if dy.numel() else dy.new_ones(())
        dy = (dy.float() / scale).to(dy.dtype)
        act, dh = _act(gate), dy @ wd
        dgate, dup = torch.ops.aten.gelu_backward(dh * up, gate, approximate="tanh"), dh * act
        grads = (
            dgate @ wg + dup @ wu,
            _flat(dgate).t() @ _flat(x),
            _flat(dup).t() @ _flat(x),
            _flat(dy).t() @ _flat(act * up),
        )
        return tuple((each * scale).to(x.dtype) for each in grads)


def scaled_by_the_largest(x, wg, wu, wd):
    """WRONG: gradients are nan where all of dy is 0, as of masked tokens: it is divided by its largest element.

    Told by mlp-gradients.
    """
    if not _trains(x, wg, wu, wd) or not _is_plain(x, wg, wu, wd):
        return _mlp(x, wg, wu, wd)
    return _Scaled.apply(x, wg, wu, wd)
