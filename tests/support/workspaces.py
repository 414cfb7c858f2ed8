"""What happens to graphs when PyTorch frees the workspaces of cuBLAS, and somebody else gets their memory."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

# Sums that are long and results that are few: cuBLAS splits such a sum, and keeps its parts in a workspace.
SPLIT = ((16, 16384, 256), (768, 8192, 768))


def cleared() -> None:
    """As torch.compile clears all of them before and after it records CUDA graphs."""
    torch._C._cuda_clearCublasWorkspaces()


def another_ends(capture: Callable[[], object]) -> None:
    """Later versions of PyTorch clear those of the stream on which a graph was captured when it ends."""
    made = capture()
    del made
    gc.collect()


def untouched(replay: Callable[[], torch.Tensor], expected: torch.Tensor) -> None:
    """A replay gives what is expected, and writes to no memory that others were given since."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    taken = [torch.full((2**20,), 7, dtype=torch.int32, device="cuda") for _ in range(64)]  # 256 MiB
    for _ in range(3):
        found = replay()
    torch.cuda.synchronize()
    assert torch.equal(found, expected)
    assert all(bool((each == 7).all()) for each in taken)
