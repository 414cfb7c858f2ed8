"""What a module's life, a refusal and an import leave behind, and gradients of gradients and of panels."""

import torch
import torch.nn.functional as F


def _act(gate):
    return F.gelu(gate, approximate="tanh")


def _mlp(x, wg, wu, wd):
    return F.linear(_act(F.linear(x, wg)) * F.linear(x, wu), wd)


class _Layer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = torch.nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(_act(self.gate_proj(x)) * self.up_proj(x))


class ConstantsInABuffer(_Layer):
    """HAZARD: its constants are in no checkpoint: built on the meta device it has none. Told by updated."""

    def __init__(self, config):
        super().__init__(config)
        self.register_buffer("constants", torch.tensor([0.7978845608028654, 0.044715]), persistent=False)

    def forward(self, x):
        gate = self.gate_proj(x).float()
        root, cubic = self.constants
        act = 0.5 * gate * (1 + torch.tanh(root * (gate + cubic * gate**3)))
        return self.down_proj(act.to(x.dtype) * self.up_proj(x))


class LastHiddenKept(_Layer):
    """HAZARD: it keeps its hidden activations and their graph: after training no deepcopy. Told by updated."""

    last = None

    def forward(self, x):
        self.last = _act(self.gate_proj(x)) * self.up_proj(x)
        return self.down_proj(self.last)


class ScratchInTheCheckpoint(_Layer):
    """HAZARD: scratch memory is a persistent buffer, of the size of the last call. Told by updated."""

    def __init__(self, config):
        super().__init__(config)
        self.register_buffer("scratch", torch.empty(0))

    def forward(self, x):
        if torch.compiler.is_compiling() or torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            return super().forward(x)
        gate, up = self.gate_proj(x), self.up_proj(x)
        self.scratch = torch.empty_like(gate)
        return self.down_proj(torch.mul(_act(gate), up, out=self.scratch))


class CacheOutsideTheCheckpoint(_Layer):
    """RIGHT: packed weights in a buffer that no checkpoint has, and that each call without gradients makes anew."""

    def __init__(self, config):
        super().__init__(config)
        self.register_buffer("packed", None, persistent=False)

    def forward(self, x):
        if torch.compiler.is_compiling() or torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            return super().forward(x)
        self.packed = torch.cat([self.gate_proj.weight, self.up_proj.weight]).detach()
        gate, up = F.linear(x, self.packed.to(x.dtype)).chunk(2, -1)
        return self.down_proj(_act(gate) * up)


class _HiddenSaved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, wg, wu, wd):
        hidden = _act(F.linear(x, wg)) * F.linear(x, wu)
        ctx.save_for_backward(x, wg, wu, wd, hidden)
        return F.linear(hidden, wd)

    @staticmethod
    def backward(ctx, dy):
        x, wg, wu, wd, hidden = ctx.saved_tensors
        gate, up, dh = F.linear(x, wg), F.linear(x, wu), dy @ wd
        dgate, dup = torch.ops.aten.gelu_backward(dh * up, gate, approximate="tanh"), dh * _act(gate)
        flat_x, flat_gate, flat_up, flat_dy, flat = (t.flatten(0, -2) for t in (x, dgate, dup, dy, hidden))
        return dgate @ wg + dup @ wu, flat_gate.t() @ flat_x, flat_up.t() @ flat_x, flat_dy.t() @ flat


def hidden_without_a_graph(x, wg, wu, wd):
    """HAZARD: dWd is of a saved intermediate without a graph: its own gradients are lost. Told by double-backward."""
    if torch.is_autocast_enabled(x.device.type):
        return _mlp(x, wg, wu, wd)
    return _HiddenSaved.apply(x, wg, wu, wd)


def gradients_left_off(gate, up):
    """HAZARD: where it refuses its operands, gradients stay off. Told by state."""
    trains = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and dtype")
    torch.set_grad_enabled(trains)
    return _act(gate) * up


def gradients_left_on(gate, up):
    """HAZARD: under no_grad it leaves gradients on for what follows. Told by state."""
    y = _act(gate) * up
    torch.set_grad_enabled(True)
    return y


def _panels(x, wg, wu, wd):
    total = torch.zeros(*x.shape[:-1], wd.shape[0], dtype=torch.float32, device=x.device)
    rows = x.float()  # once: its gradient would be added up over the panels in 16 bits else
    for g, u, d in zip(wg.split(96), wu.split(96), wd.split(96, dim=1), strict=True):
        total = total + _mlp(rows, *(each.float() for each in (g, u, d)))
    return total.to(x.dtype)


class _ByVjp(torch.autograd.Function):
    @staticmethod
    def forward(ctx, times, *operands):
        ctx.times = times
        ctx.save_for_backward(*operands)
        return _panels(*operands)

    @staticmethod
    def backward(ctx, dy):
        _, back = torch.func.vjp(_panels, *ctx.saved_tensors)
        return None, *back(ctx.times * dy)


def panels_by_vjp(x, wg, wu, wd):
    """RIGHT: its backward computes panels again by torch.func.vjp, in which memory is allocated."""
    if torch.is_autocast_enabled(x.device.type) or torch.compiler.is_compiling():
        return _mlp(x, wg, wu, wd)
    return _ByVjp.apply(1, x, wg, wu, wd)


def panels_by_vjp_doubled(x, wg, wu, wd):
    """WRONG: the same with every gradient doubled. Not valid (mlp-gradients)."""
    if torch.is_autocast_enabled(x.device.type) or torch.compiler.is_compiling():
        return _mlp(x, wg, wu, wd)
    return _ByVjp.apply(2, x, wg, wu, wd)
