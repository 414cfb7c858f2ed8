"""`eager`: the module as PyTorch runs it, the baseline of every comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import torch
from torch.nn import functional

from mlpfusion.backend import OnTensors
from mlpfusion.module import PackedGatedMLP
from mlpfusion.spec import Activation, parse_activation

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FunctionType

    from torch import Tensor

    from mlpfusion.backend import GatedLayers
    from mlpfusion.device import Device
    from mlpfusion.spec import MLPSpec


class Eager:
    """Three `nn.Linear` calls, the activation and the product: five kernels on a GPU."""

    name = "eager"
    takes_packed = True

    def unsupported(self, spec: MLPSpec, device: Device) -> str | None:
        """Eager PyTorch runs every spec."""
        return None

    @property
    def on_tensors(self) -> OnTensors:
        """PyTorch's products, without a module."""
        from mlpfusion.backends import products

        return OnTensors(products.forward, products.backward, products.unreadable, products.middle)

    def bind(self, mlp: GatedLayers) -> Callable[[Tensor], Tensor]:
        """Calls the three projections as modules, so that hooks and adapters on them take part."""
        return forward_of(mlp)


def activation_function(activation: Activation) -> Callable[[Tensor], Tensor]:
    """PyTorch's own function for an activation."""
    return FUNCTIONS[activation]


def _gelu_tanh(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


def _quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)  # as transformers has it: PyTorch has no operator for it


def _relu2(x: Tensor) -> Tensor:
    return functional.relu(x).square()


FUNCTIONS: Final[dict[Activation, Callable[[Tensor], Tensor]]] = {
    "gelu_tanh": _gelu_tanh,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "quick_gelu": _quick_gelu,
    "relu": functional.relu,
    "relu2": _relu2,
}


def forward_of(mlp: GatedLayers) -> FunctionType:
    """The eager forward of a module: x [..., hidden_size] -> y [..., hidden_size]."""
    act = activation_function(parse_activation(mlp.activation))
    if isinstance(mlp, PackedGatedMLP):
        both, out, halves = mlp.gate_up_proj, mlp.down_proj, mlp.halves

        def packed_forward(x: Tensor) -> Tensor:
            gate, up = halves(both(x))
            y: Tensor = out(act(gate) * up)
            return y

        return cast("FunctionType", packed_forward)
    gate, up, down = mlp.gate_proj, mlp.up_proj, mlp.down_proj

    def forward(x: Tensor) -> Tensor:
        y: Tensor = down(act(gate(x)) * up(x))
        return y

    return cast("FunctionType", forward)
