"""Compiles, checks and times configurations of the fused kernels for one shape."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, Final

import torch

from mlpfusion.errors import MeasurementError, first_line
from mlpfusion.measure.clocks import capture, race_replays

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlpfusion.device import Device
    from mlpfusion.records.clocks import Samples
    from mlpfusion.records.tuning import Question

SEED: Final = 0


class Bench:
    """The operands of one question, with the operations on a configuration.

    An entry serves every activation, with biases or without. So a configuration is also tried at its heaviest: with
    biases and with the activation that takes the most registers.

    Raises:
        MeasurementError: the operands do not fit into memory, or the shipped configuration does not run.
    """

    def __init__(self, question: Question, device: Device) -> None:
        from mlpfusion_kernels.gate_up import launch as launch_gate_up
        from mlpfusion_kernels.gate_up import search

        self.question = question
        self.device = device
        self._dtype: torch.dtype = getattr(torch, question.dtype)
        sizes = (question.tokens, question.hidden_size, question.intermediate_size)
        self.card = launch_gate_up.card(device.index)
        self.candidates: list[Any] = search.candidates(self.card, self._dtype, question.direction, *sizes)
        self.shipped = self.candidates[0]
        try:
            self._operands = self._made()
            self._right = {heaviest: self._call(self.shipped, heaviest=heaviest) for heaviest in (False, True)}
            torch.cuda.synchronize()
        except Exception as failure:
            raise MeasurementError(f"the shipped configuration does not run: {first_line(failure)}") from failure

    def refusal(self, config: Any, *, heaviest: bool = False) -> str | None:
        """Why a configuration is left out, or None: it does not compile or run, spills registers, or is wrong.

        It runs with the question's activation and without biases or at its `heaviest`.

        Raises:
            MeasurementError: the device answers no more.
        """
        handles: set[int] = set()
        try:
            with _launches(handles):
                found = self._call(config, heaviest=heaviest)
            torch.cuda.synchronize()
        except Exception as failure:  # whatever a compiler or a driver may raise
            self._still_there(config)
            return first_line(failure)
        spills = _spills(self.device.index)
        if not handles or not handles <= spills.keys():
            return "it launched a kernel that is not known"
        spilled = sum(spills[handle] for handle in handles)
        if spilled and config != self.shipped:
            return f"spills {spilled} registers"
        ask = self.question
        depth = ask.hidden_size + (ask.intermediate_size if ask.direction == "decode" else 0)
        return difference(found, self._right[heaviest], depth)

    def race(self, configs: Sequence[Any], rounds: int) -> list[Samples]:
        """Interleaved samples of each configuration's graph clock, L2 cold, in the order of `configs`.

        Raises:
            MeasurementError: no CUDA graph of a configuration could be captured.
        """
        pool = torch.cuda.graph_pool_handle()  # a pool that no graph is left of cannot be used again
        contenders = [
            capture(str(place), lambda config=config: self._call(config, heaviest=False), pool)  # type: ignore[misc]
            for place, config in enumerate(configs)
        ]
        for contender in contenders:
            if contender.replay is None:
                raise MeasurementError(str(contender.no_graph_reason))
        return race_replays(contenders, self.device, rounds=rounds, seed=SEED)

    def _made(self) -> dict[str, torch.Tensor]:
        """Operands that make gate, up and the gradient of the product about as large as in a model, near 1."""
        ask = self.question
        m, d, h = ask.tokens, ask.hidden_size, ask.intermediate_size
        generator = torch.Generator(f"cuda:{self.device.index}").manual_seed(SEED)

        def random(*shape: int, scale: float = 1.0) -> torch.Tensor:
            values = torch.randn(shape, generator=generator, device=generator.device, dtype=self._dtype)
            return values.mul_(scale)

        if ask.direction == "backward":
            return {"dy": random(m, d), "down": random(d, h, scale=d**-0.5), "gate": random(m, h), "up": random(m, h)}
        weights = {"gate": random(h, d, scale=d**-0.5), "up": random(h, d, scale=d**-0.5)}
        if ask.direction == "decode":
            weights["down"] = random(d, h, scale=h**-0.5)
        return {"x": random(m, d), "gate_bias": random(h), "up_bias": random(h), **weights}

    def _call(self, config: Any, *, heaviest: bool) -> tuple[torch.Tensor, ...]:
        from mlpfusion_kernels import Weights
        from mlpfusion_kernels.activations import HEAVIEST
        from mlpfusion_kernels.gate_up import launch

        has, direction = self._operands, self.question.direction
        activation = HEAVIEST if heaviest else self.question.activation
        if direction == "backward":
            return launch.gate_up_backward(has["dy"], has["down"], has["gate"], has["up"], activation, config)
        biases = (has["gate_bias"], has["up_bias"]) if heaviest else (None, None)
        # The gate/up kernel does not look at the down weight.
        weights = Weights(has["gate"], has["up"], has.get("down", has["gate"]), *biases)
        if direction == "decode":
            return (launch.few_tokens_forward(has["x"], weights, activation, False, config)[0],)
        results = launch.gate_up_forward(has["x"], weights, activation, direction == "training", config)
        return tuple(result for result in results if result is not None)

    def _still_there(self, config: Any) -> None:
        try:
            torch.cuda.synchronize()
        except RuntimeError as failure:
            raise MeasurementError(f"the device answers no more after {config}: {first_line(failure)}") from failure


def difference(found: tuple[torch.Tensor, ...], right: tuple[torch.Tensor, ...], depth: int) -> str | None:
    """Where results differ by more than roundings of the same sums of `depth` terms do, or None.

    Sums in another order differ by eps of float32 for every few of their terms, and by eps of the dtype where gate, up
    and what is made of them are rounded.
    """
    for mine, theirs in zip(found, right, strict=True):
        eps = torch.finfo(theirs.dtype).eps + torch.finfo(torch.float32).eps * depth / 8
        a, b = mine.float(), theirs.float()
        scale = b.square().mean().sqrt()
        worst = ((a - b).abs() / (b.abs() + scale)).max().item()
        mean = ((a - b).square().mean().sqrt() / scale).item()
        if not (worst <= 4 * eps and mean <= eps):  # nan is wrong
            return (
                f"wrong: off by {worst:.2g} of the shipped configuration's values at most and by {mean:.2g} in the "
                f"mean, where rounding allows {4 * eps:.2g} and {eps:.2g}"
            )
    return None


def _spills(index: int) -> dict[int, int]:
    """The spilled registers of every kernel of the fused backend that is loaded on a device, by its handle.

    What was compiled and could not be loaded, for lack of shared memory say, has neither.
    """
    found: dict[int, int] = {}
    for name, module in list(sys.modules.items()):
        if name.startswith("mlpfusion_kernels.gate_up"):
            for kernel in vars(module).values():
                caches = getattr(kernel, "device_caches", {})
                if index in caches:
                    loaded = (each for each in caches[index][0].values() if each.function is not None)
                    found |= {each.function: each.n_spills for each in loaded}
    return found


@contextlib.contextmanager
def _launches(handles: set[int]) -> Iterator[None]:
    """Collect the handles of the kernels that Triton launches meanwhile."""
    from triton import knobs

    def note(metadata: Any) -> None:
        handles.add(metadata.data["function"])

    knobs.runtime.launch_enter_hook.add(note)
    try:
        yield
    finally:
        knobs.runtime.launch_enter_hook.remove(note)
