"""Measures the memory that a call keeps for backward, and its peak."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from mlpfusion.records.profile import Memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from mlpfusion.device import Device
    from mlpfusion.reference import Case


def measure(call: Callable[[Tensor], Tensor], step: Callable[[], object], case: Case, device: Device) -> Memory:
    """Memory of one call of `step`; `call` is the forward alone, run once under autograd where the case trains."""
    reasons = {}
    saved = None
    if case.dy is None:
        reasons["saved_for_backward_bytes"] = "inference saves nothing for backward"
    else:
        saved = saved_bytes(call, case)
    peak = None
    if device.kind == "cuda":
        peak = peak_bytes(step)
        if peak == 0:
            peak, reasons["peak_bytes"] = None, "a replayed CUDA graph allocates nothing; its pool was reserved before"
    else:
        reasons["peak_bytes"] = "PyTorch's CPU allocator keeps no peak"
    return Memory(saved_for_backward_bytes=saved, peak_bytes=peak, reasons=reasons)


def saved_bytes(call: Callable[[Tensor], Tensor], case: Case) -> int:
    """Bytes of the unique storages that the graph of `call(x)` holds, parameters excluded."""
    parameters = {value.untyped_storage().data_ptr() for value in case.mlp.parameters()}
    held: dict[int, Tensor] = {}  # holding the tensors keeps addresses from being used twice

    def pack(tensor: Tensor) -> Tensor:
        # Detached: a tensor with its graph would hold the node that holds it or this function, and the graph would
        # never go; its leaves then tie the gradients of later calls to the stream of this one.
        plain = tensor.detach()
        address = plain.untyped_storage().data_ptr()
        if address not in parameters:
            held.setdefault(address, plain)
        return plain

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = call(case.x)
    total = sum(tensor.untyped_storage().nbytes() for tensor in held.values())
    del y
    return total


def peak_bytes(step: Callable[[], object]) -> int:
    """Bytes of GPU memory that one call needs at its peak above what was allocated before it."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    held = step()
    torch.cuda.synchronize()
    del held
    return int(torch.cuda.max_memory_allocated() - before)
