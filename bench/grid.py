"""Races `fused` against every baseline over models and token counts, half of them untuned.

python bench/grid.py                          (goes on where the last run stopped; `--budget-s` seconds at a time)
python bench/grid.py --shard I/N --out PART   (the points of one of N cards)
python bench/grid.py --join PART… --out FILE  (puts what the cards measured together; measures nothing)
python bench/grid.py --show FILE              (prints a recorded grid again)
"""

from __future__ import annotations

import argparse
import functools
import gc
import itertools
import math
import random
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

import fused
import fused_rows as rows
import msgspec
import torch
from asked import share
from mlpfusion_kernels import sources
from tabulate import tabulate

from mlpfusion import device
from mlpfusion.device import Device
from mlpfusion.environment import machine, provenance
from mlpfusion.errors import UsageError
from mlpfusion.models import known
from mlpfusion.records.base import Record
from mlpfusion.records.environment import Environment
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.storage import files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.clocks import Ratio
    from mlpfusion.spec import Mode

Half = Literal["tuning", "held-out"]
Kind = Literal["forward", "forward, float16", "training"]

# One card's share of each model's gated MLP. Tiles and constants may be chosen on the first half alone.
SHARES: Final[dict[Half, tuple[tuple[str, int], ...]]] = {
    "tuning": (
        ("article", 1),
        ("gemma-2b", 1),
        ("llama-3.1-8b", 1),
        ("llama-3.1-8b", 8),
        ("llama-3.1-70b", 8),
        ("qwen3-32b", 1),
    ),
    "held-out": (
        ("gemma-3-1b", 1),
        ("gemma-7b", 1),
        ("gemma-2-9b", 1),
        ("phi-4-mini", 1),
        ("qwen2.5-7b", 1),
        ("qwen3-32b", 4),
    ),
}
TOKENS: Final = (1, 3, 8, 24, 64, 96, 256, 384, 1024, 1536, 6000, 16384)
BASELINES: Final = ("eager", "compile", "liger", "triton", "packed", "quack")
AUTOTUNED: Final = "compile-max-autotune"
# Tuning Inductor's matrix products takes up to 45 s a point, so one token count of each share has it, by turns.
AUTOTUNED_EVERY: Final = len(TOKENS) + 1
ORDER_SEED: Final = 0
RESAMPLES: Final = 2000
LOST: Final = 0.99  # of the best baseline: a loss beyond what two runs of one kernel differ by
# Two token counts of each share, by turns, are measured in float16 and in training too.
KIND_EVERY: Final = 6
MOST_BYTES: Final = 2**27
WORST: Final = 10
WORST_TOLD: Final = 5


class Share(Record, frozen=True, kw_only=True):
    """One card's part of a model's gated MLP, and the half of the grid that it belongs to."""

    name: str
    half: Half
    spec: MLPSpec


class Grid(Record, frozen=True, kw_only=True):
    """A result file of this script."""

    schema: int = 1
    kind: Literal["grid"] = "grid"
    device: Device
    environment: Environment
    packages: dict[str, str]
    kernels: str | None = None  # the digest of their sources; older files have none
    shares: tuple[Share, ...]
    rows: tuple[rows.Row, ...]


@functools.cache
def shares() -> tuple[Share, ...]:
    """The shares of both halves, the tuning half first."""
    made = []
    for half, listed in SHARES.items():
        for model, ranks in listed:
            spec = known.models()[model].spec
            inner, rest = divmod(spec.intermediate_size, ranks)
            assert not rest, (model, ranks)
            spec = msgspec.structs.replace(spec, intermediate_size=inner, dtype="bfloat16")
            made.append(Share(name=model if ranks == 1 else f"{model}/{ranks}", half=half, spec=spec))
    return tuple(made)


def plan() -> list[tuple[rows.Planned, tuple[str, ...]]]:
    """Every point with its backends, in a fixed random order, so that a part of the grid is a sample of it.

    Those that tune Inductor's products come last, since one takes the time of five others.
    """
    points = []
    for place, (one, tokens) in enumerate(itertools.product(shares(), TOKENS)):
        model, column = divmod(place, len(TOKENS))
        more = (AUTOTUNED,) if place % AUTOTUNED_EVERY == 0 else ()
        points.append((_planned(one.spec, tokens, "inference"), (*BASELINES, *more, "fused")))
        if (model + column) % KIND_EVERY == 0:
            points.append((_planned(one.spec, tokens, "training"), (*BASELINES, "fused")))
        if (model + column) % KIND_EVERY == KIND_EVERY // 2:
            half = msgspec.structs.replace(one.spec, dtype="float16")
            points.append((_planned(half, tokens, "inference"), (*BASELINES, "fused")))
    order = random.Random(ORDER_SEED).sample(points, len(points))
    return sorted(order, key=lambda point: AUTOTUNED in point[1])


def _planned(spec: MLPSpec, tokens: int, mode: Mode) -> rows.Planned:
    work = Workload(spec=spec, batch=1, seq=tokens, mode=mode)
    return rows.Planned(workload=work, wanted=(), optional=(), targets=())


def kind_of(work: Workload) -> Kind:
    """Which of the grid's kinds a point is of."""
    if work.mode == "training":
        return "training"
    return "forward" if work.spec.dtype == "bfloat16" else "forward, float16"


def measure(
    grid: Grid, out: Path, *, budget_s: float, rounds: int, baselines: Sequence[str] = (), part: slice = slice(None)
) -> Grid:
    """Measure the points missing from `grid` while the time lasts; the file has each as soon as it is finished.

    With `baselines` only these are raced, with `part` only these points of the plan measured.
    """
    done = {row.key for row in grid.rows}
    own = plan()[part]
    missing = [
        (planned, (*baselines, "fused") if baselines else names) for planned, names in own if planned.key not in done
    ]
    longest = 0.0
    for planned, names in missing:
        if fused.elapsed_s() + longest > budget_s:
            break
        small = fused.tiny(planned) if grid.device.kind == "cpu" else planned
        row = fused.measure(small, grid.device, peers=names, rounds=rounds, replays_alone=True)
        longest = max(longest, row.seconds)
        grid = msgspec.structs.replace(
            grid, rows=(*grid.rows, msgspec.structs.replace(row, key=planned.key, workload=planned.workload))
        )
        files.write_whole("result file", out, fused.encode(grid).encode())
        fused.tell(f"{planned.key}: {_cell(row)} in {row.seconds:.1f} s; {len(grid.rows)} of {len(own)} points")
        torch.compiler.reset()
        if grid.device.kind == "cuda":
            # Else each capture's collection walks the compilers' modules for 0.4 s, a third of a small point's time.
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            torch.cuda.empty_cache()
    return grid


# ---- what it says ----------------------------------------------------------------------------------------------------


def against_best(row: rows.Row) -> tuple[str, Ratio] | None:
    """The fastest baseline by the graph clock, and its time over that of `fused`; None where either is missing."""
    timed = {peer.name: peer for peer in row.peers if peer.median(rows.GRAPH) is not None}
    ours = timed.pop("fused", None)
    if ours is None or not timed:
        return None
    best = min(timed.values(), key=lambda peer: peer.median(rows.GRAPH) or math.inf)
    found = rows.speedup(ours, best, rows.GRAPH)
    return None if found is None else (best.name, found)


def geometric_mean(ratios: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean and its 95% percentile bootstrap interval over points (Efron and Tibshirani, 1993, ch. 13)."""
    logs = [math.log(ratio) for ratio in ratios]
    order = random.Random(ORDER_SEED)
    means = sorted(statistics.fmean(order.choices(logs, k=len(logs))) for _ in range(RESAMPLES))
    low, high = means[round(0.025 * RESAMPLES)], means[round(0.975 * RESAMPLES) - 1]
    return math.exp(statistics.fmean(logs)), math.exp(low), math.exp(high)


def page(grid: Grid) -> str:
    """The heat map, the geometric mean of each half, and the worst points."""
    found = {row.key: against_best(row) for row in grid.rows}
    judged = {key: pair for key, pair in found.items() if pair is not None}
    packages = ", ".join(f"{name} {version}" for name, version in grid.packages.items())
    lines = [
        f"{grid.device.name}; torch {grid.environment.torch}, triton {grid.environment.triton}, {packages}",
        "time of the fastest baseline over that of fused, graph clock, L2 cold, interleaved; above 1 fused is faster",
        f"baselines: {', '.join(_raced(grid))}",
        "",
        tabulate(_map(grid, judged), headers=["share", "D × H, activation", *TOKENS], tablefmt="github"),
        "",
        *(line for kind in get_args(Kind) for half in SHARES if (line := _summary(grid, kind, half, judged))),
        "",
        f"the {WORST} worst points:",
        "",
        tabulate(
            _worst(grid, judged), headers=["M × D × H", "fused µs", "best baseline", "speedup"], tablefmt="github"
        ),
    ]
    return "\n".join(lines)


def told(grid: Grid) -> str:
    """The heat map as README has it, the geometric means, and the worst points of the forward."""
    judged = {row.key: pair for row in grid.rows if (pair := against_best(row)) is not None}
    halves = [_summary(grid, kind, half, judged) for kind in get_args(Kind) for half in SHARES]
    forward = {row.key for row in grid.rows if kind_of(row.workload) == "forward"}
    worst = _worst(grid, {key: pair for key, pair in judged.items() if key in forward})[:WORST_TOLD]
    return "\n".join(
        [
            tabulate(_map(grid, judged), headers=["share", "D × H, activation", *TOKENS], tablefmt="github"),
            "",
            *(f"- {line}" for line in halves if line),
            f"- worst forwards: {'; '.join(f'{key}: {ratio} of {name}' for key, _, name, ratio in worst)}",
        ]
    )


def _raced(grid: Grid) -> list[str]:
    names = {peer.name for row in grid.rows for peer in row.peers}
    return [name for name in (*BASELINES, AUTOTUNED) if name in names]


def _map(grid: Grid, judged: dict[str, tuple[str, Ratio]]) -> list[list[str]]:
    forward = [row for row in grid.rows if kind_of(row.workload) == "forward"]
    keys = {(row.workload.spec, row.workload.tokens): row.key for row in forward}
    table = []
    for each in grid.shares:
        spec = each.spec
        cells = []
        for tokens in TOKENS:
            pair = judged.get(keys.get((spec, tokens), ""))
            cells.append("–" if pair is None else _marked(pair[1]))
        what = f"{spec.hidden_size} × {spec.intermediate_size} {spec.activation}"
        table.append([each.name + (" (held out)" if each.half == "held-out" else ""), what, *cells])
    return table


def _marked(ratio: Ratio) -> str:
    """Two decimals, bold where `fused` loses by more than noise."""
    text = f"{ratio.median:.2f}"
    return f"**{text}**" if ratio.median < LOST and ratio.high < 1 else text


def _summary(grid: Grid, kind: Kind, half: Half, judged: dict[str, tuple[str, Ratio]]) -> str | None:
    """What came of the points of a kind and half; None where none of the grid's further kinds was measured."""
    of_half = {_shape(each.spec) for each in grid.shares if each.half == half}
    points = [row for row in grid.rows if _shape(row.workload.spec) in of_half and kind_of(row.workload) == kind]
    points = [row for row in points if row.key in judged]
    if not points:
        return f"{kind}, {half}: nothing measured" if kind == "forward" else None
    ratios = [judged[row.key][1].median for row in points]
    mean, low, high = geometric_mean(ratios)
    lost = sum(ratio < LOST for ratio in ratios)
    to_eager = sum(_slower_than_eager(row) for row in points)
    planned = sum(_shape(one.workload.spec) in of_half and kind_of(one.workload) == kind for one, _ in plan())
    return (
        f"{kind}, {half}: geometric mean {mean:.3f} [{low:.3f}–{high:.3f}] over {len(points)} of {planned} points; "
        f"{lost} below {LOST} of the best baseline, {to_eager} slower than eager by an interval that excludes 1"
    )


def _shape(spec: MLPSpec) -> MLPSpec:
    """The share of a model that a point is of, whatever its dtype."""
    return msgspec.structs.replace(spec, dtype="bfloat16")


def _slower_than_eager(row: rows.Row) -> bool:
    timed = {peer.name: peer for peer in row.peers}
    if "eager" not in timed or "fused" not in timed:
        return False
    found = rows.speedup(timed["fused"], timed["eager"], rows.GRAPH)
    return found is not None and found.high < 1


def _worst(grid: Grid, judged: dict[str, tuple[str, Ratio]]) -> list[list[str]]:
    by_key = {row.key: row for row in grid.rows}
    table = []
    for key in sorted(judged, key=lambda one: judged[one][1].median)[:WORST]:
        name, ratio = judged[key]
        time = next(peer.median(rows.GRAPH) for peer in by_key[key].peers if peer.name == "fused")
        interval = f"{ratio.median:.3f} [{ratio.low:.3f}–{ratio.high:.3f}]"
        table.append([key.replace("x", " × "), "–" if time is None else f"{time:.1f}", name, interval])
    return table


def _cell(row: rows.Row) -> str:
    pair = against_best(row)
    return "no speedup" if pair is None else f"speedup over {pair[0]} {pair[1].median:.3f}x"


# ---- the file --------------------------------------------------------------------------------------------------------


def read(path: Path) -> Grid:
    """A recorded grid.

    Raises:
        UsageError: the file holds something else.
    """
    try:
        return msgspec.json.decode(files.read_whole("result file", path, MOST_BYTES), type=Grid)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{str(path)!r} is no result of this script: {error}") from None


def begun(out: Path, fresh: Grid) -> Grid:
    """What `out` holds of the same card and software; a fresh grid if there is no file.

    Raises:
        UsageError: the file holds something else, which would be lost or mixed.
    """
    files.check_file("result file", out)
    if not out.exists() or not out.stat().st_size:
        return fresh
    held = read(out)
    _refuse_others(out, held, fresh)
    return held


def _refuse_others(path: Path, held: Grid, here: Grid) -> None:
    for what, there, wanted in (
        ("card", held.device.name, here.device.name),
        ("torch", held.environment.torch, here.environment.torch),
        ("triton", held.environment.triton, here.environment.triton),
        ("baselines", held.packages, here.packages),
        ("digest of our kernels", held.kernels, here.kernels),
        ("shares", held.shares, here.shares),
    ):
        if there != wanted:
            raise UsageError(f"{str(path)!r} has another {what}: {there} there, {wanted} here; name another --out")


def joined(parts: Sequence[Path]) -> Grid:
    """What the parts hold, in the order of the plan; of a point that several hold, the first's.

    Raises:
        UsageError: one holds something else, or is of another card or software than the first.
    """
    first, *others = [read(path) for path in parts]
    found = {row.key: row for row in first.rows}
    for path, other in zip(parts[1:], others, strict=True):
        _refuse_others(path, other, first)
        found = {row.key: row for row in other.rows} | found
    order = [planned.key for planned, _ in plan()]
    kept = tuple(found[key] for key in order if key in found)
    return msgspec.structs.replace(first, rows=kept)


def main() -> None:
    """Measure what is missing, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget-s", type=float, default=520.0, help="seconds in which to finish")
    parser.add_argument("--rounds", type=int, default=30, help="samples of each clock")
    parser.add_argument(
        "--out", type=Path, help="the result file; default: results/<card>-grid.json beside this script"
    )
    parser.add_argument(
        "--baselines", nargs="+", choices=BASELINES, default=(), help="race these alone; name another --out for them"
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], help="a CPU only tries the script out, with small sizes")
    parser.add_argument("--shard", type=share, default=slice(None), metavar="I/N", help="the part I of N of the points")
    parser.add_argument("--join", type=Path, nargs="+", metavar="PART", help="measure nothing: put these into --out")
    parser.add_argument("--show", type=Path, metavar="FILE", help="measure nothing: print this result file")
    options = parser.parse_args()
    if options.join and options.out is None:
        parser.error("--join needs --out")
    if options.shard != slice(None) and options.out is None:
        parser.error("--shard needs --out: two parts would write one file")
    try:
        if options.show is not None:
            print(page(read(options.show)))
            return
        if options.join:
            grid = joined(options.join)
            files.write_whole("result file", options.out, fused.encode(grid).encode())
            print(page(grid))
            return
        here = device.detect(options.device)
        out = options.out or fused.RESULTS / f"{fused.card(here.name) if here.kind == 'cuda' else 'cpu'}-grid.json"
        fresh = Grid(
            device=here,
            environment=machine.collect(here, provenance.behind(rows.OURS)),
            packages=fused.packages(),
            kernels=sources.DIGEST,
            shares=shares(),
            rows=(),
        )
        grid = begun(out, fresh)
    except UsageError as error:
        sys.exit(str(error))
    torch._dynamo.config.automatic_dynamic_shapes = False  # each point is compiled for its own number of tokens
    done = measure(
        grid, out, budget_s=options.budget_s, rounds=options.rounds, baselines=options.baselines, part=options.shard
    )
    print(page(done))


if __name__ == "__main__":
    main()
