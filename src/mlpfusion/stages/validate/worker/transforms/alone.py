"""What the probes of transformed calls share: operands that must stay, and gradients of one operand alone."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import torch
from torch.utils.checkpoint import checkpoint

from mlpfusion.stages.validate.worker.results import named, plain, same_bits
from mlpfusion.stages.validate.worker.targets.loader import OPERANDS

if TYPE_CHECKING:
    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.worker.probes import Probe, Run
    from mlpfusion.stages.validate.worker.targets.loader import Bound


class Operands:
    """The operands of a target with copies, which reveal a change of their bits."""

    def __init__(self, run: Run, bound: Bound) -> None:
        self._run = run
        self._leaves = dict(zip(OPERANDS[run.target.kind], bound.leaves, strict=True))
        self._copies = {name: leaf.detach().clone() for name, leaf in self._leaves.items()}

    def changed(self) -> list[str]:
        """The names of those that were overwritten since the last time; they have their values again."""
        self._run.synchronize()
        found = [name for name, leaf in self._leaves.items() if not same_bits(leaf, self._copies[name])]
        for name in found:
            self._leaves[name].data.copy_(self._copies[name])
        return found


def own(gradients: Tensors) -> Tensors:
    """Copies: gradients may lie in operands that a backward wrote over, which then get their values again."""
    return {name: gradient.clone() for name, gradient in gradients.items()}


def alone(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """d:NAME of each operand where no other one needs a gradient, without those that are missing.

    The calls are `within` "compile" by the `backend`, "checkpoint", or the "autocast" to the dtype `to`.
    """
    names, within = OPERANDS[run.target.kind], options["within"]
    bound = run.target.bind(run.operands(given, options))
    function = bound.function
    if within == "compile":
        torch._dynamo.reset()
        function = torch.compile(function, fullgraph=True, backend=options["backend"])
    to = getattr(torch, options.get("to", "float16"))
    results: Tensors = {}
    operands = Operands(run, bound)
    for name, leaf in zip(names, bound.leaves, strict=True):
        for other in bound.leaves:
            other.requires_grad_(other is leaf)
        with torch.autocast(run.device.type, dtype=to) if within == "autocast" else contextlib.nullcontext():
            if within == "checkpoint":
                y = plain(checkpoint(function, *bound.arguments, use_reentrant=False))
            else:
                y = plain(function(*bound.arguments))
        if y.requires_grad:
            grads = torch.autograd.grad(y, (leaf,), given["dy"].to(run.device, y.dtype), allow_unused=True)
            results |= own(named((name,), grads))
        operands.changed()  # what a backward writes is for another check to say
    run.synchronize()
    return results, {}


ALONE_PROBES: Final[dict[str, Probe]] = {"alone": alone, "alone compiled": alone}
