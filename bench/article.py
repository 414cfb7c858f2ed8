"""Runs the steps of the public profiling tutorial and checks its claims one by one on this machine.

python bench/article.py --out article.json    (under two minutes on an H100; a CPU run has small shapes and sees less)
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from pathlib import Path
from typing import Any

from asked import result_file

# Read when torch is loaded. Inductor's tuner chooses differently from run to run: each run draws its own.
os.environ.setdefault("TORCHINDUCTOR_AUTOTUNE_LOCAL_CACHE", "0")

import article_matmul
import article_mlp
import msgspec
import torch
from article_facts import Facts, Judged, judge
from article_rungs import TINY, TUTORIAL, Ladder, climb
from tabulate import tabulate

from mlpfusion import device

ARTICLES = {
    "1": "Profiling in PyTorch, part 1 (huggingface.co/blog/torch-profiler)",
    "2": "Profiling in PyTorch, part 2 (huggingface.co/blog/torch-mlp-fusion)",
}
CLAIMS = (*article_matmul.CLAIMS, *article_mlp.CLAIMS)


def header(ladder: Ladder) -> list[str]:
    """What the figures depend on."""
    here, sizes = ladder.device, ladder.sizes
    spec = sizes.mlp.spec
    versions = ", ".join(f"{name} {version}" for name, version in ladder.versions.items())
    return [
        f"machine: {here.name}; {versions}",
        f"shapes: matmul + add {sizes.small} and {sizes.large}, Linear {'x'.join(map(str, sizes.linear))}, "
        f"MLP {sizes.mlp.tokens}x{spec.hidden_size}x{spec.intermediate_size} {spec.dtype}",
        "figures: medians [20th to 80th percentile]; traces of 20 calls; an idle GPU before each traced call",
        *(f"part {part}: {title}" for part, title in ARTICLES.items()),
    ]


def table(judged: tuple[Judged, ...], *, markdown: bool) -> str:
    """One line for each claim."""
    rows = [[one.part, one.says, one.verdict, one.figures, one.clock] for one in judged]
    if markdown:
        rows = [[cell.replace("|", "\\|").replace("<", "&lt;") for cell in row] for row in rows]
    heads = ["part", "claim", "verdict", "figures", "seen by"]
    widths = None if markdown else [10, 34, 11, 60, 24]
    made: str = tabulate(rows, heads, tablefmt="github" if markdown else "simple", maxcolwidths=widths)
    return made


def summary(judged: tuple[Judged, ...]) -> str:
    """How many claims got which verdict."""
    verdicts = [one.verdict for one in judged]
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))


def steps(ladder: Ladder) -> str:
    """Each rung's figures, for what the claims do not ask."""
    rows: list[list[Any]] = []
    for rung in ladder.rungs:
        reading = rung.reading
        if reading is None:
            rows.append([rung.name, rung.reason, *[""] * 4])
            continue
        launches, clocks = reading.analysis.launches, rung.clocks
        times = [_time(reading.host_spread), _time(reading.device_spread), _time(clocks.get("host_us"))]
        rows.append(
            [
                rung.name,
                f"{launches.kernels} + {launches.memcpys} + {launches.memsets}",
                *times,
                _time(clocks.get("event_us")),
            ]
        )
    heads = ["rung", "kernels + copies + fills", "host µs, traced", "kernel µs, traced", "host µs", "event µs"]
    made: str = tabulate(rows, heads, tablefmt="github", disable_numparse=True)
    return made


def _time(found: Any) -> str:
    from mlpfusion import units

    if found is None or found.p20 is None:
        return "–"
    return units.with_spread(found.median, found.p20, found.p80)


def main() -> None:
    """Climb, judge, print, and write JSON with a Markdown table beside it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=result_file, help="write the result here as JSON, and the table beside it as .md")
    parser.add_argument("--judge", type=Path, help="measure nothing: judge the ladder in this result file again")
    parser.add_argument("--traces", type=Path, help="keep the traces, scrubbed, in this folder")
    parser.add_argument("--device", choices=["cuda", "cpu"])
    parser.add_argument("--rounds", type=int, default=40, help="samples of each clock; at least 20")
    options = parser.parse_args()
    if options.judge is not None:
        report(*recorded(options.judge), options.out)
        return
    here = device.detect(options.device)
    if here.kind == "cpu":
        torch._inductor.config.cpp.enable_kernel_profile = True  # makes each C++ kernel an event of the trace
    if options.traces is not None:
        options.traces.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    started = time.perf_counter()

    def tell(text: str) -> None:
        print(f"{time.perf_counter() - started:6.1f} s  {text}", file=sys.stderr, flush=True)

    sizes = TUTORIAL if here.kind == "cuda" else TINY
    ladder = climb(here, sizes, rounds=options.rounds, keep=options.traces, tell=tell)
    tell("done")
    report(ladder, datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), options.out)


def recorded(path: Path) -> tuple[Ladder, str]:
    """The ladder in a result file, and when it was measured."""
    document = msgspec.json.decode(path.read_bytes())
    return msgspec.convert(document["ladder"], Ladder), document["created"]


def report(ladder: Ladder, created: str, out: Path | None) -> None:
    """Judge every claim by the ladder, print the table, and write it to `out` and, as Markdown, beside it."""
    facts = Facts(ladder)
    judged = tuple(judge(claim, facts) for claim in CLAIMS)
    print("\n".join(header(ladder)), table(judged, markdown=False), summary(judged), sep="\n\n")
    if out is not None:
        document = {"schema": 1, "kind": "article", "created": created, "claims": judged, "ladder": ladder}
        out.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n")
        out.with_suffix(".md").write_text(markdown(ladder, judged), encoding="utf-8")


def markdown(ladder: Ladder, judged: tuple[Judged, ...]) -> str:
    """The claims and the rungs as one page."""
    lines = ["# The tutorial's claims, checked", "", *(f"- {line}" for line in header(ladder)), "", summary(judged)]
    return "\n".join([*lines, "", table(judged, markdown=True), "", "## The rungs", "", steps(ladder), ""])


if __name__ == "__main__":
    main()
