"""Determines the dtype to which autocast casts the input of a matrix product."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def autocast_dtype(x: Tensor) -> torch.dtype | None:
    """The dtype that autocast casts x to, or None where it leaves x as it is: it is off, or x no float or float64."""
    kind = x.device.type
    # Of "meta" `is_autocast_enabled` raises.
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return None
    return torch.get_autocast_dtype(kind) if x.is_floating_point() and x.dtype != torch.float64 else None
