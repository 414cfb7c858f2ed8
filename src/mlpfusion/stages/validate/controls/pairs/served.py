"""Layers and MLPs that are wrong in the way they are served or trained in parts."""

import weakref

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable


def _act(gate):
    return F.gelu(gate, approximate="tanh")


def _mlp(x, wg, wu, wd):
    return F.linear(_act(F.linear(x, wg)) * F.linear(x, wu), wd)


def _trains(*tensors):
    return torch.is_grad_enabled() and any(each.requires_grad for each in tensors)


def _flat(each):
    return each.reshape(-1, each.shape[-1])


class _Layer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = torch.nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(_act(self.gate_proj(x)) * self.up_proj(x))


class NothingTrainsInEval(_Layer):
    """HAZARD: in eval mode no gradient flows, to x either, without a word. Told by inference."""

    def forward(self, x):
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.training):
            return super().forward(x)


class PackedWhileGateStays(_Layer):
    """HAZARD: gate's and up's weights are packed for inference, and again where gate's has changed. Told by updated."""

    _packed = None

    def forward(self, x):
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.is_inference_mode_enabled():
            return super().forward(x)
        weight = self.gate_proj.weight
        state = weight._version, weight.data_ptr()
        if self._packed is None or self._packed[0]() is not weight or self._packed[1] != state:
            packed = torch.cat([weight, self.up_proj.weight]).detach()
            self._packed = weakref.ref(weight), state, packed
        gate, up = F.linear(x, self._packed[2]).chunk(2, -1)
        return self.down_proj(_act(gate) * up)


def decoded_without_autocast(x, wg, wu, wd):
    """HAZARD: one row under autocast is computed and returned in the weights' dtype. Told by autocast."""
    if _trains(x, wg, wu, wd) or torch.compiler.is_compiling() or x.numel() != x.shape[-1]:
        return _mlp(x, wg, wu, wd)
    with torch.autocast(x.device.type, enabled=False):
        return _mlp(x.to(wg.dtype), wg, wu, wd)


class _Turns:
    """Eight buffers for gradients of one shape."""

    def __init__(self):
        self._kept = {}

    def take(self, weight):
        key = weight.shape, weight.dtype, weight.device
        turn, buffers = self._kept.get(key, (0, []))
        if len(buffers) < 8:
            buffers.append(torch.empty(weight.numel(), dtype=weight.dtype, device=weight.device))
        self._kept[key] = turn + 1, buffers
        return buffers[turn % 8].view(weight.shape)


_turns = _Turns()


class _InTurns(torch.autograd.Function):
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
        dx = dgate @ wg + dup @ wu if ctx.needs_input_grad[0] else None
        pairs = ((wg, dgate, x), (wu, dup, x), (wd, dy, act * up))
        dw = (
            torch.mm(_flat(a).t(), _flat(b), out=_turns.take(w)) if needed else None
            for needed, (w, a, b) in zip(ctx.needs_input_grad[1:], pairs, strict=True)
        )
        return dx, *dw


def gradients_in_turns(x, wg, wu, wd):
    """WRONG: gradients of weights of one shape take turns in eight buffers: a deep model's first are overwritten.

    Told by accumulation.
    """
    alike = all(each.dtype is x.dtype for each in (wg, wu, wd))
    is_plain = alike and not torch.compiler.is_compiling() and not torch.is_autocast_enabled(x.device.type)
    if not _trains(x, wg, wu, wd) or not is_plain:
        return _mlp(x, wg, wu, wd)
    return _InTurns.apply(x, wg, wu, wd)
