"""Times whole models eager, swapped, compiled, swapped and compiled, and compiled with the pass, beside each other.

python bench/plugin.py --json h200-plugin.json                all parts; those that are in the file are not run again
python bench/plugin.py --json … --only gemma-2b/inference     one of them
python bench/plugin.py --json … --lengths                     recompilations for two more lengths, too

A part is a shape in a mode: a prefill (the logits of the last token), or a step of training with its optimiser. Every
way has a model of its own with the same weights. Compilations begin with empty caches; what a way compiled while it
was raced is counted, and spoils its times. Rounds are interleaved, clocks are those of `mlpfusion prove`.
"""

from __future__ import annotations

import argparse
import copy
import gc
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
import torch
from asked import result_file
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache
from training_step import VOCABULARY, clock_of, step_of

import mlpfusion
from mlpfusion import device as devices
from mlpfusion import stats
from mlpfusion.environment import machine
from mlpfusion.errors import MlpfusionError
from mlpfusion.measure import clocks
from mlpfusion.records.base import Record
from mlpfusion.records.clocks import Clock, Ratio
from mlpfusion.records.environment import Environment
from mlpfusion.spec import MODES, Mode
from mlpfusion.storage import files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Way = Literal["eager", "swap", "compile", "swap-compile", "pass"]
WAYS: Final[tuple[Way, ...]] = ("eager", "swap", "compile", "swap-compile", "pass")
COMPILED: Final[tuple[Way, ...]] = ("compile", "swap-compile", "pass")
# Compiled and in a fresh cache first of all, so that no way pays for what a process compiles only once.
_WARM_UP: Final = (8, 8)
# Of transformers' functions that all layers of all ways share; at PyTorch's 8 the last ways would not be compiled.
_RECOMPILATIONS: Final = 256


class Shape(NamedTuple):
    """A model: which of transformers' it is, its sizes, and how many layers are enough to see an MLP's share."""

    family: Literal["gemma", "llama"]
    hidden_size: int
    intermediate_size: int
    heads: int
    key_value_heads: int
    layers: int


SHAPES: Final = {
    "gemma-2b": Shape("gemma", 2048, 16384, 8, 1, 6),
    "llama-8b": Shape("llama", 4096, 14336, 32, 8, 6),
    "768x3072": Shape("gemma", 768, 3072, 12, 12, 12),
    "tiny": Shape("gemma", 32, 48, 2, 1, 1),
}
DEFAULT: Final = ("gemma-2b", "llama-8b", "768x3072")


class Timed(Record, frozen=True, kw_only=True):
    """One way to run a part.

    `speedup` is the time of "compile" over its own. `compile_s` is the first call's, of forward and backward; `pass_ms`
    what the pass took of it; `graphs` how many graphs were compiled then, `recompiled` later, in the race, and
    `lengths` for two more lengths.
    """

    way: Way
    clock: Clock
    speedup: Ratio | None
    placed: int | None = None
    compile_s: float | None = None
    pass_ms: float | None = None
    graphs: int | None = None
    recompiled: int | None = None
    lengths: int | None = None


class Part(Record, frozen=True, kw_only=True):
    """A shape in a mode; `pass_to_swap` is the time with the pass over that of the swapped and compiled model."""

    shape: str
    mode: Mode
    layers: int
    dtype: str
    batch: int
    seq: int
    ways: tuple[Timed, ...]
    pass_to_swap: Ratio | None

    @property
    def name(self) -> str:
        """By which it is asked for."""
        return f"{self.shape}/{self.mode}"


class Recording(Record, frozen=True, kw_only=True):
    """A file of this script."""

    schema: int = 1
    kind: Literal["plugin"] = "plugin"
    created: str
    device: devices.Device
    environment: Environment
    backend: str
    clock: str
    parts: tuple[Part, ...]


class Run(NamedTuple):
    """A way that is ready to be raced, and what its compilation took."""

    call: Callable[[], object]
    model: Callable[..., Any]
    compile_s: float | None
    pass_ms: float | None
    graphs: int | None
    placed: int | None


def built(shape: Shape, dtype: str, device: torch.device) -> nn.Module:
    """A causal language model of this shape with random weights."""
    from transformers import GemmaConfig, GemmaForCausalLM, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config, kind = (GemmaConfig, GemmaForCausalLM) if shape.family == "gemma" else (LlamaConfig, LlamaForCausalLM)
    made = config(
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        head_dim=shape.hidden_size // shape.heads,
        vocab_size=VOCABULARY,
        use_cache=False,
    )
    with device:  # drawn there: a CPU takes ten seconds for these weights
        model: nn.Module = kind(made).to(dtype=getattr(torch, dtype))
    return model


def ready(way: Way, plain: nn.Module, tokens: Tensor, mode: Mode, backend: str) -> Run:
    """A copy of the model to be run in this way, compiled by a first call if it is one of those."""
    model = copy.deepcopy(plain)
    placed = None
    if way in {"swap", "swap-compile"}:
        placed = len(mlpfusion.swap(model, backend).swapped)
    if way not in COMPILED:
        return Run(called(model, tokens, mode), model, None, None, None, placed)
    using = mlpfusion.inductor.options(backend) if way == "pass" else None
    compiled = torch.compile(model, options=using)
    call = called(compiled, tokens, mode)
    before, graphs = mlpfusion.inductor.report(), _graphs()
    with fresh_cache():
        started = time.perf_counter()
        call()
        _finish()
        seconds = time.perf_counter() - started
    met = mlpfusion.inductor.report()
    if way == "pass":
        placed = len(met.placed) - len(before.placed)
    pass_ms = met.pass_ms - before.pass_ms if way == "pass" else None
    return Run(call, compiled, seconds, pass_ms, _graphs() - graphs, placed)


def called(model: Any, tokens: Tensor, mode: Mode) -> Callable[[], object]:
    """One call of a part: a prefill of `tokens` [batch, seq], or a step of training on them."""
    if mode == "training":
        return step_of(model.train(), tokens)
    model.eval()

    def prefill() -> object:
        with torch.no_grad():
            return model(input_ids=tokens, logits_to_keep=1).logits

    return prefill


def measured(name: str, mode: Mode, asked: Any) -> Part:
    """All ways of one part, compiled one after another and raced together."""
    shape, here = SHAPES[name], devices.detect()
    place = torch.device(here.kind)
    warnings.filterwarnings("error", message=".* compiled code runs its own forward")
    torch._dynamo.config.recompile_limit = _RECOMPILATIONS
    plain = built(shape, asked.dtype, place)
    tokens = torch.randint(VOCABULARY, (asked.batch, asked.seq), device=place)
    with fresh_cache():
        torch.compile(nn.Linear(*_WARM_UP).to(place))(torch.ones(_WARM_UP, device=place))
    runs = {way: ready(way, plain, tokens, mode, asked.backend) for way in WAYS}
    for way, run in runs.items():
        if run.placed not in {None, shape.layers}:
            raise MlpfusionError(f"{way}: {run.placed} of {shape.layers} MLPs run by {asked.backend}")
    recompiled = dict.fromkeys(WAYS, 0)
    graphs = 0

    def before(_: str) -> None:
        nonlocal graphs
        graphs = _graphs()

    def after(way: str) -> None:
        recompiled[way] += _graphs() - graphs  # type: ignore[index]

    samples = clocks.race(
        [clocks.Contender(way, run.call, None, "no graph of a whole model") for way, run in runs.items()],
        here,
        rounds=asked.rounds,
        seed=0,
        before=before,
        after=after,
    )
    series = {each.backend: stats.summarise(each) for each in samples if each.clock == clock_of(here)}
    ways = []
    for way, run in runs.items():
        is_compiled = way in COMPILED
        ways.append(
            Timed(
                way=way,
                clock=series[way],
                speedup=stats.paired(series["compile"], series[way], way),
                placed=run.placed,
                compile_s=run.compile_s,
                pass_ms=run.pass_ms,
                graphs=run.graphs,
                recompiled=recompiled[way] if is_compiled else None,
                lengths=_lengths(run, tokens, mode) if is_compiled and asked.lengths else None,
            )
        )
    return Part(
        shape=name,
        mode=mode,
        layers=shape.layers,
        dtype=asked.dtype,
        batch=asked.batch,
        seq=asked.seq,
        ways=tuple(ways),
        pass_to_swap=stats.paired(series["pass"], series["swap-compile"], "swap-compile"),
    )


def _lengths(run: Run, tokens: Tensor, mode: Mode) -> int:
    """How many graphs are compiled for a half and for a quarter of the tokens."""
    graphs = _graphs()
    for part in (2, 4):
        called(run.model, tokens[:, : tokens.shape[1] // part].contiguous(), mode)()
    return _graphs() - graphs


def _graphs() -> int:
    """How many graphs Dynamo has had compiled in this process."""
    return int(counters["stats"]["unique_graphs"])


def _finish() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def render(part: Part) -> str:
    """A line for each way."""
    lines = [f"{part.name}, {part.layers} layers, {part.dtype}, {part.batch} x {part.seq} tokens"]
    for each in part.ways:
        ratio = each.speedup
        times = "–" if ratio is None else f"{ratio.median:.3f}x [{ratio.low:.3f}–{ratio.high:.3f}]"
        said = [f"{each.way:<13}{each.clock.median:>12.0f} µs  {times}"]
        if each.compile_s is not None:
            said.append(f"compiled in {each.compile_s:.1f} s, {each.graphs} graphs, {each.recompiled} later")
        if each.lengths is not None:
            said.append(f"{each.lengths} for two more lengths")
        if each.pass_ms is not None:
            said.append(f"the pass took {each.pass_ms:.0f} ms")
        lines.append("  ".join((said[0], ", ".join(said[1:]))).rstrip())
    if part.pass_to_swap is not None:
        ratio = part.pass_to_swap
        lines.append(f"pass / swap-compile: {ratio.median:.4f} [{ratio.low:.4f}–{ratio.high:.4f}]")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each part that is not in the file yet, print it, and save it at once."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [f"{shape}/{mode}" for shape in SHAPES for mode in MODES]
    parser.add_argument("--only", nargs="+", choices=names, default=[n for n in names if n.split("/")[0] in DEFAULT])
    for name, value in (("batch", 4), ("seq", 2048), ("rounds", 20)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--backend", default="fused")
    parser.add_argument("--lengths", action="store_true")
    parser.add_argument("--json", type=result_file, required=True)
    asked: Any = parser.parse_args(arguments)
    here = devices.detect()
    parts: dict[str, Part] = {}
    if asked.json.exists():
        parts = {each.name: each for each in msgspec.json.decode(asked.json.read_bytes(), type=Recording).parts}
    for name in asked.only:
        if name in parts:
            print(f"{name} is there already", file=sys.stderr)
            continue
        shape, _, mode = name.partition("/")
        parts[name] = measured(shape, mode, asked)
        print(render(parts[name]), flush=True)
        found = Recording(
            created=machine.now(),
            device=here,
            environment=machine.collect(here, {}),
            backend=asked.backend,
            clock=clock_of(here),
            parts=tuple(parts.values()),
        )
        files.write_whole("recording", asked.json, msgspec.json.format(msgspec.json.encode(found), indent=1))
        torch._dynamo.reset()
        gc.collect()
    return 0


if __name__ == "__main__":
    sys.exit(main())
