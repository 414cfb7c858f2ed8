"""Swaps and compiles the gated MLPs of every model family of transformers, and says what became of each.

python bench/families.py                       all families; those that are in build/families.jsonl are not run again
python bench/families.py --only llama,phi3     some of them, anew
python bench/families.py --table               the table of what is there, in Markdown

A family is built small, from its configuration alone: on the meta device, where every module is probed, and on the CPU,
where each kind of MLP is swapped and is compiled with the pass of `mlpfusion.inductor` (captured by Dynamo and
differentiated by AOTAutograd; Inductor's own code is left out, which takes a minute a family). Both are compared with
the module as it was: values, and the gradients of x and of all parameters. One that cannot be small is only probed.
A module whose weights have the shapes of a gated MLP and that is neither swapped nor refused is named as well.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import os
import signal
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import msgspec
import torch
from torch import Tensor, fx, nn

from mlpfusion.errors import NothingSwappedError
from mlpfusion.inductor.ledger import LEDGER
from mlpfusion.inductor.passes import Pass
from mlpfusion.inductor.settings import settle
from mlpfusion.models import layers
from mlpfusion.models.find import Examined, Found, Refused, probe
from mlpfusion.models.swap import candidates, swap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT: Final = Path(__file__).resolve().parents[1]
ROWS: Final = ROOT / "build" / "families.jsonl"
SECONDS: Final = 120  # of CPU time for one family; the slowest took 20
# A right swap may round differently: fp32 gradients of a few hundred terms differ by some 1e-6 of the largest.
BOUND: Final = 1e-4
# Attributes of configurations by what they hold, and the size of it in the small model.
SMALL: Final = {
    "shared_layers": 0, "layers": 2, "depth": 2, "num_attention_heads": 4, "num_heads": 4, "n_head": 4,
    "attention_heads": 4,
    "key_value_heads": 2, "kv_heads": 2, "head_dim": 16, "hidden_size": 64, "d_model": 64, "n_embd": 64,
    "embed_dim": 64, "hidden_dim": 64, "intermediate_size": 96, "ffn_dim": 96, "d_ff": 96, "mlp_dim": 96,
    "vocab_size": 128, "max_position_embeddings": 64, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
    "experts_per_tok": 2,
}  # fmt: skip
DEPTHS: Final = ("shared_layers", "layers", "depth")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One family: how many of its modules are gated MLPs, refused and why, and what its kinds gave when run.

    `unlisted` are classes whose weights look like a gated MLP's and that are neither.
    `kinds` are the classes of gated MLPs that were run; `swapped` and `placed` how many of them were, by swap and by
    the pass, and `worst` is the largest difference in a value or a gradient over the largest of it. `reason` says why
    it was not built, or not small.
    """

    family: str
    gated: int = 0
    refused: dict[str, int] = {}
    unlisted: tuple[str, ...] = ()
    kinds: int = 0
    swapped: int = 0
    placed: int = 0
    near_misses: tuple[str, ...] = ()
    worst_swap: float | None = None
    worst_pass: float | None = None
    seconds: float = 0.0
    reason: str | None = None


def main() -> None:
    """Run what is asked for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="families, by commas")
    parser.add_argument("--table", action="store_true", help="only print what is there")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows = read()
    if not asked.table:
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING

        only = [name for name in asked.only.split(",") if name]
        for family in only or sorted(set(CONFIG_MAPPING.keys()) - rows.keys()):
            rows[family] = row = run(family)
            ROWS.parent.mkdir(exist_ok=True)
            with ROWS.open("ab") as out:
                out.write(msgspec.json.encode(row) + b"\n")
            print(f"{family}: {row.gated} gated, {row.placed} of {row.kinds} kinds placed", file=sys.stderr, flush=True)
    print(table(list(rows.values())))


def read() -> dict[str, Row]:
    """What is there, the last row of each family."""
    lines = ROWS.read_bytes().splitlines() if ROWS.exists() else []
    found = [msgspec.json.decode(line, type=Row) for line in lines]
    return {row.family: row for row in found}


def run(family: str) -> Row:
    """One family, within its time."""
    started = time.perf_counter()
    try:
        with _within(SECONDS):
            row = _run(family)
    except Exception as error:  # whatever a model may raise
        row = Row(family=family, reason=_said(error))
    return msgspec.structs.replace(row, seconds=round(time.perf_counter() - started, 1))


def _run(family: str) -> Row:
    why, model = None, None
    with torch.device("meta"), _quiet():
        try:
            model = built(family, small=True)
        except Exception as error:  # sizes that belong together differ by family
            why = f"not built small: {_said(error)}"
        model = model or built(family, small=False)
        gated, refused, listed = counted(model)
    row = Row(family=family, gated=gated, refused=dict(refused), unlisted=unlisted(model, listed))
    if why is not None or not gated:
        return msgspec.structs.replace(row, reason=why if gated else None)
    with _quiet():
        kinds = kinds_of(built(family, small=True))
    results = [compared(module) for module in kinds]
    swapped = [each for each, _ in results if each is not None]
    passed = [each for _, each in results if each is not None]
    return msgspec.structs.replace(
        row,
        kinds=len(kinds),
        swapped=len(swapped),
        placed=len(passed),
        near_misses=tuple(str(each.reason) for each in LEDGER.report().near_misses),
        worst_swap=max(swapped, default=None),
        worst_pass=max(passed, default=None),
    )


def built(family: str, *, small: bool) -> nn.Module:
    """A model of a family with two layers, or one of each kind; `small` makes all else small as well."""
    from transformers import AutoModel
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    config = CONFIG_MAPPING[family]()
    _shrink(config, {key: size for key, size in SMALL.items() if small or key in DEPTHS}, set())
    with contextlib.suppress(Exception):  # what is computed of these when a configuration is made
        config = type(config).from_dict(config.to_dict())
    if type(config) in AutoModel._model_mapping:
        model: nn.Module = AutoModel.from_config(config)
    else:
        model = _class_of(type(config))._from_config(config)
    return model.eval()


def _class_of(config: type) -> Any:
    """A class of models that takes such configurations, where no automatic one leads to it."""
    from transformers import PreTrainedModel

    folder = config.__module__.rpartition(".")[0]
    modeling = importlib.import_module(config.__module__.replace(".configuration_", ".modeling_"))
    found = [
        each
        for name, each in vars(modeling).items()
        if isinstance(each, type)
        and issubclass(each, PreTrainedModel)
        and each.__module__.startswith(folder)
        and not name.endswith("PreTrainedModel")
        and getattr(each, "config_class", None) is config
    ]
    if not found:
        raise ValueError(f"no model takes a {config.__name__}")
    return found[0]


def _shrink(config: Any, sizes: dict[str, int], seen: set[int]) -> None:
    """Set each attribute whose name ends with one of `sizes`, of parts of the configuration too."""
    if id(config) in seen:
        return
    seen.add(id(config))
    had = getattr(config, "num_hidden_layers", None)
    for name, value in list(vars(config).items()):
        if hasattr(value, "to_dict"):
            _shrink(value, sizes, seen)
        key = next((key for key in sizes if name.endswith(key)), None)
        if key is not None and type(value) is int and value > sizes[key]:
            with contextlib.suppress(Exception):  # some are computed from others
                setattr(config, name, sizes[key])
        if name.endswith("_token_id") and type(value) is int and "vocab_size" in sizes:
            setattr(config, name, min(value, 2))  # all are below the small vocabulary
    _keep_layers(config, had, sizes["layers"])


def _keep_layers(config: Any, had: Any, wanted: int) -> None:
    """Two layers, or one of each type that the configuration gives them, in each list with an entry for a layer."""
    types = getattr(config, "layer_types", None)
    firsts = [types.index(each) for each in dict.fromkeys(types)] if isinstance(types, list) else []
    kept = firsts if len(firsts) >= wanted else list(range(min(wanted, had if isinstance(had, int) else wanted)))
    for name, value in list(vars(config).items()):
        if isinstance(value, list) and len(value) == had:
            with contextlib.suppress(Exception):
                setattr(config, name, [value[place] for place in kept])
    if firsts:
        with contextlib.suppress(Exception):
            config.num_hidden_layers = len(kept)


def counted(model: nn.Module) -> tuple[int, Counter[str], list[str]]:
    """How many modules are gated MLPs, how many look like one and are refused, by reason, and the names of all."""
    gated, refused, listed = 0, Counter[str](), list[str]()
    for name, _, found in candidates(model):
        listed.append(name)
        if isinstance(found, Examined):
            gated += 1
        if isinstance(found, Refused):
            refused[found.reason] += 1
    return gated, refused, listed


def unlisted(model: nn.Module, listed: list[str]) -> tuple[str, ...]:
    """The classes of modules of gated shape that are not in these names, nor inside or around one of them."""
    if "" in listed:
        return ()
    known = set(listed)
    around = {name[:place] for name in listed for place in range(len(name)) if name[place] == "."} | {""}
    found = {
        type(module).__name__
        for name, module in model.named_modules()
        if of_gated_shape(module)
        and name not in known | around
        and not any(name.startswith(f"{each}.") for each in known)
    }
    return tuple(sorted(found))


def of_gated_shape(module: nn.Module) -> bool:
    """Whether the matrices in a module, at most two levels down, or the stacks of them that it holds, are those of a
    gated MLP: two of one shape or one of twice its size, and a third that leads back.

    This asks neither for layers nor for what they compute, so that it does not share the blind spots of the probe. Left
    out are attentions, by name, and lists, which nothing calls.
    """
    kind = type(module)
    if "attention" in kind.__name__.lower() or "attn" in kind.__name__.lower() or kind.forward is nn.Module.forward:
        return False
    stacks = [tuple(each.shape) for each in module._parameters.values() if each is not None and each.dim() == 3]
    if len({shape[0] for shape in stacks}) == 1 and stacks[0][0] > 1 and _gated_shapes([each[1:] for each in stacks]):
        return True
    tables = {id(each.weight) for each in module.modules() if isinstance(each, nn.Embedding)}
    laid = {id(each.weight) for each in module.modules() if isinstance(each, nn.Linear)}  # [out, in], for certain
    matrices = [
        tuple(each.shape)
        for name, each in module.named_parameters()
        if each.dim() == 2 and min(each.shape) > 1 and name.count(".") <= 2 and id(each) not in tables
    ]
    return _gated_shapes(matrices, either_way=not any(id(each) in laid for each in module.parameters()))


def _gated_shapes(shapes: list[tuple[int, ...]], *, either_way: bool = True) -> bool:
    if len(shapes) == 3:
        return any(one == other == down[::-1] for one, other, down in itertools.permutations(shapes))
    if len(shapes) != 2:
        return False
    pairs = [(both, down) for both, down in itertools.permutations(shapes)]
    if either_way:  # weights of a Conv1D are [in, out]
        pairs += [(both[::-1], down[::-1]) for both, down in pairs]
    return any(both == (2 * down[1], down[0]) for both, down in pairs)


def kinds_of(model: nn.Module) -> list[nn.Module]:
    """One gated MLP of each class and activation."""
    found = {}
    for module in model.modules():
        probed = probe(module)
        if isinstance(probed, Found):
            found[type(module), probed.activation, probed.up_first] = module
    return list(found.values())


def compared(module: nn.Module) -> tuple[float | None, float | None]:
    """The largest relative difference of a module after a swap, and with the pass; None where it was not replaced."""
    found = probe(module)
    assert isinstance(found, Found)
    first = layers.at(module, found.layers["gate"] if "gate" in found.layers else found.layers["gate_up"])
    x = torch.randn(2, 5, first.in_features, generator=torch.Generator().manual_seed(0))
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    right = outcome(module, module, x)
    swapped = None
    with contextlib.suppress(NothingSwappedError), swap(module, "eager"):
        swapped = difference(outcome(module, module, x), right)
    torch._dynamo.reset()
    LEDGER.clear()
    call = torch.compile(module, backend=_passing(Pass(settle("eager", 0))), fullgraph=True)
    passed = difference(outcome(call, module, x), right)
    return swapped, passed if len(LEDGER.report().placed) == 1 else None


def outcome(call: Any, module: nn.Module, x: Tensor) -> list[Tensor]:
    """y, and the gradients of x and of all parameters."""
    x = x.clone().requires_grad_()
    wanted = [x, *module.parameters()]
    y = call(x)
    return [y.detach(), *torch.autograd.grad(y.square().sum(), wanted)]


def difference(mine: list[Tensor], right: list[Tensor]) -> float:
    """The largest difference over the largest value, of all of them."""
    off = [
        ((one - two).abs().max() / two.abs().max().clamp_min(1e-30)).item()
        for one, two in zip(mine, right, strict=True)
    ]
    return max(off)


def _passing(passed: Pass) -> Callable[..., Any]:
    def compile_graph(gm: fx.GraphModule, examples: list[Any]) -> Any:
        passed(gm.graph)
        gm.graph.lint()
        gm.recompile()
        return torch._dynamo.lookup_backend("aot_eager")(gm, examples)

    return compile_graph


def table(rows: list[Row]) -> str:
    """All families in Markdown: the gated ones by name, the others by number and reason."""
    gated = sorted((row for row in rows if row.gated), key=lambda row: row.family)
    run_ones = [row for row in gated if row.kinds]
    right = [row for row in run_ones if row.placed == row.swapped == row.kinds and _within_bound(row)]
    made = len([row for row in rows if row.gated or not row.reason])
    lines = [
        f"{len(rows)} families; {made} were built, {len(gated)} have gated MLPs, {len(run_ones)} of these were run. In "
        f"{len(right)} each kind was swapped and placed, with values and gradients within {BOUND:g} of the largest.",
        "",
        "| family | gated MLPs | refused | kinds | swapped | placed | worst by swap | worst by pass | reason |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in gated:
        worst = [f"{each:.1e}" if each is not None else "–" for each in (row.worst_swap, row.worst_pass)]
        cells = (row.family, row.gated, sum(row.refused.values()), row.kinds, row.swapped, row.placed, *worst)
        lines.append(
            f"| {' | '.join(map(str, cells))} | {'; '.join((row.reason or '', *row.near_misses)).strip('; ')} |"
        )
    missed = Counter(each for row in rows for each in row.unlisted)
    lines += ["", "| families | a module of gated shape that is in no list |", "|---|---|"]
    lines += [f"| {count} | {name} |" for name, count in missed.most_common()]
    reasons = Counter(reason for row in rows for reason in row.refused)
    lines += ["", "| families | why a module that looks like an MLP is refused |", "|---|---|"]
    lines += [f"| {count} | {reason} |" for reason, count in reasons.most_common()]
    unbuilt = Counter((row.reason or "").split(":")[0] for row in rows if row.reason and not row.gated)
    lines += ["", "| families | why they were not built |", "|---|---|"]
    lines += [f"| {count} | {reason} |" for reason, count in unbuilt.most_common()]
    return "\n".join(lines)


def _within_bound(row: Row) -> bool:
    return all(each is not None and each <= BOUND for each in (row.worst_swap, row.worst_pass))


def _said(error: Exception) -> str:
    text = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {text[:120]}"


@contextlib.contextmanager
def _within(seconds: int) -> Iterator[None]:
    def late(*_: Any) -> None:
        raise TimeoutError(f"more than {seconds} s of CPU time")

    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Models print advice while they are made."""
    import logging

    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


if __name__ == "__main__":
    main()
