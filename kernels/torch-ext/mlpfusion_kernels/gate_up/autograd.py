"""down(act(gate(x))·up(x)) as one differentiable PyTorch function with the activation in the gate/up product."""

# Operators are called by position.
# ruff: noqa: PLR0917

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

from ..activations import ACTIVATIONS, unknown_activation
from ..elementwise.autograd import DTYPES, NAMESPACE, PLAIN, differentiates_forward, is_unwatched
from ..gradients import Wanted, by_middle, is_traced, joined, parted, shapes, without_autocast
from ..sources import DIGEST
from .launch import gate_up_backward, mlp_forward, preactivations
from .operands import Weights

_DEVICES = frozenset(("cuda", "cpu", "meta"))  # PyTorch calls a ROCm GPU "cuda" too
_NAMES = ("x", "gate_weight", "up_weight", "down_weight", "gate_bias", "up_bias", "down_bias")

_NO_TRANSFORMS = (
    "gated_mlp has no derivative for torch.func transforms or forward-mode differentiation; "
    "three linear layers around act_mul have"
)
_NO_SECOND_ORDER = "gated_mlp has no second derivative; three linear layers around act_mul have"

_functorch_level = torch._C._functorch.peek_interpreter_stack


def gated_mlp(x: torch.Tensor, weights: Weights, activation: str, *, recompute: bool = False) -> torch.Tensor:
    """down(act(x·gateᵀ + gate_bias)·(x·upᵀ + up_bias)) + down_bias, with act·mul in the gate/up product's epilogue.

    Args:
        x: [..., D], float32, float16 or bfloat16. Under autocast x and the weights are cast to its dtype first.
        weights: of one dtype and device with x; D and H multiples of 16, rows of adjacent elements.
        activation: one of ACTIVATIONS.
        recompute: keep only x for the backward, which then computes gate and up once more.

    Returns:
        [..., D], contiguous. gate and up are rounded to the dtype before the activation, so the product in between has
        the bits of `act_mul(gate, up)`, in the forward and where the backward computes it again.

    Between forward and backward x, gate and up are kept, not the product; under autocast also the weights that were
    cast, anew at each call. Differentiable once: a second derivative raises an error when it is requested.

    Raises:
        ValueError: unknown activation; another kind of device; shapes that do not fit; sizes that are no multiples of
            16; weights that cannot be read where they lie.
        TypeError: a dtype that is not supported, or more than one dtype.
        RuntimeError: a CPU tensor outside Triton's interpreter; a torch.func transform or forward-mode differentiation.
    """
    kind = x.device.type
    if kind != "meta" and torch.is_autocast_enabled(kind):  # of "meta" it raises
        dtype = torch.get_autocast_dtype(kind)
        x = _autocast(x, dtype)
        weights = Weights(*(None if weight is None else _autocast(weight, dtype) for weight in weights))  # type: ignore[arg-type]
        with torch.autocast(kind, enabled=False):
            return _gated_mlp(x, weights, activation, recompute)
    return _gated_mlp(x, weights, activation, recompute)


def _autocast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The tensor in autocast's dtype, if autocast casts its own: integers, complex numbers and float64 stay."""
    return tensor.to(dtype) if tensor.dtype in DTYPES else tensor


def _gated_mlp(x: torch.Tensor, weights: Weights, activation: str, recompute: bool) -> torch.Tensor:
    if activation not in ACTIVATIONS:  # before an operator's schema refuses what is no text, in its own words
        raise ValueError(unknown_activation(activation))
    keep = torch.is_grad_enabled() and (x.requires_grad or any(w is not None and w.requires_grad for w in weights))
    if torch.compiler.is_compiling():
        if differentiates_forward():
            raise RuntimeError(_NO_TRANSFORMS)
        return _mlp_op(x, *weights, activation, keep and not recompute, DIGEST)[0]  # type: ignore[no-any-return]
    if not _is_plain_cuda(x, weights):
        if _functorch_level() is not None or forward_ad._current_level >= 0:
            raise RuntimeError(_NO_TRANSFORMS)
        y: torch.Tensor = _mlp_op(x, *weights, activation, keep and not recompute, DIGEST)[0]
        return y
    if keep:
        return _Fused.apply(x, *weights, activation, recompute)  # type: ignore[no-any-return, no-untyped-call]
    check(x, weights, activation)
    return rows_forward(x, weights, activation, False)[0]


def _is_plain_cuda(x: torch.Tensor, weights: Weights) -> bool:
    """Whether nothing but autograd and saved-tensor hooks can be watching; see `act_mul`."""
    return (
        x.is_cuda
        and type(x) in PLAIN
        and all(weight is None or type(weight) in PLAIN for weight in weights)
        and is_unwatched()
        and not (x.is_neg() or x._is_zerotensor())
    )


def check(x: torch.Tensor, weights: Weights, activation: str) -> None:
    """Raise ValueError or TypeError, with the value at fault, for operands that `gated_mlp` does not take."""
    if activation not in ACTIVATIONS:
        raise ValueError(unknown_activation(activation))
    dtype, device = x.dtype, x.device  # each costs a call, and this runs at each one of the MLP
    if dtype not in DTYPES:
        raise TypeError(f"x must be float32, float16 or bfloat16, got {dtype}")
    if device.type not in _DEVICES:
        raise ValueError(f"x must be on a CUDA or ROCm GPU or, in Triton's interpreter, on the CPU, got {device}")
    if weights.gate.dim() != 2:
        raise ValueError(f"gate_weight must be [H, D], got {tuple(weights.gate.shape)}")
    h, d = weights.gate.shape
    if d % 16 or h % 16 or not (d and h):
        raise ValueError(f"the sizes D and H must be positive multiples of 16, got D = {d} and H = {h}")
    if not x.dim() or x.shape[-1] != d:
        raise ValueError(f"x must be [..., {d}] for weights of {d} columns, got {tuple(x.shape)}")
    if (weights.gate_bias is None) != (weights.up_bias is None):
        raise ValueError("gate_bias and up_bias must both be there or both be None")
    shapes = ((h, d), (h, d), (d, h), (h,), (h,), (d,))
    for name, weight, shape in zip(_NAMES[1:], weights, shapes, strict=True):
        if weight is None:
            continue
        if weight.shape != shape:
            raise ValueError(f"{name} must be {list(shape)}, got {list(weight.shape)}")
        if weight.dtype is not dtype:
            raise TypeError(f"{name} must have x's dtype {dtype}, got {weight.dtype}")
        if weight.device != device:
            raise ValueError(f"{name} must be on x's device {device}, got {weight.device}")


def rows_forward(
    x: torch.Tensor, weights: Weights, activation: str, keep: bool
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """(y [..., D], gate and up [M, H] or None)."""
    if x.dim() == 2:
        return mlp_forward(x, weights, activation, keep)
    y, gate, up = mlp_forward(x.reshape(-1, x.shape[-1]), weights, activation, keep)
    return y.view(x.shape), gate, up


def rows_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    gate: torch.Tensor | None,
    up: torch.Tensor | None,
    weights: Weights,
    activation: str,
    wanted: Wanted,
) -> tuple[torch.Tensor | None, ...]:
    """The wanted gradients of (x, *weights), each in x's dtype; gate and up are computed again where they are None."""
    return by_middle(lambda dy, rows: rows_middle(dy, rows, gate, up, weights, activation), dy, x, weights[:2], wanted)


def rows_middle(
    dy: torch.Tensor,
    x: torch.Tensor,
    gate: torch.Tensor | None,
    up: torch.Tensor | None,
    weights: Weights,
    activation: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dgate beside dup [M, 2H], product [M, H]) of dy and x [M, D]; gate and up are computed again where None."""
    if gate is None or up is None:
        gate, up = preactivations(x, weights, activation)
    return gate_up_backward(dy, weights.down, gate, up, activation)


class _Fused(torch.autograd.Function):
    """`gated_mlp` with gradients, for eager calls on plain CUDA tensors."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *arguments: Any) -> torch.Tensor:
        weights, (activation, recompute) = Weights(*arguments[:6]), arguments[6:]
        check(x, weights, activation)
        y, gate, up = rows_forward(x, weights, activation, not recompute)
        ctx.save_for_backward(x, *weights, gate, up)
        ctx.activation = activation
        return y

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        wanted = Wanted(*ctx.needs_input_grad[:7])
        saved = ctx.saved_tensors
        # Under create_graph the gradients would be differentiated; they carry a node that says no.
        give = _Gradients.apply if torch.is_grad_enabled() else _gradients
        return *give(wanted, ctx.activation, dy, *saved), None, None


def _gradients(wanted: Wanted, activation: str, *tensors: Any) -> tuple[torch.Tensor | None, ...]:
    """Gradients from (dy, x, *weights, gate, up), by the operator where a mode or another kind of tensor came in."""
    dy, x, weights, (gate, up) = tensors[0], tensors[1], Weights(*tensors[2:8]), tensors[8:]
    if _is_plain_cuda(dy, weights) and type(x) in PLAIN:
        return rows_backward(dy, x, gate, up, weights, activation, wanted)
    return parted(_mlp_backward_op(dy, x, gate, up, *weights, activation, list(wanted)), wanted)


class _Gradients(torch.autograd.Function):
    """Gradients of which no gradient can be taken, whatever other path leads to the inputs."""

    @staticmethod
    def forward(ctx: Any, wanted: Wanted, activation: str, *tensors: Any) -> tuple[torch.Tensor | None, ...]:
        return _gradients(wanted, activation, *tensors)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(_NO_SECOND_ORDER)


@torch.library.custom_op(f"{NAMESPACE}::gated_mlp", mutates_args=())
def _mlp_op(
    x: torch.Tensor,
    gate_weight: torch.Tensor,
    up_weight: torch.Tensor,
    down_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    up_bias: torch.Tensor | None,
    down_bias: torch.Tensor | None,
    activation: str,
    keep: bool,
    digest: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(y, gate, up); gate and up are empty unless `keep`: an operator cannot return None. `digest` is for caches."""
    if forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled():
        raise RuntimeError(_NO_TRANSFORMS)
    weights = Weights(gate_weight, up_weight, down_weight, gate_bias, up_bias, down_bias)
    check(x, weights, activation)
    y, gate, up = rows_forward(x, weights, activation, keep)
    return y, x.new_empty(0) if gate is None else gate, x.new_empty(0) if up is None else up


@_mlp_op.register_fake
def _(
    x: torch.Tensor,
    gate_weight: torch.Tensor,
    up_weight: torch.Tensor,
    down_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    up_bias: torch.Tensor | None,
    down_bias: torch.Tensor | None,
    activation: str,
    keep: bool,
    digest: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    check(x, Weights(gate_weight, up_weight, down_weight, gate_bias, up_bias, down_bias), activation)
    y = x.new_empty(x.shape)
    if not keep:
        return y, x.new_empty(0), x.new_empty(0)
    shape = (x.numel() // x.shape[-1], gate_weight.shape[0])
    return y, x.new_empty(shape), x.new_empty(shape)


@torch.library.custom_op(f"{NAMESPACE}::gated_mlp_backward", mutates_args=())
def _mlp_backward_op(
    dy: torch.Tensor,
    x: torch.Tensor,
    gate: torch.Tensor | None,
    up: torch.Tensor | None,
    gate_weight: torch.Tensor,
    up_weight: torch.Tensor,
    down_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    up_bias: torch.Tensor | None,
    down_bias: torch.Tensor | None,
    activation: str,
    wanted: list[bool],
) -> list[torch.Tensor]:
    """The wanted gradients, joined: an unwanted one is empty."""
    weights = Weights(gate_weight, up_weight, down_weight, gate_bias, up_bias, down_bias)
    return joined(rows_backward(dy, x, gate, up, weights, activation, Wanted(*wanted)), x)


@_mlp_backward_op.register_fake
def _(
    dy: torch.Tensor,
    x: torch.Tensor,
    gate: torch.Tensor | None,
    up: torch.Tensor | None,
    gate_weight: torch.Tensor,
    up_weight: torch.Tensor,
    down_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    up_bias: torch.Tensor | None,
    down_bias: torch.Tensor | None,
    activation: str,
    wanted: list[bool],
) -> list[torch.Tensor]:
    operands = (x, gate_weight, up_weight, down_weight, gate_bias, up_bias, down_bias)
    return [x.new_empty(shape) for shape in shapes(operands, Wanted(*wanted))]


@torch.library.custom_op(f"{NAMESPACE}::gated_mlp_middle", mutates_args=())
def _mlp_middle_op(
    dy: torch.Tensor,
    x: torch.Tensor,
    gate: torch.Tensor | None,
    up: torch.Tensor | None,
    gate_weight: torch.Tensor,
    up_weight: torch.Tensor,
    down_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    up_bias: torch.Tensor | None,
    down_bias: torch.Tensor | None,
    activation: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`rows_middle` of dy [M, D] and x [..., D].

    It takes every operand of the MLP, so that no second derivative has a way around its refusal. An ambient autocast
    may have cast the products of a graph that made dy.
    """
    weights = Weights(gate_weight, up_weight, down_weight, gate_bias, up_bias, down_bias)
    with without_autocast(dy.device.type):
        return rows_middle(dy.to(x.dtype), x.reshape(-1, x.shape[-1]), gate, up, weights, activation)


@_mlp_middle_op.register_fake
def _(
    dy: torch.Tensor,
    x: torch.Tensor,
    gate: torch.Tensor | None,
    up: torch.Tensor | None,
    gate_weight: torch.Tensor,
    *_: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    m, h = dy.shape[0], gate_weight.shape[0]
    return x.new_empty((m, 2 * h)), x.new_empty((m, h))


def _no_second_derivative(*_: Any) -> Any:
    raise RuntimeError(_NO_SECOND_ORDER)


_mlp_backward_op.register_autograd(_no_second_derivative)
_mlp_middle_op.register_autograd(_no_second_derivative)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
    *tensors, ctx.activation, ctx.keep, _ = inputs
    _, gate, up = output
    ctx.mark_non_differentiable(gate, up)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, *((gate, up) if ctx.keep else (None, None)))


def _op_backward(ctx: Any, dy: torch.Tensor | None, *_: Any) -> tuple[torch.Tensor | None, ...]:
    if dy is None:
        return (None,) * 10
    wanted = Wanted(*ctx.needs_input_grad[:7])
    x, *weights, gate, up = ctx.saved_tensors
    if is_traced():  # the products are the compiler's, which needs no operator in Python to launch them
        # x and not its rows: a compiled backward refuses a second derivative by the inputs that it was given.
        found = by_middle(
            lambda dy, _: _mlp_middle_op(dy, x, gate, up, *weights, ctx.activation),
            dy,
            x,
            weights[:2],
            wanted,
            addresses=False,
        )
        return *found, None, None, None
    whole = _mlp_backward_op(dy, x, gate, up, *weights, ctx.activation, list(wanted))
    return *parted(whole, wanted), None, None, None


_mlp_op.register_autograd(_op_backward, setup_context=_save)
