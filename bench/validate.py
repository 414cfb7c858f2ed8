"""Judges everything on this machine: the controls, every registered backend, the example, our kernel and Liger's.

python bench/validate.py --out bench/results    writes <card>-validate.json and <card>-validate.md there

With --seconds it starts nothing new after that time; run it again and it goes on where the file ends.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from mlpfusion import backend, device, environment
from mlpfusion.report import controls as control_report
from mlpfusion.report import verdict as verdict_report
from mlpfusion.validate import controls, run
from mlpfusion.validate.exam import Asked
from mlpfusion.verdicts import SCHEMA, Control, Judged, SelfTest, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.device import Device

ROOT: Final = Path(__file__).parents[1]
# Where every new shape costs a minute of tuning, what the shapes would tell is left to the other backends.
SLOW: Final = {"compile-max-autotune", "compile-cudagraphs", "fused-graph", "quack"}
BRIEF: Final = ("inputs-kept", "results-kept", "function", "constants", "mlp-values", "mlp-gradients")


class Target(NamedTuple):
    """What is judged beside the controls: its text, what to call it, and the checks (None: all)."""

    text: str
    name: str
    only: tuple[str, ...] | None = None
    against: tuple[str, ...] = ("eager", "inductor")


def targets() -> list[Target]:
    """The example, our kernel, Liger's, and every registered backend."""
    found = [
        Target(f"{ROOT / 'examples' / 'gelu_mul.py'}:gelu_mul", "examples/gelu_mul.py:gelu_mul"),
        Target("mlpfusion_kernels:act_mul", "mlpfusion_kernels:act_mul"),
        Target(f"{controls.folder() / 'good.py'}:liger", "good.py:liger"),
    ]
    for name in backend.names():
        slow = name in SLOW
        found.append(Target(name, name, BRIEF if slow else None, () if slow else ("eager", "inductor")))
    return found


class Set:
    """What was judged so far, in one file."""

    def __init__(self, path: Path, here: Device, *, seed: int) -> None:
        self.path = path
        self.here = here
        self.seed = seed
        self.document: dict[str, Any] = {"judged": {}, "verdicts": {}}
        if path.is_file():
            self.document = json.loads(path.read_text(encoding="utf-8"))

    def save(self) -> None:
        """Write the file and the tables beside it."""
        facts = environment.collect(self.here)
        self.document |= {
            "kind": "validation-set",
            "seed": self.seed,
            "device": msgspec.to_builtins(self.here),
            "environment": msgspec.to_builtins(facts),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        self.path.with_suffix(".md").write_text(self.tables(), encoding="utf-8")

    def tables(self) -> str:
        """Everything as Markdown: the controls, one line per target, then each target's own page."""
        judged = msgspec.convert(list(self.document["judged"].values()), tuple[Judged, ...], strict=False)
        verdicts = msgspec.convert(list(self.document["verdicts"].values()), tuple[Verdict, ...], strict=False)
        facts = environment.collect(self.here)
        test = SelfTest(
            schema=SCHEMA,
            kind="self-test",
            mlpfusion="",
            created="",
            seed=self.seed,
            seconds=round(sum(one.verdict.seconds for one in judged if one.verdict is not None), 1),
            device=self.here,
            environment=facts,
            judged=judged,
        )
        where = f"{self.here.name}, torch {facts.torch}, triton {facts.triton}, liger-kernel {facts.liger_kernel}"
        parts = [f"# `mlpfusion validate` on {where}", "## Controls", control_report.render(test, "github").rstrip()]
        parts += ["## Targets", verdict_report.matrix(verdicts, github=True)]
        parts += [verdict_report.page(verdict, github=True) for verdict in verdicts]
        return "\n\n".join(parts) + "\n"


def judge_controls(bench: run.Bench, kept: Set, deadline: float) -> None:
    """Every control that the file does not hold yet."""
    for control in controls.controls():
        if control.name not in kept.document["judged"] and time.monotonic() < deadline:
            one = controls.judge(bench, control, seed=kept.seed, tell=quiet)
            kept.document["judged"][control.name] = msgspec.to_builtins(one)
            kept.save()
            print(f"{control.name}: {said(control, one)}", flush=True)


def said(control: Control, one: Judged) -> str:
    """One line on a control."""
    if one.verdict is None:
        return f"not run: {one.skipped}"
    return one.wrong or f"as it should be ({control.rejected_by or 'accepted'}, {one.verdict.seconds:.1f} s)"


def judge_targets(bench: run.Bench, kept: Set, deadline: float, *, rounds: int, asked_for: Sequence[Target]) -> None:
    """Every target asked for that the file does not hold yet."""
    for target in asked_for:
        if target.name in kept.document["verdicts"] or time.monotonic() >= deadline:
            continue
        asked = Asked(only=target.only, against=target.against, time_limit_s=240.0, rounds=rounds)
        verdict = run.examine(
            bench,
            run.Order(target.text, run.DEFAULT),
            asked,
            seed=kept.seed,
            sources=lambda name, text: None,
            tell=quiet,
        )
        checks = tuple(
            msgspec.structs.replace(check, repro=check.repro.replace(target.text, target.name))
            for check in verdict.checks
        )
        shown = msgspec.structs.replace(verdict, target=target.name, checks=checks)
        kept.document["verdicts"][target.name] = msgspec.to_builtins(shown)
        kept.save()
        print(f"{target.name}: {verdict.word}: {verdict.headline} ({verdict.seconds:.1f} s)", flush=True)


def quiet(target: str, text: str) -> None:
    """Say nothing between verdicts."""


def main() -> None:
    """Judge all of it, or as much as there is time for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    parser.add_argument("--device", choices=device.DEVICE_KINDS)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--skip-controls", action="store_true")
    known = {target.name: target for target in targets()}
    parser.add_argument("--targets", nargs="*", metavar="TARGET", help=f"only these: {', '.join(known)}")
    args = parser.parse_args()
    names = [*known] if args.targets is None else args.targets
    for each in names:
        if each not in known:
            parser.error(f"unknown target {each!r}; valid: {', '.join(known)}")
    here = msgspec.structs.replace(device.detect(args.device), interpreted=False)
    # "NVIDIA H200" and "NVIDIA H100 80GB HBM3" are h200 and h100, as in the names of the other results.
    card = re.search(r"\b([A-Z]+\d+)", here.name) if here.kind == "cuda" else None
    name = card.group(1).lower() if card else here.kind
    kept = Set(args.out / f"{name}-validate.json", here, seed=run.new_seed())
    kept.seed = kept.document.get("seed", kept.seed)
    deadline = time.monotonic() + args.seconds
    with run.Bench(here.kind) as bench:
        if not args.skip_controls:
            judge_controls(bench, kept, deadline)
        judge_targets(bench, kept, deadline, rounds=args.rounds, asked_for=[known[each] for each in names])
    kept.save()
    print(f"written: {kept.path} and {kept.path.with_suffix('.md')}")


if __name__ == "__main__":
    main()
