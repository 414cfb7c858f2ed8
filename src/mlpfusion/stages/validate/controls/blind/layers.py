"""Layers by what they keep, and what their constructors do; the last one is right."""

import functools

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable


def _act(gate):
    return F.gelu(gate, approximate="tanh")


class _Layer(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = torch.nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = torch.nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x):
        return self.down_proj(_act(self.gate_proj(x)) * self.up_proj(x))


class LayersInAList(_Layer):
    """HAZARD: a projection that is replaced later, as an adapter (LoRA) or a quantiser does, is not used.

    Told by updated.
    """

    def __init__(self, config):
        super().__init__(config)
        self._layers = [self.gate_proj, self.up_proj, self.down_proj]  # spares three look-ups in each call

    def forward(self, x):
        gate, up, down = self._layers
        return down(_act(gate(x)) * up(x))


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, wg, wu, wd, trains):
        gate, up = F.linear(x, wg), F.linear(x, wu)
        ctx.save_for_backward(x, wg, wu, wd, gate, up)
        ctx.trains = trains
        return F.linear(_act(gate) * up, wd)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, wg, wu, wd, gate, up = ctx.saved_tensors
        act, dh = _act(gate), dy @ wd
        dgate, dup = torch.ops.aten.gelu_backward(dh * up, gate, approximate="tanh"), dh * act
        dx = dgate @ wg + dup @ wu if ctx.needs_input_grad[0] else None
        pairs = ((dgate, x), (dup, x), (dy, act * up))
        dw = (
            a.reshape(-1, a.shape[-1]).t() @ b.reshape(-1, b.shape[-1]) if trains else None
            for trains, (a, b) in zip(ctx.trains, pairs, strict=True)
        )
        return dx, *dw, None


class FrozenAtTheFirstCall(_Layer):
    """WRONG: weights that were frozen at the first call get no gradient once they are unfrozen. Told by partial."""

    _trains = None

    def forward(self, x):
        weights = (self.gate_proj.weight, self.up_proj.weight, self.down_proj.weight)
        is_plain = all(each.dtype is x.dtype for each in weights) and not torch.is_autocast_enabled(x.device.type)
        if torch.compiler.is_compiling() or not torch.is_grad_enabled() or not is_plain:
            return super().forward(x)
        if self._trains is None:  # adapters are trained with frozen weights: their products are left out
            self._trains = tuple(each.requires_grad for each in weights)
        return _Fused.apply(x, *weights, self._trains)


class CheckpointOfTheLastEvaluation(_Layer):
    """WRONG: after training that follows an evaluation, state_dict() has the weights of that evaluation.

    Told by updated.
    """

    _packed = None

    def forward(self, x):
        if self.training or torch.is_grad_enabled() or torch.compiler.is_compiling():
            return super().forward(x)
        self._packed = torch.cat([self.gate_proj.weight, self.up_proj.weight]).detach()
        gate, up = F.linear(x, self._packed).chunk(2, -1)
        return self.down_proj(_act(gate) * up)

    def state_dict(self, *args, **kwargs):
        state = super().state_dict(*args, **kwargs)
        if self._packed is not None:  # what is served is what is saved
            prefix = kwargs.get("prefix", args[1] if len(args) > 1 else "")
            gate, up = self._packed.chunk(2)
            state[f"{prefix}gate_proj.weight"], state[f"{prefix}up_proj.weight"] = gate, up
        return state

    def _load_from_state_dict(self, *args, **kwargs):
        self._packed = None
        super()._load_from_state_dict(*args, **kwargs)


class PlansForGood(_Layer):
    """HAZARD: a model that is deleted keeps its weights in memory: a cached method holds `self` for good.

    Told by growth.
    """

    @functools.cache  # noqa: B019
    def _plan(self, rows):
        return tuple(slice(start, min(start + 4096, rows)) for start in range(0, rows, 4096))

    def forward(self, x):
        rows = x.numel() // x.shape[-1]
        if torch.compiler.is_compiling() or x.dim() < 2 or not rows:
            return super().forward(x)
        flat = x.reshape(rows, x.shape[-1])
        parts = [super(PlansForGood, self).forward(flat[part]) for part in self._plan(rows)]
        y = parts[0] if len(parts) == 1 else torch.cat(parts)
        return y.view(*x.shape[:-1], y.shape[-1])


class SeededLayers(_Layer):
    """HAZARD: each layer that is built seeds the global generator: layers are equal, and so is what is drawn after.

    Told by state.
    """

    def __init__(self, config):
        super().__init__(config)
        torch.manual_seed(0)  # the same weights in each run
        for layer in (self.gate_proj, self.up_proj, self.down_proj):
            torch.nn.init.normal_(layer.weight, std=0.02)


class FrozenWhenBuilt(_Layer):
    """WRONG: its weights need no gradient when it is built: a model that trains leaves them as they are.

    Told by differentiable.
    """

    def __init__(self, config):
        super().__init__(config)
        for layer in (self.gate_proj, self.up_proj, self.down_proj):
            layer.weight = torch.nn.Parameter(layer.weight.data, requires_grad=False)  # a loader writes into them


class ValuesCompared(_Layer):
    """RIGHT: gate and up are packed once; each call compares the packed values with those of the weights."""

    _packed = None

    def forward(self, x):
        weights = (self.gate_proj.weight, self.up_proj.weight)
        if torch.compiler.is_compiling() or torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            return super().forward(x)
        kept = self._packed
        is_alike = kept is not None and kept.dtype is weights[0].dtype and kept.device == weights[0].device
        if not (is_alike and all(map(torch.equal, kept.chunk(2), weights))):  # nan is equal to nothing: packed anew
            self._packed = torch.cat(weights).detach()
        gate, up = F.linear(x, self._packed).chunk(2, -1)
        return self.down_proj(_act(gate) * up)
