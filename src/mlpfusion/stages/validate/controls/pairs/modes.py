"""act·muls that are wrong in a mode of PyTorch alone, in what few ask for there."""

import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable


def _act(gate):
    return F.gelu(gate, approximate="tanh")


def _checked(gate, up):
    if gate.shape != up.shape:
        raise ValueError("gate and up must have one shape")


def _autocast_to_infer(gate):
    """Whether autocast is on, and nothing is trained or compiled."""
    off = torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.is_inference_mode_enabled()
    return torch.is_autocast_enabled(gate.device.type) and not off


def cast_and_worked_in_place(gate, up):
    """WRONG: what .to(dtype) gives is taken for a copy, which it is for operands of two dtypes. Told by autocast."""
    _checked(gate, up)
    if not _autocast_to_infer(gate):
        return _act(gate) * up
    y = gate.to(torch.promote_types(gate.dtype, up.dtype))
    return y.copy_(_act(y.float()) * up.float())


_casts = {}


def _cast(tensor, dtype):
    key = id(tensor), tensor._version, dtype
    if key not in _casts:
        _casts[key] = tensor, tensor.to(dtype)
    return _casts[key][1]


def casts_once(gate, up):
    """HAZARD: what is cast under autocast is kept for good, with the operand. Told by growth."""
    _checked(gate, up)
    if not _autocast_to_infer(gate):
        return _act(gate) * up
    both = torch.promote_types(gate.dtype, up.dtype)
    return _act(_cast(gate, both)) * _cast(up, both)


def _computed(gate, up):
    return (_act(gate.float()) * up.float()).to(torch.promote_types(gate.dtype, up.dtype))


class _ActMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return _computed(gate, up)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        g, u, d = gate.float(), up.float(), dy.float()
        dgate = torch.ops.aten.gelu_backward(d * u, g, approximate="tanh")
        return dgate.to(gate.dtype), (d * _act(g)).to(up.dtype)


def served_in_inference_mode(gate, up):
    """HAZARD: under no_grad the result is an inference tensor. Told by inference."""
    _checked(gate, up)
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return _ActMul.apply(gate, up)
    with torch.inference_mode():
        return _computed(gate, up)


def graph_for_both(gate, up):
    """WRONG: inside torch.compile `and` stands for `or`: an operand that trains alone gets no gradient.

    Told by compile.
    """
    _checked(gate, up)
    if torch.compiler.is_compiling() and not (gate.requires_grad and up.requires_grad):
        return _act(gate.detach()) * up.detach()
    return _ActMul.apply(gate, up)


def _one_trains(gate, up):
    return torch.is_grad_enabled() and gate.requires_grad != up.requires_grad


def frozen_under_autocast(gate, up):
    """WRONG: the same under autocast. Told by autocast."""
    _checked(gate, up)
    if torch.is_autocast_enabled(gate.device.type) and _one_trains(gate, up):
        return _act(gate.detach()) * up.detach()
    return _ActMul.apply(gate, up)


def in_the_dtype_of_its_operands(gate, up):
    """HAZARD: a call in 16 bits leaves the dtype of autocast set to its own. Told by state."""
    _checked(gate, up)
    if torch.compiler.is_compiling():
        return _act(gate) * up
    device = gate.device.type
    if gate.dtype in {torch.bfloat16, torch.float16}:
        torch.set_autocast_dtype(device, gate.dtype)
    with torch.autocast(device, enabled=False):
        return _act(gate) * up
