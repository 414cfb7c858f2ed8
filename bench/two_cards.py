"""Measures a study by one card of a host, by two, and by a Ray cluster if one is named, and compares what they say.

python bench/two_cards.py examples/studies/article.toml --folder two-cards --out bench/results/h200-two-cards.json

The folders `one`, `two` and `ray` in --folder are studies, for `table`, `report` and `compare`. The same command goes
on where it stopped, and `--runs two` measures that one alone: what is measured later finds compiled code in PyTorch's
caches. --same takes the first card twice, where there is one: that tries the runner, and says nothing about two cards.
A card that is taken away is tried by hand: kill a process `mlpfusion.stages.sweep.worker`, and give the command again.
"""

from __future__ import annotations

import argparse
import collections
import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asked import result_file

from mlpfusion.environment import machine
from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.stages.compare.run import compare
from mlpfusion.stages.sweep import cells, folder, run, slots
from mlpfusion.stages.sweep import study as studies
from mlpfusion.stages.sweep.cluster import cluster
from mlpfusion.storage import files, results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.clocks import Clock
    from mlpfusion.records.sweep.study import Study
    from mlpfusion.stages.sweep.slots import Slot
    from mlpfusion.stages.sweep.study import Definition

CLOCKS: Final = ("graph_us", "event_us", "wall_us")
FIRST: Final = "one"
RUNS: Final = (FIRST, "two", "ray")


class Run(NamedTuple):
    """A study that is measured: by how many workers, in how many seconds of all commands, and where it is."""

    name: str
    workers: int
    seconds: float
    folder: Path
    study: Study


def measured(name: str, study: Definition, places: run.Places, out: Path) -> None:
    """Measure the study at these places, in a folder of its own; what is finished there is not measured again."""
    if (found := kept(name, study, out)) is not None and is_whole(found):
        return  # its seconds are those in which it was measured
    print(f"{name}: {len(places.devices)} workers", file=sys.stderr, flush=True)
    before, begun = spent_s(out, name), time.monotonic()
    try:
        run.sweep(study, places, out=out / name, tell=lambda said: print(said, file=sys.stderr))
    finally:
        out.mkdir(parents=True, exist_ok=True)
        facts = {"workers": len(places.devices), "seconds": before + time.monotonic() - begun}
        files.write_whole("seconds", out / f"{name}.json", json.dumps(facts).encode())


def spent_s(out: Path, name: str) -> float:
    """Seconds that earlier commands have spent on a run."""
    path = out / f"{name}.json"
    return float(json.loads(path.read_text(encoding="utf-8"))["seconds"]) if path.exists() else 0.0


def is_whole(found: Run) -> bool:
    """Whether no cell of it waits to be measured."""
    return all(each.state != "waiting" for each in found.study.cells)


def kept(name: str, study: Definition, out: Path) -> Run | None:
    """A run of earlier commands, if there is one."""
    path = out / f"{name}.json"
    found = folder.before(out / name, study.name) if path.exists() else None
    if found is None:
        return None
    facts = json.loads(path.read_text(encoding="utf-8"))
    return Run(name, facts["workers"], facts["seconds"], out / name, found)


def two_of(found: Sequence[Slot], *, same: bool) -> tuple[Slot, Slot]:
    """Two slots, each with the CPUs that it has among two."""
    if same:
        return found[0], found[0]
    if len(found) < 2:
        raise UsageError("two cards are needed; --same takes one twice")
    return found[0], found[1]


def rows(first: Run, other: Run) -> list[dict[str, Any]]:
    """Each clock of each backend in each cell that both runs finished: its medians in µs, and the later over the first.

    Raises:
        MlpfusionError: there is none.
    """
    before = {each.digest: each for each in first.study.cells if each.state == "finished"}
    made = []
    for kept in other.study.cells:
        if kept.state != "finished" or kept.digest not in before:
            continue
        a, b = (
            results.load(each.folder / folder.CELLS / f"{one.file}")
            for each, one in ((first, before[kept.digest]), (other, kept))
        )
        there = {row.backend: row for row in a.rows}
        for row in b.rows:
            for name in CLOCKS:
                one: Clock | None = getattr(there[row.backend].clocks, name, None)
                two: Clock | None = getattr(row.clocks, name, None)
                if one is not None and two is not None:
                    work = kept.cell.work.workload
                    facts = {"run": other.name, "tokens": work.tokens, "mode": work.mode, "backend": row.backend}
                    times = {"first_us": one.median, "us": two.median, "ratio": two.median / one.median}
                    made.append({**facts, "clock": name, **times})
    if not made:
        raise MlpfusionError(f"no row of {other.folder} can be compared")
    return made


def summary(found: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Of each clock how many rows there are, the median of their ratios, and the largest distance of one from 1."""
    made = {}
    for name in CLOCKS:
        ratios = [each["ratio"] for each in found if each["clock"] == name]
        if ratios:
            worst = max(abs(ratio - 1) for ratio in ratios)
            within = sum(abs(ratio - 1) <= 0.01 for ratio in ratios)
            made[name] = {"rows": len(ratios), "median": statistics.median(ratios), "worst": worst, "within_1%": within}
    return made


def words(first: Run, other: Run) -> dict[str, int]:
    """How many rows `compare` calls faster, slower, the same or inconclusive."""
    made = compare(str(first.folder), str(other.folder))
    return dict(collections.Counter(row.word for group in made.groups for row in group.rows if row.word is not None))


def document(runs: Sequence[Run], *, same: bool) -> dict[str, Any]:
    """All that was found, the first run being what the others are compared with."""
    first, others = runs[0], runs[1:]
    found = {each.name: rows(first, each) for each in others}
    return {
        "schema": 1,
        "kind": "two-cards",
        "created": machine.now(),
        "study": first.study.name,
        "devices": sorted({each.cell.gpu for run in runs for each in run.study.cells}),
        "versions": first.study.nodes["node 1"].versions,
        "same_card": same,
        "runs": [
            {
                "run": each.name,
                "workers": each.workers,
                "seconds": each.seconds,
                "share": each.seconds / first.seconds,
                "cells": dict(collections.Counter(kept.state for kept in each.study.cells)),
                "attempts": sum(len(kept.attempts) for kept in each.study.cells),
                "failed": {cells.title(kept.cell): kept.reason for kept in each.study.cells if kept.state == "failed"},
            }
            for each in runs
        ],
        "clocks": {name: summary(each) for name, each in found.items()},
        "compared": {each.name: words(first, each) for each in others},
        "rows": [row for each in found.values() for row in each],
    }


def text(found: dict[str, Any]) -> str:
    """The runs and the clocks in a few lines."""
    lines = [
        f"{each['run']}: {each['workers']} workers, {each['seconds']:.0f} s, {each['share']:.2f} of the first; "
        f"cells {each['cells']}"
        for each in found["runs"]
    ]
    for run_name, clocks in found["clocks"].items():
        for name, each in clocks.items():
            lines.append(
                f"{run_name} over {FIRST}, {name}: median {each['median']:.4f}, worst {each['worst']:.2%} from 1, "
                f"{each['within_1%']} of {each['rows']} rows within 1%"
            )
        lines.append(f"{run_name}: compare says {found['compared'][run_name]}")
    return "\n".join(lines)


def main() -> None:
    """Measure, compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", help="TOML file of `mlpfusion sweep`")
    parser.add_argument("--folder", type=Path, required=True, help="where the studies go")
    parser.add_argument("--out", type=result_file, help="result file")
    parser.add_argument("--device", choices=("cuda", "cpu"))
    parser.add_argument("--same", action="store_true", help="the first card twice")
    parser.add_argument("--ray", help="a cluster's address, for a run there too")
    parser.add_argument(
        "--runs", nargs="+", choices=RUNS, help="measure these now; all, but a cluster that is not named"
    )
    args = parser.parse_args()
    asked = args.runs or [name for name in RUNS if name != "ray" or args.ray is not None]
    if "ray" in asked and args.ray is None:
        parser.error("--runs ray needs --ray")
    study = studies.read(args.study)
    two = two_of(slots.found(args.device), same=args.same)
    places = {FIRST: run.Host(two[:1]), "two": run.Host(two)}
    for name in asked:
        if name in places:
            measured(name, study, places[name], args.folder)
        else:
            with cluster.reached(args.ray, study, lambda said: print(said, file=sys.stderr)) as nodes:
                measured(name, study, nodes, args.folder)
    runs = [found for name in RUNS if (found := kept(name, study, args.folder)) is not None]
    whole_runs = [each for each in runs if is_whole(each)]
    if len(whole_runs) < 2 or whole_runs[0].name != FIRST:
        print(f"nothing to compare yet: of {args.folder} {', '.join(each.name for each in whole_runs)} is whole")
        return
    compared = document(whole_runs, same=args.same)
    print(text(compared))
    if args.out is not None:
        args.out.write_text(json.dumps(compared, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
