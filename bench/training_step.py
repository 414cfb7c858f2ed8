"""Checks a sentence of `read` on a real training step: what a faster MLP gains of it, foretold and measured.

python bench/training_step.py [--backend fused] [--layers 6] [--batch 4] [--seq 2048] [--json FILE] [--traces FOLDER]

A causal language model of gemma-2b's shape is trained, eager and compiled. The trace of a step gives the share of its
gated MLPs, and how many times as fast the backend is comes from a profile of one MLP in training, and once more from
the traces of both steps; share and speedup foretell the gain of a swap (`MLPShare.gain`). The step with and without the
swap, interleaved, says what it is.
"""

from __future__ import annotations

import argparse
import copy
import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import torch
from asked import result_file
from torch import nn
from torch.nn import functional

import mlpfusion
from mlpfusion import device as devices
from mlpfusion import stats
from mlpfusion.environment import machine
from mlpfusion.errors import MlpfusionError
from mlpfusion.measure import clocks, tracer
from mlpfusion.records.base import Record
from mlpfusion.records.breakdown import MLPShare
from mlpfusion.records.clocks import Clock
from mlpfusion.records.environment import Environment
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.storage import files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlpfusion.records.profile import Profile

Mode = Literal["eager", "compile"]
MODES: Final[tuple[Mode, ...]] = ("eager", "compile")
VOCABULARY: Final = 32_000
HEADS: Final = 8
TRACED: Final = 3
AGREES_WITHIN: Final = 0.01  # of the step: a percentage point


class Step(Record, frozen=True, kw_only=True):
    """One way to run the step: the shares read from its traces, and the gain of the swap, foretold and measured.

    `mlp_speedup` is the time of one MLP's forward and backward without the swap over that with it, by the kernels'
    clock, alone; `speedup_in_step` that of all of them, by the traces of the step. Gains are fractions of the step's
    speed, foretold by each of the two. `reason` says why a figure is None.
    """

    mode: Mode
    plain: Clock
    swapped: Clock
    share: MLPShare | None
    swapped_share: MLPShare | None
    mlp_speedup: float | None
    measured: float
    reason: str | None = None

    @property
    def speedup_in_step(self) -> float | None:
        """How many times as fast the MLPs are in the swapped step."""
        if self.share is None or self.swapped_share is None:
            return None
        if self.share.backward_layers != self.swapped_share.backward_layers:
            return None
        return _mlp_us(self.share) / _mlp_us(self.swapped_share)

    @property
    def foretold(self) -> float | None:
        """The gain that the share and one MLP's speedup foretell."""
        return None if self.share is None or self.mlp_speedup is None else self.share.gain(self.mlp_speedup)

    @property
    def foretold_in_step(self) -> float | None:
        """The gain that the share and the MLPs' speedup in the step foretell."""
        speedup = self.speedup_in_step
        return None if self.share is None or speedup is None else self.share.gain(speedup)

    def agrees(self, gain: float | None) -> bool | None:
        """Whether this gain is within a percentage point of the measured one; None where none was foretold."""
        return None if gain is None else abs(gain - self.measured) <= AGREES_WITHIN


class Recording(Record, frozen=True, kw_only=True):
    """A file of this script."""

    schema: int = 1
    kind: Literal["training-step"] = "training-step"
    created: str
    device: devices.Device
    environment: Environment
    layers: int
    workload: Workload
    backend: str
    clock: str
    rounds: int
    steps: tuple[Step, ...]


def language_model(spec: MLPSpec, layers: int, device: torch.device) -> nn.Module:
    """A Gemma of this shape with random weights, in training mode."""
    from transformers import GemmaConfig, GemmaForCausalLM

    torch.manual_seed(0)
    config = GemmaConfig(
        hidden_size=spec.hidden_size,
        intermediate_size=spec.intermediate_size,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        num_key_value_heads=1,
        head_dim=spec.hidden_size // HEADS,
        vocab_size=VOCABULARY,
        use_cache=False,
    )
    with device:  # drawn there: a CPU takes ten seconds for these weights
        model: nn.Module = GemmaForCausalLM(config).to(dtype=getattr(torch, spec.dtype)).train()
    return model


def step_of(model: nn.Module, tokens: torch.Tensor) -> Callable[[], torch.Tensor]:
    """One step of training on `tokens` [batch, seq]: forward, loss, backward, AdamW."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=tokens.is_cuda)

    def step() -> torch.Tensor:
        optimiser.zero_grad(set_to_none=True)
        logits = model(input_ids=tokens).logits
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())
        torch.autograd.backward(loss)
        optimiser.step()
        return loss.detach()

    return step


def measured(
    mode: Mode, workload: Workload, *, layers: int, backend: str, profile: Profile, rounds: int, traces: Path | None
) -> Step:
    """The step of a model in one mode, with and without a swap to `backend`."""
    found = devices.detect()
    place = torch.device(found.kind)
    plain = language_model(workload.spec, layers, place)
    swapped = copy.deepcopy(plain)
    handle = mlpfusion.swap(swapped, backend=backend)
    if len(handle.swapped) != layers:
        raise MlpfusionError(f"{len(handle.swapped)} of {layers} MLPs were swapped: {handle}")
    tokens = torch.randint(VOCABULARY, (workload.batch, workload.seq), device=place)
    models = {"plain": plain, "swapped": swapped}
    runs = {
        name: step_of(each if mode == "eager" else torch.compile(each), tokens)  # type: ignore[arg-type]
        for name, each in models.items()
    }
    samples = clocks.race(
        [clocks.Contender(name, call, None, "no graph of a training step") for name, call in runs.items()],
        found,
        rounds=rounds,
        seed=0,
        before=lambda name: None,
        after=lambda name: None,
    )
    clock = clock_of(found)
    series = {each.backend: each for each in samples if each.clock == clock}
    times = {name: stats.summarise(series[name], series["plain"]) for name in runs}
    ratio = times["swapped"].ratio_to_eager
    if ratio is None:
        raise MlpfusionError(f"{rounds} rounds are too few for a ratio")
    share, reason = _share(runs["plain"], f"{mode}", traces)
    swapped_share, swapped_reason = _share(runs["swapped"], f"{mode}-swapped", traces)
    speedup, why = mlp_speedup(profile, mode, backend)
    return Step(
        mode=mode,
        plain=times["plain"],
        swapped=times["swapped"],
        share=share,
        swapped_share=swapped_share,
        mlp_speedup=speedup,
        measured=1 / ratio.median - 1,
        reason=reason or swapped_reason or why or _unlike(share, swapped_share),
    )


def clock_of(device: devices.Device) -> str:
    """Between device events on a GPU; a CPU has only the wall."""
    return "event_us" if device.kind == "cuda" else "wall_us"


def _unlike(one: MLPShare | None, other: MLPShare | None) -> str | None:
    if one is None or other is None or one.backward_layers == other.backward_layers:
        return None
    return f"the backward is told for {one.backward_layers} MLPs without the swap and {other.backward_layers} with it"


def _mlp_us(share: MLPShare) -> float:
    """µs of all MLPs of a step, forward and backward."""
    return share.forward_us + (share.backward_us or 0.0)


def _share(run: Callable[[], object], name: str, traces: Path | None) -> tuple[MLPShare | None, str | None]:
    with files.scratch() as folder:
        path = (traces or folder) / f"training-step-{name}.json"
        tracer.record_scheduled(run, path, calls=TRACED, warmups=1)
        breakdown = mlpfusion.read(path, call=tracer.CALL).breakdown
    if breakdown is None or breakdown.mlp is None:
        return None, f"the trace of the step ({name}) shows no gated MLP"
    return breakdown.mlp, None


def mlp_speedup(profile: Profile, mode: Mode, backend: str) -> tuple[float | None, str | None]:
    """How many times as fast one MLP is with the backend as in this mode without, and else why it is not known."""
    kernel: dict[str, float] = {}
    for row in profile.rows:
        if row.clocks is not None and row.clocks.kernel_us is not None:
            kernel[row.backend] = row.clocks.kernel_us.median
    missing = [name for name in (mode, backend) if name not in kernel]
    if missing:
        return None, f"no kernel time of {' and '.join(missing)} in the profile of one MLP"
    return kernel[mode] / kernel[backend], None


def render(found: Recording) -> str:
    """A line for each way to run the step."""
    lines = [f"{found.device.name}, {found.layers} layers, {found.workload}, {found.backend}, {found.clock}"]
    for each in found.steps:
        share = "?" if each.share is None else f"{each.share.call_share:.1%}"
        lines.append(
            f"{each.mode}: {each.plain.median:.0f} -> {each.swapped.median:.0f} µs, {each.measured:+.1%}; "
            f"MLPs {share} of the step"
        )
        for what, speedup, gain in (
            ("one alone", each.mlp_speedup, each.foretold),
            ("in the step", each.speedup_in_step, each.foretold_in_step),
        ):
            word = {True: "agrees", False: "DIFFERS", None: each.reason}[each.agrees(gain)]
            told = "nothing foretold" if gain is None else f"{speedup:.3f}x as fast, {gain:+.1%} foretold"
            lines.append(f"  {what}: {told}: {word}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and, if a file is given, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="fused")
    for name, value in (("layers", 6), ("batch", 4), ("seq", 2048), ("hidden", 2048), ("intermediate", 16384)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=result_file)
    parser.add_argument("--traces", type=Path)
    asked: Any = parser.parse_args(arguments)
    spec = MLPSpec(hidden_size=asked.hidden, intermediate_size=asked.intermediate, dtype=asked.dtype)
    workload = Workload(spec=spec, batch=asked.batch, seq=asked.seq, mode="training")
    profile = mlpfusion.profile(workload, backends=[*dict.fromkeys([*MODES, asked.backend])], rounds=asked.rounds)
    steps = []
    for mode in asked.modes:
        steps.append(
            measured(
                mode,
                workload,
                layers=asked.layers,
                backend=asked.backend,
                profile=profile,
                rounds=asked.rounds,
                traces=asked.traces,
            )
        )
        torch._dynamo.reset()
        gc.collect()
    here = devices.detect()
    found = Recording(
        created=machine.now(),
        device=here,
        environment=machine.collect(here, profile.environment.distributions),
        layers=asked.layers,
        workload=workload,
        backend=asked.backend,
        clock=clock_of(here),
        rounds=asked.rounds,
        steps=tuple(steps),
    )
    print(render(found))
    if asked.json is not None:
        files.write_whole("recording", asked.json, msgspec.json.format(msgspec.json.encode(found), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
