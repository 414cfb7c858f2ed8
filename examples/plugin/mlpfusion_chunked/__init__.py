"""`chunked`: the MLP in slices of tokens, so that the wide tensors inside it are never there whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from mlpfusion import MLPSpec
    from mlpfusion.backend import GatedLayers
    from mlpfusion.device import Device

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "gelu": functional.gelu,
    "silu": functional.silu,
    "relu": functional.relu,
}


class Chunked:
    """A backend is a class with a name and two methods; it is made without arguments."""

    name = "chunked"
    rows = 1024  # tokens at once: gate, up and their product take 3 x rows x intermediate_size elements

    def unsupported(self, spec: MLPSpec, device: Device) -> str | None:
        """None if it can run this MLP on this device, else the reason that the user reads."""
        if spec.activation not in _ACTIVATIONS:
            return f"activation {spec.activation!r} is not written; valid: {', '.join(_ACTIVATIONS)}"
        return None

    def bind(self, mlp: GatedLayers) -> Callable[[Tensor], Tensor]:
        """What is done once is done here; what the returned function does is what gets measured."""
        act = _ACTIVATIONS[mlp.activation]

        def forward(x: Tensor) -> Tensor:
            """x [..., hidden_size] -> y [..., hidden_size]."""
            rows = x.reshape(-1, x.shape[-1])
            # The projections are called as modules: their hooks and adapters keep working.
            parts = [mlp.down_proj(act(mlp.gate_proj(part)) * mlp.up_proj(part)) for part in rows.split(self.rows)]
            return torch.cat(parts).view(x.shape)

        return forward
