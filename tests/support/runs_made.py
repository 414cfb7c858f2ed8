"""A worker's runs of functions and modules, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mlpfusion.stages.validate.worker.probes import Run
from mlpfusion.stages.validate.worker.targets.autotuners import Pins
from mlpfusion.stages.validate.worker.targets.loader import Bound, Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

CPU = torch.device("cpu")


class Pinned(Pins):
    """An autotuner's pins that remember what was asked of them."""

    def __init__(self) -> None:
        super().__init__([])
        self.asked: list[int | None] = []

    def pin(self, index: int | None) -> None:
        self.asked.append(index)


def run_of(function: Callable[..., Tensor]) -> Run:
    """The run of an act·mul (gate, up)."""

    def bind(operands: tuple[Tensor, ...]) -> Bound:
        return Bound(function, operands, operands)

    return Run(Target("act_mul", "a function", [], bind), CPU, Pinned())


def run_of_module(make: Callable[..., nn.Module]) -> Run:
    """The run of a gated MLP (x), which `make` makes of its parameters (wg, wu, wd)."""

    def bind(operands: tuple[Tensor, ...]) -> Bound:
        module = make(*operands[1:])
        return Bound(module, operands[:1], (operands[0], *module.parameters()), module)

    return Run(Target("mlp", "a module", [], bind), CPU, Pinned())
