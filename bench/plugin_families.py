"""Compiles whole models of many families with the pass of `mlpfusion.inductor`, and proves them by those without it.

python bench/plugin_families.py                     all of FAMILIES; those that are in build/ are not run again
python bench/plugin_families.py --only llama,phi3   some, anew; any type of transformers with `input_ids`
python bench/plugin_families.py --table             the table of what is there, in Markdown

A model is small, random, and of two layers. Its MLPs are those that a swap finds. The proof is `mlpfusion.prove`'s:
final hidden states, the gradients of all parameters and each MLP, against fp64. Models are captured by Dynamo and
differentiated by AOTAutograd; `--inductor` has Inductor's own code as well, which takes minutes a family.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

os.environ.setdefault("TRITON_INTERPRET", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import msgspec
import torch
from families import built
from torch import fx

import mlpfusion
from mlpfusion.inductor import Trial
from mlpfusion.models.find import Examined
from mlpfusion.models.swap import candidates

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.records.profile import Accuracy
    from mlpfusion.records.proof import Proof

ROWS: Final = Path(__file__).resolve().parents[1] / "build" / "plugin-families.jsonl"
FAMILIES: Final = (
    "llama", "gemma", "gemma2", "gemma3_text", "qwen2", "qwen3", "mistral", "phi3", "glm4", "olmo2", "smollm3",
    "granite", "cohere", "stablelm", "helium", "seed_oss", "exaone4", "ministral3", "modernbert", "qwen2_moe",
    "olmo", "olmo3", "glm", "ernie4_5",
)  # fmt: skip
TOKENS: Final = (2, 7)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One family: its MLPs by a swap, those that the pass placed, and errors over the plain model's, with their limits.

    `layers` is of the MLP that is nearest to its limit. `reason` says why there is no proof, or what breaks the policy.
    """

    family: str
    compiler: str
    mlps: int = 0
    placed: int = 0
    logits: tuple[float, float] | None = None
    gradients: tuple[float, float] | None = None
    layers: tuple[float, float] | None = None
    holds: bool = False
    reason: str | None = None
    seconds: float = 0.0

    @property
    def right(self) -> bool:
        """Whether every MLP was placed, and the proof holds with gradients."""
        return self.holds and self.placed == self.mlps and self.gradients is not None


def main() -> None:
    """Run what is asked for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="families, by commas")
    parser.add_argument("--inductor", action="store_true", help="with Inductor's own code")
    parser.add_argument("--table", action="store_true", help="only print what is there")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore")
    rows = read()
    if not asked.table:
        only = [name for name in asked.only.split(",") if name]
        for family in only or [each for each in FAMILIES if each not in rows]:
            rows[family] = row = run(family, inductor=asked.inductor)
            ROWS.parent.mkdir(exist_ok=True)
            with ROWS.open("ab") as out:
                out.write(msgspec.json.encode(row) + b"\n")
            print(f"{family}: {row.placed} of {row.mlps} placed, {row.reason or 'holds'}", file=sys.stderr, flush=True)
    print(table(list(rows.values())))


def read() -> dict[str, Row]:
    """What is there, the last row of each family."""
    lines = ROWS.read_bytes().splitlines() if ROWS.exists() else []
    return {row.family: row for row in (msgspec.json.decode(line, type=Row) for line in lines)}


def run(family: str, *, inductor: bool) -> Row:
    """One family."""
    started = time.process_time()
    row = Row(family=family, compiler="inductor" if inductor else "aot_eager")
    torch._dynamo.reset()
    try:
        model: Any = built(family, small=True)
        model.config.use_cache = False
        found = [each for _, _, each in candidates(model)]
        row = msgspec.structs.replace(row, mlps=sum(isinstance(each, Examined) for each in found))
        ids = torch.randint(3, 64, TOKENS, generator=torch.Generator().manual_seed(0))
        trial = Trial(model, "eager", compiler=None if inductor else by_aot)
        row = judged(row, mlpfusion.prove(trial, {"input_ids": ids}, rounds=0, trace=False))
    except Exception as error:  # whatever a model may raise
        row = msgspec.structs.replace(
            row, reason=f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:160]}"
        )
    return msgspec.structs.replace(row, seconds=round(time.process_time() - started, 1))


def by_aot(call: Callable[..., Any], using: dict[str, Any] | None) -> Callable[..., Any]:
    """A call captured by Dynamo, passed if there are options, and differentiated; each operator runs as it is."""

    def compile_graph(gm: fx.GraphModule, examples: list[Any]) -> Any:
        if using is not None:
            using["pre_grad_custom_pass"](gm.graph)
            gm.graph.lint()
            gm.recompile()
        return torch._dynamo.lookup_backend("aot_eager")(gm, examples)

    compiled: Callable[..., Any] = torch.compile(call, backend=compile_graph)
    return compiled


def judged(row: Row, proof: Proof) -> Row:
    """The row with what a proof says."""

    def of(accuracy: Accuracy | None) -> tuple[float, float] | None:
        return None if accuracy is None else (accuracy.ratio, accuracy.limit)

    layers = [each.accuracy for each in proof.layers]
    return msgspec.structs.replace(
        row,
        placed=len(proof.swapped),
        logits=of(proof.logits.accuracy),
        gradients=of(proof.gradients.accuracy if proof.gradients else None),
        layers=of(max(layers, key=lambda each: each.ratio / each.limit, default=None)),
        holds=proof.holds,
        reason="; ".join(proof.failures) or None,
    )


def table(rows: list[Row]) -> str:
    """All families in Markdown."""
    right = [row for row in rows if row.right]
    lines = [
        f"{len(rows)} families; in {len(right)} the pass placed every MLP that a swap finds, and the proof holds, "
        "gradients too.",
        "",
        "| family | compiler | MLPs | placed | outputs | gradients | worst MLP | holds | CPU s | reason |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: row.family):
        errors = [_shown(each) for each in (row.logits, row.gradients, row.layers)]
        cells = (row.family, row.compiler, row.mlps, row.placed, *errors, "yes" if row.holds else "no", row.seconds)
        lines.append(f"| {' | '.join(map(str, cells))} | {row.reason or ''} |")
    return "\n".join(lines)


def _shown(ratio: tuple[float, float] | None) -> str:
    return "–" if ratio is None else f"{ratio[0]:.2f} of {ratio[1]:g}"


if __name__ == "__main__":
    main()
