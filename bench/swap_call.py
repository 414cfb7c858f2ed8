"""Measures what a call of a swapped module costs beside what its backend does: the checks for changes since the swap.

python bench/swap_call.py [--rounds 300]

CPU time of this thread, so that other programs do not show. Each figure is the median over rounds of many calls, less
that of an empty function, in random order.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

import mlpfusion

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS: Final = 200  # in a row, of one sample


class MLP(nn.Module):
    """A gated MLP as transformers writes it: an activation that is a module, and a config that forwards read."""

    def __init__(self) -> None:
        super().__init__()
        self.config = argparse.Namespace(scale=1.0)
        self.gate_proj, self.up_proj = nn.Linear(32, 48, bias=False), nn.Linear(32, 48, bias=False)
        self.down_proj = nn.Linear(48, 32, bias=False)
        self.act_fn = nn.SiLU()
        self.register_buffer("factor", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """x and y [..., 32]."""
        y: Tensor = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return y


class Watched(MLP):
    """The same, with a buffer and an attribute of a config that are 1."""

    def forward(self, x: Tensor) -> Tensor:
        """x and y [..., 32]."""
        product = functional.silu(self.gate_proj(x)) * self.up_proj(x)
        y: Tensor = self.down_proj(product * self.factor * self.config.scale)
        return y


def checks(module: Any) -> Callable[[], object]:
    """What a swapped module does at each call before its backend."""
    x = torch.ones(1, 32)
    return lambda: module._changed(x, compiling=torch.compiler.is_compiling())


def measured(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """CPU µs of one call, a sample a round, less those of an empty function."""
    calls = {"nothing": lambda: None, **calls}
    found: dict[str, list[float]] = {name: [] for name in calls}
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(list(calls), len(calls)):
            call, started = calls[name], time.thread_time_ns()
            for _ in range(CALLS):
                call()
            found[name].append((time.thread_time_ns() - started) / CALLS / 1e3)
    empty = statistics.median(found.pop("nothing"))
    return {name: [each - empty for each in values] for name, values in found.items()}


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    asked = parser.parse_args(arguments)
    torch.set_num_threads(1)
    modules = {"plain": MLP().eval(), "with a buffer and a config": Watched().eval()}
    for module in modules.values():
        mlpfusion.swap(module, "eager")
    for name, values in measured({name: checks(each) for name, each in modules.items()}, asked.rounds).items():
        low, *_, high = statistics.quantiles(values, n=5, method="inclusive")
        spread = f"[p20 {low:.2f}, p80 {high:.2f}, least {min(values):.2f}], n = {len(values)}"
        print(f"{name:<28}{statistics.median(values):6.2f} CPU µs a call {spread}")


if __name__ == "__main__":
    main()
