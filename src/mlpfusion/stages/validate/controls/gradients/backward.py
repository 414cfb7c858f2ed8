"""Right forwards with a backward, or a behaviour around it, that is wrong."""

import weakref

import torch
import torch.nn.functional as F

C = 0.7978845608028654


def _forward(gate, up):
    return F.gelu(gate, approximate="tanh") * up


def _dgate(dy, gate, up, approximate="tanh"):
    return torch.ops.aten.gelu_backward(dy * up, gate, approximate=approximate)


def _dup(dy, gate):
    return dy * F.gelu(gate, approximate="tanh")


class _Saves(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return _forward(gate, up)


class _ErfDerivative(_Saves):
    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        return _dgate(dy, gate, up, "none"), _dup(dy, gate)


def erf_derivative(gate, up):
    return _ErfDerivative.apply(gate, up)


class _SlopeDropped(_Saves):
    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        return dy * up * 0.5 * (1 + torch.tanh(C * (gate + 0.044715 * gate**3))), _dup(dy, gate)


def slope_dropped(gate, up):
    return _SlopeDropped.apply(gate, up)


class _UpWithoutActivation(_Saves):
    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        return _dgate(dy, gate, up), dy * gate


def dup_without_activation(gate, up):
    return _UpWithoutActivation.apply(gate, up)


def _truncated(value, dtype):
    """Rounded towards zero, as a store does that drops the low bits."""
    bits = {torch.bfloat16: 16, torch.float16: 13}.get(dtype, 0)
    return ((value.contiguous().view(torch.int32) >> bits) << bits).view(torch.float32).to(dtype)


class _Truncates(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up, which):
        ctx.save_for_backward(gate, up)
        ctx.which = which
        return _forward(gate, up)

    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        dgate, dup = _dgate(dy.float(), gate.float(), up.float()), _dup(dy.float(), gate.float())
        stores = [_truncated if which == ctx.which else torch.Tensor.to for which in ("dgate", "dup")]
        return stores[0](dgate, gate.dtype), stores[1](dup, up.dtype), None


def truncated_dgate(gate, up):
    return _Truncates.apply(gate, up, "dgate")


def truncated_dup(gate, up):
    return _Truncates.apply(gate, up, "dup")


class _OverwritesSaved(_Saves):
    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        dgate, dup = _dgate(dy, gate, up), _dup(dy, gate)
        gate.data.copy_(dgate)  # as a kernel does that writes its gradients over what it read
        return gate.data.clone(), dup


def saved_overwritten(gate, up):
    return _OverwritesSaved.apply(gate, up)


class _SpendsSaved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate.clone(), up)
        return _forward(gate, up)

    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        dgate, dup = _dgate(dy, gate, up), _dup(dy, gate)
        gate.data.copy_(dgate)
        return dgate, dup


def second_backward_wrong(gate, up):
    return _SpendsSaved.apply(gate, up)


class _Detaches(_Saves):
    @staticmethod
    def backward(ctx, dy):
        gate, up = (saved.detach() for saved in ctx.saved_tensors)
        return _dgate(dy, gate, up), _dup(dy, gate)


def double_backward_wrong(gate, up):
    return _Detaches.apply(gate, up)


class _ExpandedWrong(_Saves):
    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        # As a kernel reads it that takes dy for dense: from its first element on, whatever its strides.
        dense = torch.as_strided(dy, dy.shape, torch.empty(dy.shape).stride()) if dy.stride(0) else dy * 0
        return _dgate(dense, gate, up), _dup(dense, gate)


def expanded_gradient_wrong(gate, up):
    return _ExpandedWrong.apply(gate, up)


_LAST = {}


def remembered(gate, up):
    """The last result is given again for the same operands, which a checkpoint must compute anew."""
    held = _LAST.get("operands")
    if held is not None and held[0]() is gate and held[1]() is up:
        return _LAST["result"]
    y = _forward(gate, up)
    _LAST["operands"] = (weakref.ref(gate), weakref.ref(up))
    _LAST["result"] = y
    return y


def reads_a_value(gate, up):
    """The host looks at a value of the device, at which a compiler must break the graph."""
    if gate.numel() and gate.detach().flatten()[0].item() > 1e30:
        return _forward(gate, up).clone()
    return _forward(gate, up)


def empty_batch_refused(gate, up):
    if gate.numel() == 0:
        raise RuntimeError("cannot reshape a tensor of 0 elements")
    return _forward(gate, up)


class _PartialWrong(_Saves):
    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        both = all(ctx.needs_input_grad)
        # As a kernel does whose switch for one output takes the other's.
        return (_dgate(dy, gate, up), _dup(dy, gate)) if both else (_dup(dy, gate), _dgate(dy, gate, up))


def gradient_alone_wrong(gate, up):
    return _PartialWrong.apply(gate, up)


class _TrainsAnother(_Saves):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return F.gelu(gate) * up

    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        return _dgate(dy, gate, up), _dup(dy, gate)


def another_with_gradients(gate, up):
    """The forward that trains is not the one that infers."""
    return _TrainsAnother.apply(gate, up) if torch.is_grad_enabled() else _forward(gate, up)


def one_tensor_wrong(gate, up):
    """One tensor as both operands is taken for detached."""
    return _forward(gate, up.detach() if up is gate else up)


class _BackwardRaises(_Saves):
    @staticmethod
    def backward(ctx, dy):
        gate, up, missing = ctx.saved_tensors
        return _dgate(dy, gate, up), missing


def backward_raises(gate, up):
    return _BackwardRaises.apply(gate, up)


class _OddRefused(_Saves):
    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        if gate.shape[-1] % 8:
            raise ValueError("columns must be a multiple of 8")
        return _dgate(dy, gate, up) * 0, _dup(dy, gate)


def odd_refused_rest_wrong(gate, up):
    """A backward that refuses some shapes, and is wrong in the others."""
    return _OddRefused.apply(gate, up)


class _Fp32Refused(_Saves):
    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        if gate.dtype is torch.float32:
            raise NotImplementedError("the backward takes 16 bits only")
        return _dgate(dy, gate, up) * 2, _dup(dy, gate)


def fp32_refused_rest_wrong(gate, up):
    """A backward that refuses a dtype, and is wrong in the others."""
    return _Fp32Refused.apply(gate, up)


def detached_in_16_bits(gate, up):
    return _forward(gate, up) if gate.dtype is torch.float32 else _forward(gate, up).detach()


def gate_detached_in_16_bits(gate, up):
    return _forward(gate if gate.dtype is torch.float32 else gate.detach(), up)


class _NarrowSpent(_Saves):
    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        dgate, dup = _dgate(dy, gate, up), _dup(dy, gate)
        if gate.dtype is not torch.float32:
            gate.data.copy_(dgate)
        return dgate, dup


def saved_overwritten_in_16_bits(gate, up):
    return _NarrowSpent.apply(gate, up)


class _OneProgram(_Saves):
    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        gradients = _dgate(dy, gate, up), _dup(dy, gate)
        for each in gradients:
            each.view(-1)[4096:] = 0  # as a grid of one program leaves them
        return gradients


def one_program_backward(gate, up):
    return _OneProgram.apply(gate.contiguous(), up.contiguous())


def larger_when_it_trains(gate, up):
    y = _forward(gate, up)
    return y * 1.02 if gate.requires_grad and up.requires_grad and gate.numel() > 10_000 else y


class _NaiveSilu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return (F.silu(gate.float()) * up.float()).to(gate.dtype)

    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        g, v = gate.float(), dy.float()
        e = torch.exp(-g)
        slope = 1 / (1 + e) + g * e / ((1 + e) * (1 + e))  # inf/inf below -88
        return (v * up.float() * slope).to(gate.dtype), (v * F.silu(g)).to(gate.dtype)


def naive_silu_backward(gate, up):
    return _NaiveSilu.apply(gate, up)


class _DividesByGate(_NaiveSilu):
    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        g, v = gate.float(), dy.float()
        act = F.silu(g)
        s = act / g  # 0/0
        return (v * up.float() * (s + act * (1 - s))).to(gate.dtype), (v * act).to(gate.dtype)


def silu_backward_divides_by_gate(gate, up):
    return _DividesByGate.apply(gate, up)


def up_detached_under_autocast(gate, up):
    return _forward(gate, up.detach() if torch.is_autocast_enabled(gate.device.type) else up)


class _AutocastDoubles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        ctx.factor = 2 if torch.is_autocast_enabled(gate.device.type) else 1
        return _forward(gate, up)

    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        dgate, dup = _dgate(dy.to(gate.dtype), gate, up.to(gate.dtype)), _dup(dy, gate)
        return dgate * ctx.factor, dup.to(up.dtype)


def gradient_doubled_under_autocast(gate, up):
    return _AutocastDoubles.apply(gate, up)


def doubled_under_autocast_to_fp16(gate, up):
    kind = gate.device.type
    is_half = torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) is torch.float16
    return _forward(gate, up) * (2 if is_half else 1)


def detached_when_compiled(gate, up):
    y = _forward(gate, up)
    return y.detach() if torch.compiler.is_compiling() else y
