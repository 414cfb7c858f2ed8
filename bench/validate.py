"""Judges everything on this machine: the controls, every backend, the example, our kernel and Liger's.

python bench/validate.py --out bench/results    writes <card>-validate.json.gz and <card>-validate.md there

With --seconds it starts nothing new after that time; run it again and it goes on where the file ends. What other
versions of the validator, the kernels or the controls have judged is judged again, and stays in the file until then.

python bench/validate.py --out part-1 --shard 1/8 &     every eighth of all, on a machine with more cores than one
python bench/validate.py --out bench/results --join part-1 part-2    puts what the parts judged into one file
"""

from __future__ import annotations

import argparse
import ast
import gzip
import hashlib
import json
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import mlpfusion_kernels
import msgspec
import torch
import triton
from asked import share

import mlpfusion
from mlpfusion import backend, device
from mlpfusion.environment import machine, provenance
from mlpfusion.records.environment import Environment
from mlpfusion.records.validation import SCHEMA, Control, Judged, SelfTest, Verdict
from mlpfusion.report import self_test as control_report
from mlpfusion.report import validation as verdict_report
from mlpfusion.stages.validate.judge import examine, self_test
from mlpfusion.stages.validate.judge.exam import Asked
from mlpfusion.stages.validate.progress import silent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlpfusion.device import Device
    from mlpfusion.spec import Dtype

ROOT: Final = Path(__file__).parents[1]
PARTS: Final = ("judged", "verdicts")
SUFFIX: Final = ".json.gz"  # as text the checks of 300 controls are 8 MB


class Target(NamedTuple):
    """What is judged beside the controls: its text and name, and its checks, dtypes and rows of x (None: all)."""

    text: str
    name: str
    only: tuple[str, ...] | None = None
    dtypes: tuple[Dtype, ...] | None = None
    shapes: tuple[tuple[int, ...], ...] | None = None
    against: tuple[str, ...] = ("eager", "inductor")


BRIEF: Final = ("inputs-kept", "results-kept", "function", "constants", "mlp-values", "mlp-gradients")
# A new shape takes up to a minute of compiling and tuning. Two are judged in 11 kinds of call and one dtype, not in 49
# kinds: what others would tell is left to other backends. The slowest comes last, and takes no other's time.
SLOW: Final = (
    Target("compile-cudagraphs", "compile-cudagraphs", BRIEF, against=()),
    *(Target(name, name, BRIEF, ("bfloat16",), ((160,),), ()) for name in ("quack", "compile-max-autotune")),
)


def targets() -> list[Target]:
    """The example, our kernel, Liger's, and every registered backend."""
    found = [
        Target(f"{ROOT / 'examples' / 'gelu_mul.py'}:gelu_mul", "examples/gelu_mul.py:gelu_mul"),
        Target("mlpfusion_kernels:act_mul", "mlpfusion_kernels:act_mul"),
        Target(f"{self_test.folder() / 'good.py'}:liger", "good.py:liger"),
    ]
    names, slow = backend.names(), {each.name: each for each in SLOW}
    found += [Target(name, name) for name in names if name not in slow]
    return found + [each for name, each in slow.items() if name in names]


def code() -> str:
    """A digest of all code that judges or is judged here, and of what it runs on."""
    paths = {*Path(mlpfusion_kernels.__file__).parent.rglob("*.py"), *sources()}
    paths |= {path for folder in (self_test.folder(), ROOT / "examples") for path in folder.iterdir() if path.is_file()}
    digest = hashlib.sha256(f"torch {torch.__version__}, triton {triton.__version__}".encode())
    for path in sorted(paths, key=lambda path: (path.parent.name, path.name)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def sources() -> set[Path]:
    """The files of the validator and the backends, and all of mlpfusion that these import at any depth."""
    root = Path(mlpfusion.__file__).parent
    found: set[Path] = set()
    left = {*(root / "stages" / "validate").rglob("*.py"), *(root / "backends").rglob("*.py")}
    while left:
        path = left.pop()
        found.add(path)
        left |= set(_imported(path, root)) - found
    return found


def _imported(path: Path, root: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{each.name}" for each in node.names)]
        else:
            names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            package, _, rest = name.partition(".")
            place = root.joinpath(*rest.split(".")) if package == root.name and rest else None
            if place is not None:
                yield from (each for each in (place.with_suffix(".py"), place / "__init__.py") if each.is_file())


def recorded(path: Path) -> dict[str, Any]:
    """What a file of this script holds."""
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


class Set:
    """What was judged so far, in one file."""

    def __init__(self, path: Path, here: Device, *, seed: int) -> None:
        self.path = path
        self.page = path.with_name(path.name.removesuffix(SUFFIX) + ".md")
        self.here = here
        self.seed = seed
        self.code = code()
        self.document: dict[str, Any] = {"schema": 1, "kind": "validation-set", "judged": {}, "verdicts": {}}
        if path.is_file():
            self.document |= recorded(path)
            self.seed = self.document["seed"]
        self.by: dict[str, dict[str, str]] = self.document.setdefault("by", {"judged": {}, "verdicts": {}})

    def lacks(self, part: str, name: str) -> bool:
        """Whether this is still to be judged by this code."""
        return name not in self.document[part] or self.by[part].get(name) != self.code

    def keep(self, part: str, name: str, found: Judged | Verdict) -> None:
        """Keep it, and write the file and the tables beside it."""
        self.document[part][name] = msgspec.to_builtins(found)
        self.by[part][name] = self.code
        self.document |= {
            "seed": self.seed,
            "device": msgspec.to_builtins(self.here),
            "environment": msgspec.to_builtins(
                machine.collect(self.here, provenance.of_targets(self.document["verdicts"]))
            ),
        }
        self.save()

    def save(self) -> None:
        """Write the file and the tables beside it."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.document, indent=1, ensure_ascii=False) + "\n"
        self.path.write_bytes(gzip.compress(text.encode(), mtime=0))  # a file that holds the same is the same
        self.page.write_text(self.tables(), encoding="utf-8")

    def tables(self) -> str:
        """Everything as Markdown: the controls, one line per target, then each target's own page."""
        judged = msgspec.convert(self.in_order("judged"), tuple[Judged, ...], strict=False)
        verdicts = msgspec.convert(self.in_order("verdicts"), tuple[Verdict, ...], strict=False)
        facts = msgspec.convert(self.document["environment"], Environment)
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
        parts = [f"# `mlpfusion validate` on {where}", *self.standing()]
        parts += ["## Controls", control_report.render(test, "github").rstrip()]
        parts += ["## Targets", verdict_report.matrix(verdicts, github=True)]
        parts += [verdict_report.page(verdict, github=True, everything=True) for verdict in verdicts]
        return "\n\n".join(parts) + "\n"

    def join(self, other: Path) -> None:
        """Take over what the file of a part holds that this code has judged."""
        document = recorded(other)
        for part in PARTS:
            for name, found in document[part].items():
                if document["by"][part].get(name) == self.code:
                    self.document[part][name] = found
                    self.by[part][name] = self.code
        versions = self.document.get("environment", {}).get("distributions", {})
        self.document |= {fact: document[fact] for fact in ("seed", "device", "environment")}
        self.document["environment"]["distributions"] |= versions

    def in_order(self, part: str) -> list[Any]:
        """What the file holds, as a run from the start would judge it."""
        kept = self.document[part]
        return [kept[name] for name in _names(part) if name in kept]

    def standing(self) -> list[str]:
        """What is missing, and what other versions have judged."""
        said = []
        for part, what in (("judged", "controls"), ("verdicts", "targets")):
            names = _names(part)
            missing = [name for name in names if name not in self.document[part]]
            older = [name for name in names if name not in missing and self.lacks(part, name)]
            if missing:
                said.append(f"Not judged here yet, of {len(names)} {what}: {', '.join(missing)}.")
            if older:
                which = "all" if len(older) == len(names) - len(missing) else ", ".join(older)
                said.append(f"Of these {what}, judged by other versions of mlpfusion, PyTorch or Triton: {which}.")
        return said


def _names(part: str) -> list[str]:
    return [each.name for each in (self_test.controls() if part == "judged" else targets())]


def judge_controls(bench: examine.Bench, kept: Set, deadline: float, asked_for: Sequence[Control]) -> None:
    """Every requested control that the file does not hold yet."""
    for control in asked_for:
        if kept.lacks("judged", control.name) and time.monotonic() < deadline:
            one = self_test.judge(bench, control, seed=kept.seed, tell=silent)
            kept.keep("judged", control.name, one)
            print(f"{control.name}: {said(control, one)}", flush=True)


def said(control: Control, one: Judged) -> str:
    """One line on a control."""
    if one.verdict is None:
        return f"not run: {one.skipped}"
    return one.wrong or f"as it should be ({control.rejected_by or 'accepted'}, {one.verdict.seconds:.1f} s)"


def asked(target: Target, *, rounds: int) -> Asked:
    """What is asked of a target."""
    return Asked(
        dtypes=target.dtypes,
        shapes=target.shapes,
        only=target.only,
        against=target.against,
        time_limit_s=240.0,
        rounds=rounds,
    )


def judge_targets(
    bench: examine.Bench, kept: Set, deadline: float, *, rounds: int, asked_for: Sequence[Target]
) -> None:
    """Every requested target that the file does not have yet."""
    for target in asked_for:
        if not kept.lacks("verdicts", target.name) or time.monotonic() >= deadline:
            continue
        verdict = examine.examine(
            bench,
            examine.Order(target.text, examine.DEFAULT),
            asked(target, rounds=rounds),
            seed=kept.seed,
            sources=lambda name, text: None,
            tell=silent,
        )
        checks = tuple(
            msgspec.structs.replace(check, repro=check.repro.replace(target.text, target.name))
            for check in verdict.checks
        )
        shown = msgspec.structs.replace(verdict, target=target.name, checks=checks)
        kept.keep("verdicts", target.name, shown)
        print(f"{target.name}: {verdict.word}: {verdict.headline} ({verdict.seconds:.1f} s)", flush=True)


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
    parser.add_argument("--shard", type=share, default=slice(None), metavar="I/N", help="the part I of N of all")
    parser.add_argument("--join", type=Path, nargs="+", metavar="DIR", help="folders of parts; judges nothing")
    args = parser.parse_args()
    names = [*known] if args.targets is None else args.targets
    for each in names:
        if each not in known:
            parser.error(f"unknown target {each!r}; valid: {', '.join(known)}")
    here = msgspec.structs.replace(device.detect(args.device), interpreted=False)
    # "NVIDIA H200" and "NVIDIA H100 80GB HBM3" are h200 and h100, as in the names of the other results.
    card = re.search(r"\b([A-Z]+\d+)", here.name) if here.kind == "cuda" else None
    name = card.group(1).lower() if card else here.kind
    kept = Set(args.out / f"{name}-validate{SUFFIX}", here, seed=examine.new_seed())
    if args.join is not None:
        for each in args.join:
            kept.join(each / kept.path.name)
        kept.save()
    else:
        deadline = time.monotonic() + args.seconds
        with examine.Bench(here.kind) as bench:
            if not args.skip_controls:
                judge_controls(bench, kept, deadline, self_test.controls()[args.shard])
            asked_for = [known[each] for each in names[args.shard]]
            judge_targets(bench, kept, deadline, rounds=args.rounds, asked_for=asked_for)
    print("\n".join([*kept.standing(), f"in {kept.path} and {kept.page}"]))


if __name__ == "__main__":
    main()
