"""Gated-MLP layers for `kernelize`: forwards that use the projections of the module they replace."""

from __future__ import annotations

import torch
from torch import nn

from .elementwise.autograd import act_mul

__all__ = ["MlpfusionGegluMLP", "MlpfusionGegluTanhMLP", "MlpfusionRegluMLP", "MlpfusionSwigluMLP"]


class MlpfusionGegluTanhMLP(nn.Module):
    """down(gelu_tanh(gate(x))·up(x)) for x of [..., hidden_size]."""

    has_backward: bool = True
    can_torch_compile: bool = True

    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., hidden_size] -> [..., hidden_size]."""
        out: torch.Tensor = self.down_proj(act_mul(self.gate_proj(x), self.up_proj(x), "gelu_tanh"))
        return out


class MlpfusionGegluMLP(nn.Module):
    """down(gelu(gate(x))·up(x)) with the exact, erf form of GELU, for x of [..., hidden_size]."""

    has_backward: bool = True
    can_torch_compile: bool = True

    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., hidden_size] -> [..., hidden_size]."""
        out: torch.Tensor = self.down_proj(act_mul(self.gate_proj(x), self.up_proj(x), "gelu"))
        return out


class MlpfusionSwigluMLP(nn.Module):
    """down(silu(gate(x))·up(x)) for x of [..., hidden_size]."""

    has_backward: bool = True
    can_torch_compile: bool = True

    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., hidden_size] -> [..., hidden_size]."""
        out: torch.Tensor = self.down_proj(act_mul(self.gate_proj(x), self.up_proj(x), "silu"))
        return out


class MlpfusionRegluMLP(nn.Module):
    """down(relu(gate(x))·up(x)) for x of [..., hidden_size]."""

    has_backward: bool = True
    can_torch_compile: bool = True

    gate_proj: nn.Module
    up_proj: nn.Module
    down_proj: nn.Module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., hidden_size] -> [..., hidden_size]."""
        out: torch.Tensor = self.down_proj(act_mul(self.gate_proj(x), self.up_proj(x), "relu"))
        return out
