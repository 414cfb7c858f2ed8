"""Puts a fused gated MLP into what torch.compile compiles with Inductor; no module is changed."""

from __future__ import annotations

from mlpfusion.inductor.switch import disable, enable, options, report
from mlpfusion.inductor.trial import Trial

__all__ = ["Trial", "disable", "enable", "options", "report"]
