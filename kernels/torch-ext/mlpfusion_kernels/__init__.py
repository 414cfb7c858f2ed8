"""Fused activation·multiply kernels for gated MLPs, loadable from pip or through the Hub's `kernels` library."""

from __future__ import annotations

from . import layers
from .act_mul import act_mul, act_mul_reference
from .activations import ACTIVATIONS

__all__ = ["ACTIVATIONS", "act_mul", "act_mul_reference", "layers"]
