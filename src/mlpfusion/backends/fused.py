"""`fused`: one gate/up kernel with the activation in its epilogue, then down: two kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from mlpfusion.backend import OnTensors, release
from mlpfusion.backends.bypass import plain_linears, refuse_bypassed
from mlpfusion.device import is_interpreted
from mlpfusion.errors import BackendUnavailableError
from mlpfusion.module import PackedGatedMLP

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion_kernels import Weights
    from torch import Tensor

    from mlpfusion.backend import GatedLayers
    from mlpfusion.device import Device
    from mlpfusion.spec import MLPSpec

# A row that is no multiple of 16 elements loses the wide copies, and the kernel with them spills its registers.
MULTIPLE: Final = 16
_WRONG: Final = "Triton's interpreter computes bfloat16 matrix products wrongly"


class Fused:
    """Our gate/up GEMM with act·mul in its epilogue, down by cuBLAS or, for few tokens, by a kernel of our own."""

    name = "fused"
    takes_packed = True

    def __init__(self, *, recompute: bool = False) -> None:
        """With `recompute` only x is kept for the backward, which computes gate and up once more."""
        self.recompute = recompute

    def unsupported(self, spec: MLPSpec, device: Device) -> str | None:
        """Sizes, dtypes and cards that no kernel was written for."""
        for name, size in (("hidden_size", spec.hidden_size), ("intermediate_size", spec.intermediate_size)):
            if size % MULTIPLE:
                return f"{name} must be a multiple of {MULTIPLE}, got {size}"
        if device.interpreted and (fault := no_loops()) is not None:
            return fault
        if spec.dtype == "bfloat16" and device.interpreted:
            return f"{_WRONG}; use float16 or float32 there"
        if device.kind == "cpu" and not device.interpreted:
            if spec.dtype == "bfloat16":
                return f"Triton kernels need a GPU, and {_WRONG}; with --dtype float32 or float16 they are emulated"
            return "Triton kernels need a GPU; this run is on the CPU (TRITON_INTERPRET=1 emulates them there)"
        if device.runtime == "rocm":
            return "the kernels are not written for AMD GPUs: Triton's compiler for those refuses them"
        if device.runtime == "cuda" and device.capability is not None and device.capability < (8, 0):
            return f"the kernels need compute capability 8.0 or later; {device.name} has {device.capability}"
        return None

    @property
    def on_tensors(self) -> OnTensors:
        """The kernels' forward and backward, without a module."""
        from mlpfusion_kernels import unreadable
        from mlpfusion_kernels.gate_up.autograd import rows_backward, rows_forward, rows_middle

        return OnTensors(rows_forward, rows_backward, unreadable, rows_middle)

    def bind(self, mlp: GatedLayers) -> Callable[[Tensor], Tensor]:
        """Reads the parameters in place at each call; nothing is packed or padded.

        Raises:
            BackendUnavailableError: projections that are more than linear layers on plain weights, rows of a weight
                that are not adjacent or not at multiples of 16 bytes, or gate and up in one tensor.
        """
        from mlpfusion_kernels import gated_mlp, unreadable

        plain_linears(mlp, self.name)
        projections = tuple(mlp.projections.values())
        activation, recompute = mlp.spec.activation, self.recompute
        weights = _weights(mlp)
        reason = unreadable(weights())
        if reason is not None:
            raise BackendUnavailableError(self.name, reason)

        def forward(x: Tensor) -> Tensor:
            refuse_bypassed(Fused.name, projections)  # hooks may have come since
            y: Tensor = gated_mlp(x, weights(), activation, recompute=recompute)
            return y

        return _right_numbers(forward) if is_interpreted() else forward


def no_loops() -> str | None:
    """Why Triton's interpreter cannot run a loop here, or None: before 3.7 it makes an int of a one-element array."""
    import numpy as np
    import triton

    if release(triton.__version__) >= (3, 7) or release(np.__version__) < (2, 4):
        return None
    return (
        f"the interpreter of Triton {triton.__version__} cannot run loops with NumPy {np.__version__}; "
        "install numpy<2.4, or Triton 3.7 with the PyTorch that brings it"
    )


def _right_numbers(forward: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """`forward` in Triton's interpreter, but for autocast to bfloat16, whose products would be wrong there."""
    import torch

    def checked(x: Tensor) -> Tensor:
        kind = x.device.type
        if torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.bfloat16:
            raise BackendUnavailableError(Fused.name, f"autocast to bfloat16: {_WRONG}; use float16 there")
        return forward(x)

    return checked


def _weights(mlp: GatedLayers) -> Callable[[], Weights]:
    """A function that reads the current weights and biases in place."""
    from mlpfusion_kernels import Weights

    if isinstance(mlp, PackedGatedMLP):
        out, packed = mlp.down_proj, mlp

        def halves() -> Weights:
            gate, up, gate_bias, up_bias = packed.weights()
            return Weights(gate, up, out.weight, gate_bias, up_bias, out.bias)

        return halves
    layers = (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
    # nn.Module takes half a microsecond to find an attribute. These dicts live as long as their modules.
    tables: list[dict[str, Any]] = [layer._parameters for layer in layers]
    gate, up, down = tables

    def read() -> Weights:
        try:
            return Weights(gate["weight"], up["weight"], down["weight"], gate["bias"], up["bias"], down["bias"])
        except KeyError:  # sharding, say, puts plain tensors in the place of parameters
            return Weights(*(layer.weight for layer in layers), *(layer.bias for layer in layers))

    return read
