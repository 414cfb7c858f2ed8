"""What a direct launch asks of PyTorch: a tensor's address and device, and the stream of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import pytest


class Pointer:
    """What the launcher asks of a CUDA tensor."""

    is_cuda = True

    def __init__(self, address: int, device: int = 0) -> None:
        self.address, self.device = address, device

    def data_ptr(self) -> int:
        return self.address

    def get_device(self) -> int:
        return self.device


def streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let PyTorch know a device 0 and its stream."""
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 700 + index, raising=False)
