"""The worker's probe of the memory beside operands: written there, or read from there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor

from mlpfusion.stages.validate.channel import PATTERNS
from mlpfusion.stages.validate.worker import guard
from mlpfusion.stages.validate.worker.results import named, plain
from mlpfusion.stages.validate.worker.targets.loader import OPERANDS

if TYPE_CHECKING:
    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.worker.probes import Probe, Run

# Elements on either side of an operand: as many as the largest block of a kernel.
MARGIN: Final = 65536


class Guarded:
    """An operand [..] in memory that its storage knows nothing of: a pattern lies before it and behind it."""

    def __init__(self, tensor: Tensor, device: torch.device, pattern: float) -> None:
        self._pattern = pattern
        self._count = tensor.numel()
        self._memory = torch.full((self._count + 2 * MARGIN,), pattern, dtype=tensor.dtype, device=device)
        inner = self._memory[MARGIN : MARGIN + self._count]
        inner.copy_(tensor.reshape(-1))
        # Made of a pointer, so that it starts at 0 of a storage of its own size.
        whole = {2: "<i2", 4: "<i4"}[tensor.element_size()]
        self.tensor = _from_pointer(inner.data_ptr(), self._count, whole, device).view(tensor.dtype).view(tensor.shape)

    def outside(self) -> list[int]:
        """How many elements before it and behind it were written."""
        sides = self._memory[:MARGIN], self._memory[MARGIN + self._count :]
        return [int(guard.touched(side, self._pattern).sum()) for side in sides]


def _from_pointer(pointer: int, count: int, kind: str, device: torch.device) -> Tensor:
    interface = {"shape": (count,), "typestr": kind, "data": (pointer, False), "version": 3, "strides": None}
    if device.type == "cuda":
        made: Any = type("Memory", (), {"__cuda_array_interface__": interface})()
        return torch.as_tensor(made, device=device)
    made = type("Memory", (), {"__array_interface__": interface})()
    return torch.from_numpy(np.asarray(made))


def guarded(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """y and, with `grad`, d:NAME of operands in guarded memory with a `pattern` on both sides.

    Facts: `outside`, by the name of an operand (and dy) how many elements before it and behind it were written; of the
    target's own allocations `before` and `behind`.
    """
    names = OPERANDS[run.target.kind]
    pattern = PATTERNS[options["pattern"]]
    kept = {name: Guarded(given[name], run.device, pattern) for name in (*names, "dy") if given[name].numel()}
    leaves = tuple(kept[name].tensor.requires_grad_(options["grad"]) for name in names)
    bound = run.target.bind(leaves)
    with guard.watch(options["pattern"], front=guard.MARGIN) as watched:
        y = plain(bound())
        results = {"y": y}
        if y.requires_grad:
            grads = torch.autograd.grad(y, bound.leaves, kept["dy"].tensor, allow_unused=True)
            results |= named(names, grads)
        run.synchronize()
    outside = {name: sides for name, each in kept.items() if any(sides := each.outside())}
    return results, {"outside": outside, **watched.overwritten()}


GUARD_PROBES: Final[dict[str, Probe]] = {"guarded": guarded}
