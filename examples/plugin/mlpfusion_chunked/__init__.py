"""`chunked`: the MLP in slices of tokens, so that the wide tensors inside it are never there whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from mlpfusion.module import PackedGatedMLP

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
    takes_packed = True  # it also runs an MLP whose gate and up are one layer, as Phi-3's
    rows = 1024  # tokens at once: gate, up and their product take 3 x rows x intermediate_size elements

    def unsupported(self, spec: MLPSpec, device: Device) -> str | None:
        """None if it can run this MLP on this device, else the reason that the user reads."""
        if spec.activation not in _ACTIVATIONS:
            return f"activation {spec.activation!r} is not written; valid: {', '.join(_ACTIVATIONS)}"
        return None

    def bind(self, mlp: GatedLayers) -> Callable[[Tensor], Tensor]:
        """What is done once is done here; what the returned function does is what gets measured."""
        act = _ACTIVATIONS[mlp.activation]

        def gate_and_up(part: Tensor) -> tuple[Tensor, Tensor]:
            if isinstance(mlp, PackedGatedMLP):
                return mlp.halves(mlp.gate_up_proj(part))  # which half is gate differs between models
            return mlp.gate_proj(part), mlp.up_proj(part)

        def forward(x: Tensor) -> Tensor:
            """x [..., hidden_size] -> y [..., hidden_size]."""
            rows = x.reshape(-1, x.shape[-1])
            # The projections are called as modules: their hooks and adapters keep working, and autocast casts for them.
            parts = []
            for part in rows.split(self.rows):
                gate, up = gate_and_up(part)
                parts.append(mlp.down_proj(act(gate) * up))
            return torch.cat(parts).view(x.shape)

        return forward
