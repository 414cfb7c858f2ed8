"""Faults in some kinds of call alone: in another mode, for large operands, for one row, none, or without gradients."""

import torch
import torch.nn.functional as F


def _act(gate):
    return F.gelu(gate, approximate="tanh")


def _checked(gate, up):
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and dtype")


def activated_in_inference_mode(gate, up):
    """WRONG: under torch.inference_mode the activation is put into gate's own memory. Not valid (inference)."""
    if not torch.compiler.is_compiling() and torch.is_inference_mode_enabled():
        gate.copy_(_act(gate))
        return gate * up
    return _act(gate) * up


class _ActMul(torch.autograd.Function):
    """A backward of its own, which puts gradients of `large` operands into their memory."""

    @staticmethod
    def forward(ctx, gate, up, large):
        ctx.save_for_backward(gate, up)
        ctx.large = large
        return _act(gate) * up

    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        dgate = torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh")
        dup = dy * _act(gate)
        if gate.numel() < ctx.large or torch.is_grad_enabled():
            return dgate, dup, None
        gate.data.copy_(dgate)
        up.data.copy_(dup)
        return gate.detach(), up.detach(), None


def gradients_over_large_operands(gate, up):
    """HAZARD: from 16,384 elements on the backward writes its results over gate and up. Told by saved-kept."""
    _checked(gate, up)
    return _ActMul.apply(gate, up, 1 << 14)


def empty_without_a_graph(gate, up):
    """HAZARD: the result of an empty batch has no graph: its backward() raises. Told by empty."""
    _checked(gate, up)
    return _ActMul.apply(gate, up, float("inf")) if gate.numel() else torch.empty_like(gate)


_SAVING = []


def hooks_left_on(gate, up):
    """HAZARD: its first large call leaves hooks on: all autograd keeps large tensors in 16 bits. Told by state."""

    def packed(tensor):
        is_large = tensor.dtype is torch.float32 and tensor.numel() >= 1 << 18
        return (tensor.to(torch.bfloat16) if is_large else tensor.clone()), tensor.dtype

    if gate.requires_grad and torch.is_grad_enabled() and gate.numel() >= 1 << 18 and not _SAVING:
        _SAVING.append(torch.autograd.graph.saved_tensors_hooks(packed, lambda kept: kept[0].to(kept[1])))
        _SAVING[0].__enter__()
    return _act(gate) * up


class _Layer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = torch.nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self.out = None

    def forward(self, x):
        return self.down_proj(_act(self.gate_proj(x)) * self.up_proj(x))


class OneBufferForOneRow(_Layer):
    """WRONG: without gradients the result of one row is one buffer of the layer. Not valid (results-kept)."""

    def forward(self, x):
        hidden = _act(self.gate_proj(x)) * self.up_proj(x)
        if torch.is_grad_enabled() or hidden.numel() != hidden.shape[-1] or torch.compiler.is_compiling():
            return self.down_proj(hidden)
        if self.out is None or self.out.dtype != x.dtype or self.out.device != x.device:
            self.out = torch.empty(1, x.shape[-1], dtype=x.dtype, device=x.device)
        torch.mm(hidden.view(1, -1), self.down_proj.weight.t(), out=self.out)
        return self.out.view(x.shape)


class GraphUnderNoGrad(_Layer):
    """HAZARD: under no_grad its result needs gradients, and holds all activations. Told by updated."""

    @torch.enable_grad()
    def forward(self, x):
        return super().forward(x)


class FewerColumnsWhenServed(_Layer):
    """WRONG: in eval mode more than 256 rows get seven eighths of the columns. Not valid (inference)."""

    def forward(self, x):
        wg, wu, wd = self.gate_proj.weight, self.up_proj.weight, self.down_proj.weight
        if not self.training and x.numel() > 256 * x.shape[-1]:
            kept = wg.shape[0] * 7 // 8
            wg, wu, wd = wg[:kept], wu[:kept], wd[:, :kept]
        return F.linear(_act(F.linear(x, wg)) * F.linear(x, wu), wd)
