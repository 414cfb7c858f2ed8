"""Puts a fused gated MLP into what torch.compile compiles with Inductor; no module is changed."""

from __future__ import annotations

from mlpfusion.inductor.switch import disable, enable, options, report

__all__ = ["disable", "enable", "options", "report"]
