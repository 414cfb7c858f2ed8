"""Gated-MLP layers for `kernelize`: forwards that use the projections of the module they replace."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .activations import TABLE
from .elementwise.autograd import act_mul


def _layer(name: str, activation: str) -> type[nn.Module]:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        """[..., hidden_size] -> [..., hidden_size]."""
        out: torch.Tensor = self.down_proj(act_mul(self.gate_proj(x), self.up_proj(x), activation))
        return out

    forward.__qualname__ = f"{name}.forward"
    members = {
        "__module__": __name__,
        "__doc__": f"down({activation}(gate(x))·up(x)) for x of [..., hidden_size].",
        "has_backward": True,
        "can_torch_compile": True,
        "forward": forward,
    }
    return type(name, (nn.Module,), members)


LAYERS: dict[str, type[nn.Module]] = {name: _layer(f"Mlpfusion{row.layer}MLP", name) for name, row in TABLE.items()}

__all__ = [layer.__name__ for layer in LAYERS.values()]
globals().update({layer.__name__: layer for layer in LAYERS.values()})
