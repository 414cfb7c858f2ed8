"""What a backend bypasses that does not call the layers: their hooks, another forward, another class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

if TYPE_CHECKING:
    from mlpfusion.module import GatedMLP

CHANGES = ("hook", "pre_hook", "forward")


def change_a_layer(mlp: GatedMLP, change: str) -> None:
    """Do one of CHANGES to a layer."""
    if change == "forward":
        mlp.up_proj.forward = lambda x: x  # type: ignore[assignment,method-assign,misc]
    elif change == "hook":
        mlp.gate_proj.register_forward_hook(lambda *_: None)
    else:
        mlp.down_proj.register_forward_pre_hook(lambda *_: None)


class Tripled(nn.Linear):
    """Stands for whatever gives a layer another class: adapters, quantisation, sharding."""

    def forward(self, input: Tensor) -> Tensor:
        return 3 * super().forward(input)


class Doubled(nn.Module):
    """A parametrization."""

    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight
