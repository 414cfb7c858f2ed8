"""`packed`: gate and up as one matrix product over adjacent weights, then our act·mul kernel."""

# Operators are called by position.
# ruff: noqa: PLR0917

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional

from mlpfusion.backends.adjacent_weights import Pair, joined, joined_biases
from mlpfusion.backends.bypass import autocast_dtype, plain_linears, refuse_bypassed
from mlpfusion.backends.triton import Triton, act_mul_unsupported
from mlpfusion.environment import provenance
from mlpfusion.errors import BackendUnavailableError
from mlpfusion.module import PackedGatedMLP

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.backend import GatedLayers
    from mlpfusion.device import Device
    from mlpfusion.spec import MLPSpec

# In graphs, so that no cache of PyTorch's brings back the gradient of another version.
_SOURCES: Final = provenance.digest([Path(__file__)])


class Packed:
    """One gate/up GEMM and act·mul reading its halves in place, down by cuBLAS: three kernels."""

    name = "packed"
    takes_packed = True

    def unsupported(self, spec: MLPSpec, device: Device) -> str | None:
        """The limits of our act·mul kernel."""
        return act_mul_unsupported(spec, device)

    def bind(self, mlp: GatedLayers) -> Callable[[Tensor], Tensor]:
        """Moves gate and up next to each other in one buffer; both parameters keep their identity, as views of it.

        An optimiser step, `load_state_dict` or any other in-place update reaches the next call. The move copies both
        weights once. Where one layer holds both already, nothing moves and this is what `triton` does.

        Raises:
            BackendUnavailableError: as `plain_linears`, or a weight cannot be moved. Later, from a call: an x of
                another dtype; a weight or a bias of gate or up that is new or changed, a hook or another class.
        """
        if isinstance(mlp, PackedGatedMLP):
            return Triton().bind(mlp)
        from mlpfusion_kernels import act_mul

        plain_linears(mlp, self.name)
        projections = (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        weights = Pair(self.name, mlp.gate_proj.weight, mlp.up_proj.weight)
        biases = None if mlp.gate_proj.bias is None else Pair(self.name, mlp.gate_proj.bias, mlp.up_proj.bias)
        activation = mlp.spec.activation
        gate, up, down = projections

        def forward(x: Tensor) -> Tensor:
            refuse_bypassed(Packed.name, projections)  # hooks may have come since
            # The op costs tens of µs of host time. Gradients need it, and a compiler, which may not assume where a
            # weight lies; so does autocast, whose casts it knows.
            if torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.is_autocast_enabled(x.device.type):
                both = gate_up(x, gate.weight, up.weight, gate.bias, up.bias)
            else:
                weight = weights.joined(gate.weight, up.weight)
                both = functional.linear(x, weight, joined_biases(Packed.name, gate.bias, up.bias, biases))
            halves = both.chunk(2, dim=-1)
            return functional.linear(act_mul(halves[0], halves[1], activation), down.weight, down.bias)

        return forward


def gate_up(x: Tensor, gate: Tensor, up: Tensor, gate_bias: Tensor | None, up_bias: Tensor | None) -> Tensor:
    """x [..., K] times two adjacent weights [H, K], [H, K] in one product -> [..., 2H], gate first.

    Differentiable and opaque to compilers. Under autocast x is cast first; the product has the dtype of x.

    Raises:
        BackendUnavailableError: x is of another dtype than the weights, there is one bias, or the two weights (or
            biases) are not adjacent in one storage.
    """
    to = autocast_dtype(x)
    if to is not None:
        x = x.to(to)
    elif x.dtype != gate.dtype:
        raise BackendUnavailableError(Packed.name, f"x is {x.dtype} and the weights are {gate.dtype}")
    if _differentiates_forward():  # where the operator would lose the tangents without a word
        bias = None if gate_bias is None or up_bias is None else torch.cat((gate_bias, up_bias)).to(x.dtype)
        return functional.linear(x, torch.cat((gate, up)).to(x.dtype), bias)
    both: Tensor = _gate_up_op(x, gate, up, gate_bias, up_bias, _SOURCES)
    return both


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # as in act_mul
def _differentiates_forward() -> bool:
    return forward_ad._current_level >= 0


def _product(
    x: Tensor, gate: Tensor, up: Tensor, gate_bias: Tensor | None, up_bias: Tensor | None, digest: str
) -> Tensor:
    if forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled():
        raise RuntimeError(f"{Packed.name} has no forward-mode derivative inside torch.compile")
    both = joined(Packed.name, gate, up).to(x.dtype)
    bias = joined_biases(Packed.name, gate_bias, up_bias)
    return functional.linear(x, both, None if bias is None else bias.to(x.dtype))


_gate_up_op = torch.library.custom_op("mlpfusion_packed::gate_up", _product, mutates_args=())


@_gate_up_op.register_fake
def _gate_up_shape(
    x: Tensor, gate: Tensor, up: Tensor, gate_bias: Tensor | None, up_bias: Tensor | None, digest: str
) -> Tensor:
    return x.new_empty((*x.shape[:-1], 2 * gate.shape[0]))


@torch.library.custom_op("mlpfusion_packed::gate_up_backward", mutates_args=())
def _gradients_op(
    dy: Tensor, x: Tensor, gate: Tensor, up: Tensor, want_dx: bool, want_dweight: bool
) -> tuple[Tensor, Tensor]:
    """dy [..., 2H], x [..., K] -> dx [..., K] and the gradient of both weights [2H, K], each in one product.

    One that is not wanted is an empty tensor: an operator cannot return None.
    """
    dx = dy @ joined(Packed.name, gate, up).to(dy.dtype) if want_dx else dy.new_empty(0)
    return dx, _rows(dy).T @ _rows(x) if want_dweight else dy.new_empty(0)


@_gradients_op.register_fake
def _gradients_shape(
    dy: Tensor, x: Tensor, gate: Tensor, up: Tensor, want_dx: bool, want_dweight: bool
) -> tuple[Tensor, Tensor]:
    dx = dy.new_empty(x.shape) if want_dx else dy.new_empty(0)
    return dx, dy.new_empty((2 * gate.shape[0], gate.shape[1])) if want_dweight else dy.new_empty(0)


def _rows(tensor: Tensor) -> Tensor:
    """[..., n] as [M, n]."""
    return tensor.reshape(-1, tensor.shape[-1])


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, gate, up, gate_bias, *_ = inputs
    ctx.save_for_backward(x, gate, up)
    ctx.bias_dtype = None if gate_bias is None else gate_bias.dtype


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    x, gate, up = ctx.saved_tensors
    want_dx, want_dgate, want_dup, want_dgate_bias, want_dup_bias, _ = ctx.needs_input_grad
    want_dweight = want_dgate or want_dup
    if torch.is_grad_enabled():  # gradients of gradients are wanted: PyTorch's own ops know their derivatives
        both = torch.cat((gate, up)).to(dy.dtype)
        dx, dweight = dy @ both, _rows(dy).T @ _rows(x)
    else:
        dx, dweight = _gradients_op(dy, x, gate, up, want_dx, want_dweight)
    dgate, dup = dweight.to(gate.dtype).chunk(2) if want_dweight else (None, None)
    dgate_bias = dup_bias = None
    if want_dgate_bias or want_dup_bias:
        dgate_bias, dup_bias = _rows(dy).sum(0).to(ctx.bias_dtype).chunk(2)
    found = (dx, dgate, dup, dgate_bias, dup_bias, None)
    return tuple(value if want else None for value, want in zip(found, ctx.needs_input_grad, strict=True))


_gate_up_op.register_autograd(_backward, setup_context=_save)
