"""act(gate)·up as one differentiable PyTorch function over one kernel launch."""

# Operators are called by position.
# ruff: noqa: PLR0917

from __future__ import annotations

import re
from typing import Any

import torch
from torch.autograd import forward_ad

from ..activations import ACTIVATIONS, activate_backward_reference, activate_reference, unknown_activation
from ..sources import DIGEST
from .launch import act_mul_backward, act_mul_forward

# A copy of this package that is loaded under another name (the Hub's `kernels` library does so) gets operators of its
# own: torch.library overwrites an operator of the same name silently, for every caller.
NAMESPACE: str = re.sub(r"\W", "_", __name__.rsplit(".", 2)[0])

DTYPES = frozenset((torch.float32, torch.float16, torch.bfloat16))
PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))

_NO_FORWARD_MODE = (
    f"{NAMESPACE}::act_mul has no forward-mode derivative as a custom operator; call act_mul outside torch.compile"
)

_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_functorch_level = torch._C._functorch.peek_interpreter_stack
_tracing_state = torch._C._get_tracing_state


def act_mul(gate: torch.Tensor, up: torch.Tensor, activation: str) -> torch.Tensor:
    """act(gate)·up, element by element, computed in fp32 and rounded once.

    Args:
        gate: [...] float32, float16 or bfloat16, any layout.
        up: same shape and device as `gate`.
        activation: one of ACTIVATIONS.

    Returns:
        [...] contiguous, of dtype `torch.result_type(gate, up)`.

    Operands that are contiguous, or whose rows are a constant distance apart (both halves of a packed [..., 2H]
    tensor, say), are read in place; any other layout costs a copy. Differentiable twice and more; the first backward
    is one kernel that leaves the saved operands as they are. Higher orders run PyTorch's own operators in fp32.

    Raises:
        ValueError: unknown activation, or operands of different shape or device.
        TypeError: a dtype that is not supported.
        RuntimeError: a CPU tensor outside Triton's interpreter, or forward-mode differentiation inside torch.compile.
    """
    if _is_compiling():
        if differentiates_forward():
            raise RuntimeError(_NO_FORWARD_MODE)
        return _act_mul_op(gate, up, activation, DIGEST)  # type: ignore[no-any-return]
    if _is_plain_cuda(gate, up):
        return _act_mul_direct(gate, up, activation)
    if _functorch_level() is not None or forward_ad._current_level >= 0:
        return _ActMulTransformed.apply(gate, up, activation)  # type: ignore[no-any-return, no-untyped-call]
    return _act_mul_op(gate, up, activation, DIGEST)  # type: ignore[no-any-return]


def act_mul_reference(gate: torch.Tensor, up: torch.Tensor, activation: str) -> torch.Tensor:
    """The same function by PyTorch's operators: fp32 inside (fp64 for fp64 operands), one rounding."""
    dtype = torch.result_type(gate, up)
    inner = torch.promote_types(dtype, torch.float32)
    return (activate_reference(gate.to(inner), activation) * up.to(inner)).to(dtype)


def is_unwatched() -> bool:
    """Whether no mode, functorch transform, forward-mode level or tracer wants to see calls."""
    return (
        not _dispatch_modes()
        and not _function_modes()
        and _functorch_level() is None
        and forward_ad._current_level < 0
        and _tracing_state() is None
    )


def _is_plain_cuda(gate: torch.Tensor, up: torch.Tensor) -> bool:
    """Whether nothing but autograd, autocast and saved-tensor hooks can be watching a call on these operands.

    Then the dispatcher (29-70 us per custom operator on a slow host) has nothing to add. Tensor subclasses, dispatch
    and function modes, functorch transforms, forward-mode duals, tracers, and tensors whose memory is not their value
    (a pending negation, a symbolic zero) all need the operator.
    """
    return (
        type(gate) in PLAIN
        and type(up) in PLAIN
        and gate.is_cuda
        and is_unwatched()
        and not (gate.is_neg() or up.is_neg() or gate._is_zerotensor() or up._is_zerotensor())
    )


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def differentiates_forward() -> bool:
    """Whether forward-mode differentiation is on; the compiler asks once per graph, and guards on the answer itself."""
    return forward_ad._current_level >= 0


def _refuse_tangents() -> None:
    """The custom operator would return a result without a tangent, which reads as a derivative of zero."""
    if forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled():
        raise RuntimeError(_NO_FORWARD_MODE)


def _check(gate: torch.Tensor, up: torch.Tensor, activation: str) -> None:
    if gate.shape != up.shape:
        raise ValueError(f"gate and up must have one shape, got {tuple(gate.shape)} and {tuple(up.shape)}")
    if gate.device != up.device:
        raise ValueError(f"gate and up must be on one device, got {gate.device} and {up.device}")
    if gate.dtype not in DTYPES or up.dtype not in DTYPES:
        raise TypeError(f"gate and up must be float32, float16 or bfloat16, got {gate.dtype} and {up.dtype}")
    if activation not in ACTIVATIONS:
        raise ValueError(unknown_activation(activation))


def _act_mul_direct(gate: torch.Tensor, up: torch.Tensor, activation: str) -> torch.Tensor:
    """`act_mul` without the dispatcher."""
    if _is_grad_enabled() and (gate.requires_grad or up.requires_grad):
        return _apply(gate, up, activation)  # type: ignore[no-any-return, no-untyped-call]
    _check(gate, up, activation)
    return act_mul_forward(gate, up, activation)


def _gradients(
    dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, activation: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dgate, dup) by operators that autograd can differentiate again, in fp32."""
    v, g, u = dy.float(), gate.float(), up.float()
    dgate = activate_backward_reference(g, v * u, activation)
    dup = v * activate_reference(g, activation)
    return dgate.to(gate.dtype), dup.to(up.dtype)


class _ActMul(torch.autograd.Function):
    """`act_mul` with gradients, for eager calls on plain CUDA tensors."""

    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor, activation: str) -> torch.Tensor:
        _check(gate, up, activation)
        ctx.save_for_backward(gate, up)
        ctx.activation = activation
        return act_mul_forward(gate, up, activation)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        gate, up = ctx.saved_tensors
        want_dgate, want_dup, _ = ctx.needs_input_grad
        # Under create_graph the gradients themselves must carry a graph, which a kernel launch has not.
        if _is_grad_enabled():
            dgate, dup = _gradients(dy, gate, up, ctx.activation)
            return (dgate if want_dgate else None), (dup if want_dup else None), None
        if _is_plain_cuda(dy, gate) and _is_plain_cuda(dy, up):
            return *act_mul_backward(dy, gate, up, ctx.activation, want_dgate, want_dup), None
        # A mode was entered since the forward, or hooks or the gradient brought in other tensors.
        dgate, dup = _act_mul_backward_op(dy, gate, up, ctx.activation, want_dgate, want_dup)
        return (dgate if want_dgate else None), (dup if want_dup else None), None


# Function.apply first looks after functorch, which a plain call has ruled out: 2 of its 6 us.
_apply = super(torch.autograd.Function, _ActMul).apply


class _ActMulTransformed(torch.autograd.Function):
    """`act_mul` under torch.func transforms and forward-mode differentiation, where a custom operator is refused or,
    worse, loses the tangents without a word."""

    @staticmethod
    def forward(gate: torch.Tensor, up: torch.Tensor, activation: str) -> torch.Tensor:
        return _act_mul_op(gate, up, activation, DIGEST)  # type: ignore[no-any-return]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, torch.Tensor, str], output: torch.Tensor) -> None:
        gate, up, ctx.activation = inputs
        ctx.save_for_backward(gate, up)
        ctx.save_for_forward(gate, up)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        gate, up = ctx.saved_tensors
        want_dgate, want_dup, _ = ctx.needs_input_grad
        dgate, dup = _gradients(dy, gate, up, ctx.activation)
        return (dgate if want_dgate else None), (dup if want_dup else None), None

    @staticmethod
    def jvp(ctx: Any, tgate: torch.Tensor | None, tup: torch.Tensor | None, _: None) -> torch.Tensor:
        gate, up = ctx.saved_tensors
        g, u = gate.float(), up.float()
        dy = torch.zeros_like(g)
        if tgate is not None:
            dy = dy + activate_backward_reference(g, tgate.float() * u, ctx.activation)
        if tup is not None:
            dy = dy + activate_reference(g, ctx.activation) * tup.float()
        return dy.to(torch.result_type(gate, up))

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, int | None, None], gate: torch.Tensor, up: torch.Tensor, activation: str
    ) -> tuple[torch.Tensor, int]:
        batched = [
            operand.expand(info.batch_size, *operand.shape) if dim is None else operand.movedim(dim, 0)
            for operand, dim in zip((gate, up), in_dims, strict=False)
        ]
        return act_mul(batched[0], batched[1], activation), 0


@torch.library.custom_op(f"{NAMESPACE}::act_mul", mutates_args=())
def _act_mul_op(gate: torch.Tensor, up: torch.Tensor, activation: str, digest: str) -> torch.Tensor:
    _refuse_tangents()
    _check(gate, up, activation)
    return act_mul_forward(gate, up, activation)


@torch.library.custom_op(f"{NAMESPACE}::act_mul_backward", mutates_args=())
def _act_mul_backward_op(
    dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, activation: str, want_dgate: bool, want_dup: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """An unwanted gradient is an empty tensor: an operator cannot return None."""
    dgate, dup = act_mul_backward(dy, gate, up, activation, want_dgate, want_dup)
    return gate.new_empty(0) if dgate is None else dgate, up.new_empty(0) if dup is None else dup


@_act_mul_op.register_fake
def _(gate: torch.Tensor, up: torch.Tensor, activation: str, digest: str) -> torch.Tensor:
    _check(gate, up, activation)
    return torch.empty_like(gate, dtype=torch.result_type(gate, up), memory_format=torch.contiguous_format)


@_act_mul_backward_op.register_fake
def _(
    dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, activation: str, want_dgate: bool, want_dup: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    contiguous = torch.contiguous_format
    dgate = torch.empty_like(gate, memory_format=contiguous) if want_dgate else gate.new_empty(0)
    dup = torch.empty_like(up, memory_format=contiguous) if want_dup else up.new_empty(0)
    return dgate, dup


def _setup_context(ctx: Any, inputs: tuple[torch.Tensor, torch.Tensor, str, str], output: torch.Tensor) -> None:
    gate, up, ctx.activation, _ = inputs
    ctx.save_for_backward(gate, up)


def _op_backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None]:
    gate, up = ctx.saved_tensors
    want_dgate, want_dup, *_ = ctx.needs_input_grad
    if _is_grad_enabled():
        dgate, dup = _gradients(dy, gate, up, ctx.activation)
    else:
        dgate, dup = _act_mul_backward_op(dy, gate, up, ctx.activation, want_dgate, want_dup)
    return (dgate if want_dgate else None), (dup if want_dup else None), None, None


_act_mul_op.register_autograd(_op_backward, setup_context=_setup_context)
