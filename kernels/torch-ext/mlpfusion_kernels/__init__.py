"""Kernels for gated MLPs, loadable from pip or through the Hub's `kernels` library."""

from __future__ import annotations

from . import layers
from .activations import ACTIVATIONS
from .elementwise.autograd import act_mul, act_mul_reference
from .gate_up.autograd import gated_mlp
from .gate_up.operands import Weights, unreadable
from .gate_up.tuned import reload_tuned

__all__ = [
    "ACTIVATIONS",
    "Weights",
    "act_mul",
    "act_mul_reference",
    "gated_mlp",
    "layers",
    "reload_tuned",
    "unreadable",
]
