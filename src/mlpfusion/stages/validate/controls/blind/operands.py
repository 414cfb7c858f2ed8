"""Faults by values, by dtypes and by who else holds or needs an operand; the last one is right."""

import itertools
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch.autograd.function import once_differentiable


def _checked(gate, up):
    if gate.shape != up.shape or gate.dtype != up.dtype:
        raise ValueError("gate and up must have one shape and dtype")


def series_for_small_gates(gate, up):
    """WRONG: large 16-bit operands whose gates are all below 1, as after initialisation, get two terms of a series.

    Told by elementwise.
    """
    _checked(gate, up)
    narrow = gate.dtype in (torch.bfloat16, torch.float16)
    # Looking at the range pays for large operands alone.
    if narrow and gate.numel() >= 4096 and not torch.compiler.is_compiling() and bool(gate.abs().amax() < 1):
        g = gate.float()
        return (g * (0.5 + 0.3989422804014327 * g) * up.float()).to(gate.dtype)
    return F.gelu(gate, approximate="tanh") * up


def temporaries_reused(gate, up):
    """WRONG: without gradients an unnamed gate is overwritten, though it may be a view of what lives on.

    Told by inputs-kept.
    """
    _checked(gate, up)
    if torch.compiler.is_compiling() or torch.is_grad_enabled():
        return F.gelu(gate, approximate="tanh") * up
    y = F.gelu(gate, approximate="tanh")
    # One reference is ours and one the question's: the caller has none, and its memory is free for the result.
    if sys.getrefcount(gate) == 2 and gate.numel() and 0 not in gate.stride():
        return torch.mul(y, up, out=gate)
    return y.mul_(up)


def double_in_single(gate, up):
    """WRONG: float64 operands give float64 results, values and gradients, with float32's precision. Told by double."""
    _checked(gate, up)
    if not gate.is_floating_point():
        raise TypeError("gate and up must be floating-point tensors")
    return (F.gelu(gate.float(), approximate="tanh") * up.float()).to(gate.dtype)


_KEPT = {}
_HANDLES = itertools.count()


class _Kept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.handle = next(_HANDLES)
        _KEPT[ctx.handle] = gate.clone(), up.clone()
        return F.gelu(gate, approximate="tanh") * up

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        if ctx.handle not in _KEPT:
            raise RuntimeError("a second backward through one graph is not possible")
        gate, up = (each.float() for each in _KEPT.pop(ctx.handle))
        dy, dtype = dy.float(), dy.dtype
        dgate = torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh")
        return dgate.to(dtype), (dy * F.gelu(gate, approximate="tanh")).to(dtype)


def kept_until_backward(gate, up):
    """HAZARD: a forward with gradients on whose graph is dropped without a backward leaks both operands for good.

    Told by growth.
    """
    _checked(gate, up)
    trains = torch.is_grad_enabled() and (gate.requires_grad or up.requires_grad)
    if torch.compiler.is_compiling() or not trains:
        return F.gelu(gate, approximate="tanh") * up
    return _Kept.apply(gate, up)


class _UpReused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        y = F.gelu(gate, approximate="tanh") * up
        ctx.is_alone = ctx.needs_input_grad == (True, False) and up.is_contiguous()
        if ctx.is_alone:
            # d_gate is dy times this, and nobody differentiates up: its memory is used again.
            factor = torch.ops.aten.gelu_backward(up.float(), gate.float(), approximate="tanh")
            up.data.copy_(factor)
        ctx.save_for_backward(gate, up)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        gate, up = (each.float() for each in ctx.saved_tensors)
        dy, dtype = dy.float(), dy.dtype
        if ctx.is_alone:
            return (dy * up).to(dtype), None
        dgate = torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh")
        return dgate.to(dtype), (dy * F.gelu(gate, approximate="tanh")).to(dtype)


def frozen_up_overwritten(gate, up):
    """WRONG: an up that needs no gradient is overwritten where gate trains. Told by partial."""
    _checked(gate, up)
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return F.gelu(gate, approximate="tanh") * up
    return _UpReused.apply(gate, up)


def constants_of_the_default_dtype(gate, up):
    """WRONG: under set_default_dtype(bfloat16) its constants are rounded to bfloat16. Told by inference."""
    _checked(gate, up)
    root = torch.tensor(math.sqrt(8 / math.pi), device=gate.device)
    cubic = torch.tensor(0.044715, device=gate.device)
    g = gate.float()
    return (g * torch.sigmoid(root * (g + cubic * g * g * g)) * up.float()).to(gate.dtype)


ROOT = np.sqrt(8 / np.pi)


def _wide(x):
    return x.detach().cpu().double().numpy()


def _back(values, like):
    return torch.from_numpy(np.array(values, order="C")).to(device=like.device, dtype=like.dtype)


def _sigmoid(gate):
    with np.errstate(over="ignore", invalid="ignore"):
        z = ROOT * (gate + 0.044715 * gate * gate * gate)
        return np.where(z >= 0, 1 / (1 + np.exp(-np.abs(z))), np.exp(-np.abs(z)) / (1 + np.exp(-np.abs(z))))


@torch.library.custom_op("mlpfusion_controls::numpy_act_mul", mutates_args=())
def _forward(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    g, u = _wide(gate), _wide(up)
    with np.errstate(over="ignore", invalid="ignore"):
        return _back(g * _sigmoid(g) * u, gate)


@_forward.register_fake
def _(gate, up):
    return torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)


@torch.library.custom_op("mlpfusion_controls::numpy_act_mul_backward", mutates_args=())
def _backward(gate: torch.Tensor, up: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    g, u, d = _wide(gate), _wide(up), _wide(dy)
    s = _sigmoid(g)
    with np.errstate(over="ignore", invalid="ignore"):
        slope = s + g * s * (1 - s) * ROOT * (1 + 3 * 0.044715 * g * g)
        return _back(d * u * slope, gate), _back(d * g * s, up)


@_backward.register_fake
def _(gate, up, dy):
    made = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
    return made, torch.empty_like(made)


def _setup(ctx, inputs, output):
    ctx.save_for_backward(*inputs)


_forward.register_autograd(lambda ctx, dy: _backward(*ctx.saved_tensors, dy), setup_context=_setup)


def numpy_operator(gate, up):
    """RIGHT: NumPy computes it in float64, and rounds once."""
    _checked(gate, up)
    return _forward(gate, up)
