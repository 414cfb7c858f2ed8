"""`quack`: gate, up and activation in one kernel of the PyPI package quack-kernels, forward and training."""

# Operators are called by position.
# ruff: noqa: PLR0917

from __future__ import annotations

import re
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from mlpfusion.backend import both
from mlpfusion.backends.adjacent_weights import Pair, joined, joined_biases
from mlpfusion.backends.bypass import autocast_dtype, plain_linears, refuse_bypassed
from mlpfusion.environment import provenance
from mlpfusion.errors import BackendUnavailableError, first_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.backend import GatedLayers
    from mlpfusion.device import Device
    from mlpfusion.spec import Activation, MLPSpec

OLDEST: Final = (0, 6, 5)
TOO_NEW: Final = (0, 7)
REQUIREMENT: Final = "quack-kernels>=0.6.5,<0.7"

# Its names of the gated activations. Its GEGLU is the tanh form, with a tanh that is compiled with fastmath.
ACTIVATIONS: Final[dict[Activation, str]] = {"gelu_tanh": "geglu", "silu": "swiglu", "relu": "reglu"}
# Major compute capabilities that its matrix products assert. Only 9 has been run with this adapter.
CAPABILITIES: Final = (8, 9, 10, 11, 12)
# Elements: its loads are 16 bytes wide.
ALIGNMENT: Final = 8
# In graphs, so that no cache of PyTorch's brings back the gradient of another version.
_SOURCES: Final = provenance.digest([Path(__file__)])


class Quack:
    """quack's gate/up GEMM with the activation in its epilogue, down by cuBLAS; its own GEMMs in backward.

    The weights of gate and up lie next to each other, which its `concat_layout` reads as they are. quack's own MLP
    runs plain PyTorch where its kernels cannot; here the same conditions are refused.

    `tuned` makes the first call of every new number of tokens search for the fastest configuration, some 20 seconds
    for each kernel; what was found is kept in ~/.quack. Such a call cannot be captured in a CUDA graph. Without it
    quack's default for the card is taken, at once.
    """

    name = "quack"
    distributions = ("quack-kernels", "nvidia-cutlass-dsl")  # its kernels, and the compiler they are for

    def __init__(self, *, tuned: bool = True) -> None:
        self.tuned = tuned

    def unsupported(self, spec: MLPSpec, device: Device) -> str | None:
        """The first limit that `spec`, `device` or the installation runs into; does not import quack (7 s)."""
        return both(_no_kernel_for(device), _not_installed) or _beyond_quack(spec) or _not_installed()

    def bind(self, mlp: GatedLayers) -> Callable[[Tensor], Tensor]:
        """Moves gate and up next to each other, as `packed` does; both parameters keep their identity.

        Raises:
            BackendUnavailableError: quack cannot be imported, or this module is none that it computes. Later, from a
                call: an input or a gradient that it cannot take; a weight or a bias of gate or up that is new or
                changed, a hook or another class.
        """
        plain_linears(mlp, self.name)
        reason = _beyond_quack(mlp.spec) or _not_installed()
        if reason is not None:
            raise BackendUnavailableError(self.name, reason)
        quack = _kernels()
        projections = (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        gate, up, down = projections
        weights = Pair(self.name, gate.weight, up.weight)
        biases = None if gate.bias is None else Pair(self.name, gate.bias, up.bias)
        activation, tuned = ACTIVATIONS[mlp.spec.activation], self.tuned

        def forward(x: Tensor) -> Tensor:
            refuse_bypassed(Quack.name, projections)  # hooks may have come since
            operands = (gate.weight, up.weight, down.weight, gate.bias, up.bias, down.bias)
            to = autocast_dtype(x)
            if to is None or x.device != operands[0].device:
                _refuse_unlike(x, operands)
            else:
                x = x.to(to)
            train = torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (x, *operands))
            if train or torch.compiler.is_compiling():
                if train and any(bias is not None for bias in operands[3:]):
                    raise BackendUnavailableError(Quack.name, "its backward has no biases, and this module has one")
                y: Tensor = _mlp_op(x, *operands, activation, tuned, train, _SOURCES)[0]
                return y
            both = weights.joined(*operands[:2])
            bias = joined_biases(Quack.name, operands[3], operands[4], biases)
            return _forward(quack, x, both, bias, operands[2], operands[5], activation, tuned, False)[0]

        return forward


def _no_kernel_for(device: Device) -> str | None:
    if device.kind == "cpu":
        return "quack's kernels need a GPU; this run is on the CPU"
    if device.runtime != "cuda" or device.capability is None:
        return f"quack's kernels are for CUDA; {device.name} is a {device.runtime} device"
    if device.capability[0] not in CAPABILITIES:
        return f"quack is written for compute capability 8 to 12; {device.name} has {device.capability}"
    return None


def _beyond_quack(spec: MLPSpec) -> str | None:
    if spec.activation not in ACTIVATIONS:
        return f"quack has no gated {spec.activation}; valid: {', '.join(ACTIVATIONS)}"
    if spec.dtype == "float32":
        return "quack multiplies float16 and bfloat16; these weights are float32"
    for name in ("hidden_size", "intermediate_size"):
        size = getattr(spec, name)
        if size % ALIGNMENT:
            return f"quack needs sizes that are multiples of {ALIGNMENT}; {name} is {size}"
    return None


def _not_installed() -> str | None:
    """Why quack-kernels cannot be used as it is installed, or None; reads metadata only."""
    if util.find_spec("quack") is None:
        return "quack-kernels is not installed (pip install 'mlpfusion[quack]')"
    try:
        version = metadata.version("quack-kernels")
    except metadata.PackageNotFoundError:
        return f"a package quack is there but not as quack-kernels: its version is unknown, need {REQUIREMENT}"
    release = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    if not OLDEST <= release < TOO_NEW:
        return f"quack-kernels {version} is installed, need {REQUIREMENT}"
    return None


def _kernels() -> Any:
    """The module that holds quack's matrix products."""
    try:
        from quack import gemm_interface
    except Exception as error:  # its import compiles nothing, but loads libraries that may not fit this machine
        reason = f"quack cannot be imported: {type(error).__name__}: {first_line(error)}"
        raise BackendUnavailableError(Quack.name, reason) from error
    return gemm_interface


def _refuse_unlike(x: Tensor, operands: tuple[Tensor | None, ...]) -> None:
    """Refuse an x on another device than a weight, or of another dtype."""
    for one in operands:
        if one is not None and (one.dtype != x.dtype or one.device != x.device):
            raise BackendUnavailableError(
                Quack.name, f"x is {x.dtype} on {x.device} and the weights are {one.dtype} on {one.device}"
            )


def _unreadable(x: Tensor) -> str | None:
    """Why quack's kernels cannot read x as it is, or None; its own MLP would run plain PyTorch instead."""
    if x.stride(-1) != 1:
        return f"the last dimension of x has stride {x.stride(-1)}; quack reads stride 1 (x.contiguous() has it)"
    rows = _rows(x)
    if rows.stride(0) % ALIGNMENT or rows.data_ptr() % 16:
        return (
            f"rows of x are {rows.stride(0)} elements apart and start at address {rows.data_ptr():#x}; quack reads "
            f"multiples of {ALIGNMENT} elements from multiples of 16 bytes (x.clone() has them)"
        )
    return None


def _rows(tensor: Tensor) -> Tensor:
    """[..., n] as [M, n]; a single row gets the stride that more would have, as PyTorch lets it have any."""
    rows = tensor if tensor.dim() == 2 else tensor.reshape(-1, tensor.shape[-1])
    if rows.shape[0] > 1 or rows.stride(0) == rows.shape[1]:
        return rows
    return rows.as_strided(rows.shape, (rows.shape[1], rows.stride(1)))


def _forward(
    quack: Any,
    x: Tensor,
    both: Tensor,
    bias: Tensor | None,
    down: Tensor,
    down_bias: Tensor | None,
    activation: str,
    tuned: bool,
    keep: bool,
) -> tuple[Tensor, Tensor | None]:
    """x [..., D], gate and up [2H, D], down [D, H] -> y [..., D] and, to keep for backward, gate and up [M, 2H].

    Columns of the latter alternate: gate 0, up 0, gate 1, up 1 and so on.
    """
    both, down = both.to(x.dtype), down.to(x.dtype)
    reason = _unreadable(x)
    if reason is not None:
        raise BackendUnavailableError(Quack.name, reason)
    preact, product = quack.gemm_gated(
        _rows(x),
        both.T,
        bias=None if bias is None else bias.to(x.dtype),
        activation=activation,
        store_preact=keep,
        concat_layout=("B", "bias"),
        tuned=tuned,
    )
    y = functional.linear(product, down, None if down_bias is None else down_bias.to(x.dtype))
    return y.view(*x.shape[:-1], down.shape[0]), preact


@torch.library.custom_op("mlpfusion_quack::mlp", mutates_args=())
def _mlp_op(
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    gate_bias: Tensor | None,
    up_bias: Tensor | None,
    down_bias: Tensor | None,
    activation: str,
    tuned: bool,
    keep: bool,
    digest: str,
) -> tuple[Tensor, Tensor]:
    """`_forward` on two adjacent weights; what is not kept is an empty tensor, as an operator cannot return None."""
    bias = joined_biases(Quack.name, gate_bias, up_bias)
    both = joined(Quack.name, gate, up)
    y, preact = _forward(_kernels(), x, both, bias, down, down_bias, activation, tuned, keep)
    return y, x.new_empty(0) if preact is None else preact


@_mlp_op.register_fake
def _mlp_shape(
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    gate_bias: Tensor | None,
    up_bias: Tensor | None,
    down_bias: Tensor | None,
    activation: str,
    tuned: bool,
    keep: bool,
    digest: str,
) -> tuple[Tensor, Tensor]:
    kept = (x.numel() // x.shape[-1], 2 * gate.shape[0]) if keep else (0,)
    return x.new_empty((*x.shape[:-1], down.shape[0])), x.new_empty(kept)


@torch.library.custom_op("mlpfusion_quack::mlp_backward", mutates_args=())
def _gradients_op(
    dy: Tensor,
    x: Tensor,
    preact: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    activation: str,
    tuned: bool,
    want_dx: bool,
    want_dboth: bool,
    want_ddown: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """dy [..., D] -> dx [..., D], the gradient of gate and up [2H, D], and that of down [D, H].

    One that is not wanted is an empty tensor.
    """
    quack, dy, both = _kernels(), _aligned(_rows(dy).to(x.dtype)), joined(Quack.name, gate, up).to(x.dtype)
    dpreact, product = quack.gemm_dgated(dy, down.to(x.dtype), preact, activation=activation, tuned=tuned)
    # A scheduler that hands out tiles as they are finished, as in quack's own backward.
    how = {"dynamic_scheduler": True, "tuned": tuned}
    none = x.new_empty(0)
    return (
        quack.gemm(dpreact, both, concat_layout=("B",), **how).view(x.shape) if want_dx else none,
        quack.gemm(dpreact.T, _rows(x), concat_layout=("out",), **how) if want_dboth else none.clone(),
        dy.T @ product if want_ddown else none.clone(),
    )


@_gradients_op.register_fake
def _gradients_shape(
    dy: Tensor,
    x: Tensor,
    preact: Tensor,
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    activation: str,
    tuned: bool,
    want_dx: bool,
    want_dboth: bool,
    want_ddown: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        x.new_empty(x.shape if want_dx else 0),
        x.new_empty((2 * gate.shape[0], gate.shape[1]) if want_dboth else 0),
        x.new_empty(down.shape if want_ddown else 0),
    )


def _aligned(rows: Tensor) -> Tensor:
    """The rows, copied where they are not adjacent or do not start at a multiple of 16 bytes."""
    return (
        rows
        if rows.is_contiguous() and rows.data_ptr() % 16 == 0
        else rows.clone(memory_format=torch.contiguous_format)
    )


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, gate, up, down, _, _, _, activation, tuned, *_ = inputs
    preact = output[1]
    ctx.mark_non_differentiable(preact)
    ctx.set_materialize_grads(False)  # else a gradient of zeros, [M, 2H], is made for what nobody differentiates
    ctx.save_for_backward(x, gate, up, down, preact)
    ctx.activation, ctx.tuned = activation, tuned


def _backward(ctx: Any, dy: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled():  # autograd enables it in backward exactly when create_graph is set
        raise BackendUnavailableError(
            Quack.name, "its backward cannot be differentiated: create_graph=True is not supported"
        )
    nothing = (None,) * 11
    if dy is None:
        return nothing
    x, gate, up, down, preact = ctx.saved_tensors
    want_dx, want_dgate, want_dup, want_ddown, *_ = ctx.needs_input_grad
    dx, dboth, ddown = _gradients_op(
        dy, x, preact, gate, up, down, ctx.activation, ctx.tuned, want_dx, want_dgate or want_dup, want_ddown
    )
    dgate, dup = dboth.to(gate.dtype).chunk(2) if want_dgate or want_dup else (None, None)
    return (
        dx if want_dx else None,
        dgate if want_dgate else None,
        dup if want_dup else None,
        ddown.to(down.dtype) if want_ddown else None,
        *nothing[4:],
    )


_mlp_op.register_autograd(_backward, setup_context=_save)
