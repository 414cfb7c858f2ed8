"""A gated MLP of plain layers with names of its own, which tests swap as it is or with a mistake in it."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class Plain(nn.Module):
    """A gated MLP with room for a mistake."""

    def __init__(self, d: int = 32, h: int = 48, *, bias: bool = False) -> None:
        super().__init__()
        self.c = nn.Linear(h, d, bias=bias)
        self.a = nn.Linear(d, h, bias=bias)
        self.b = nn.Linear(d, h, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.c(functional.silu(self.a(x)) * self.b(x))
        return y
