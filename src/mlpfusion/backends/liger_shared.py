"""The part that `liger` and `hub` share: the limits of Liger's gated MLPs, and their forward on our modules."""

from __future__ import annotations

import types
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import torch

from mlpfusion.backends.bypass import plain_linears
from mlpfusion.device import describe
from mlpfusion.errors import BackendUnavailableError, first_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from mlpfusion.backend import GatedLayers
    from mlpfusion.device import Device
    from mlpfusion.spec import Activation, MLPSpec

# Liger's class by activation. Its GEGLU is the tanh form whatever `hidden_act` says, so no other GELU may reach it.
LAYERS: Final[dict[Activation, str]] = {"gelu_tanh": "LigerGEGLUMLP", "silu": "LigerSwiGLUMLP"}

# One program holds a whole row in one block of at most this many columns (Liger's calculate_settings).
WIDEST_ROW: Final = 65536

NEEDS_GPU: Final = "Liger's kernels are Triton and need a GPU; this run is on the CPU"


def no_gpu(device: Device) -> str | None:
    """Why Liger's kernels cannot run on `device`, or None."""
    if device.kind == "cpu":
        return NEEDS_GPU
    if device.interpreted:
        # The SwiGLU kernel fails there too: it calls .to() on a scalar argument, which the interpreter leaves a float.
        return "Liger's kernels do not run in Triton's interpreter (TRITON_INTERPRET=1): it has no libdevice.tanh"
    return None


def beyond_liger(spec: MLPSpec, device: Device, *, tiles_wide_rows: bool) -> str | None:
    """Why Liger has no MLP like `spec` on `device`, or None.

    `tiles_wide_rows` says that this copy of Liger splits wide SwiGLU rows into tiles on a Blackwell GPU, as the PyPI
    package does.
    """
    if spec.activation not in LAYERS:
        return (
            f"Liger has no gated MLP with {spec.activation}; valid: {', '.join(LAYERS)} (its GEGLU is always the tanh "
            "form, whatever hidden_act says)"
        )
    if spec.bias:
        return "Liger's MLPs have no biases and this one has"
    tiled = tiles_wide_rows and spec.activation == "silu" and _is_blackwell(device)
    if spec.intermediate_size > WIDEST_ROW and not tiled:
        return f"intermediate_size {spec.intermediate_size} is over {WIDEST_ROW}, the widest row of Liger's kernels"
    if spec.dtype == "bfloat16" and device.runtime == "cuda" and (device.capability or (8, 0)) < (8, 0):
        return f"Triton needs compute capability 8.0 for bfloat16; {device.name} has less"
    return None


def borrow(layers: object, mlp: GatedLayers, backend: str, *, tiles_wide_rows: bool) -> Callable[[Tensor], Tensor]:
    """Liger's own forward, run on `mlp` and its three weights: x [..., hidden_size] -> y [..., hidden_size].

    `layers` is the module that holds Liger's classes. Where such a class is a module with projections of its own
    (PyPI, version 1 of the Hub kernel) none is built: the forward reads gate_proj, up_proj and down_proj from the
    module it is given, which also keeps a projection that is replaced later in use.

    Liger's backward writes the gradients over the tensors saved for it without raising their version, so autograd
    cannot notice that a second backward or a double backward is wrong; both are refused here.

    Raises:
        BackendUnavailableError: this module is none that Liger computes, or the class is missing. Later, from
            backward: create_graph=True, or a second backward through the same call.
    """
    plain_linears(mlp, backend)
    device = describe(mlp.gate_proj.weight.device)
    reason = beyond_liger(mlp.spec, device, tiles_wide_rows=tiles_wide_rows)
    if reason is None and device.kind == "cpu" and not device.interpreted:
        reason = NEEDS_GPU
    if reason is not None:
        raise BackendUnavailableError(backend, reason)
    name = LAYERS[mlp.spec.activation]
    forward: Any = getattr(getattr(layers, name, None), "forward", None)
    if not callable(forward):
        raise BackendUnavailableError(backend, f"its package has no layers.{name}")
    if name == "LigerSwiGLUMLP":
        # Its function reads torch.distributed.tensor, a submodule that torch 2.12 and later load only on request.
        try:
            import_module("torch.distributed.tensor")
        except ImportError as error:
            raise BackendUnavailableError(backend, f"torch.distributed.tensor: {first_line(error)}") from error
    return _guarded(types.MethodType(forward, mlp), backend)


def _guarded(forward: Callable[[Tensor], Tensor], backend: str) -> Callable[[Tensor], Tensor]:
    def run(x: Tensor) -> Tensor:
        y = forward(x)
        # Without gradients this costs a frame and one attribute, 60 ns; with them 2 µs (CPython 3.11, a 2-core CPU),
        # where Liger's own forward takes 45 µs and more of host time. Compiled code refuses double backward by itself.
        if y.requires_grad and not torch.compiler.is_compiling():
            node = y.grad_fn
            if node is not None:
                node.register_prehook(_BackwardOnce(backend))
        return y

    return run


class _BackwardOnce:
    """A hook in front of one call's backward that lets it run a single time, at first order."""

    __slots__ = ("backend", "spent")

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.spent = False

    def __call__(self, grad_outputs: tuple[Tensor, ...]) -> None:
        if torch.is_grad_enabled():  # autograd enables it in backward exactly when create_graph is set
            raise BackendUnavailableError(
                self.backend, "Liger's backward cannot be differentiated: create_graph=True is not supported"
            )
        if self.spent:
            raise BackendUnavailableError(
                self.backend,
                "Liger's backward overwrites what it saved: a second backward through the same call "
                "(retain_graph=True) would be wrong",
            )
        self.spent = True


def _is_blackwell(device: Device) -> bool:
    return device.runtime == "cuda" and device.capability in ((10, 0), (10, 3), (12, 0))
