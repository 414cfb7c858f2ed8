"""Times every tile of the gate/up kernels, and fits the costs by which a shape gets its tile.

python bench/tiles.py                 (measures, and prints the fit)
python bench/tiles.py --show FILE...  (fits recorded files again, together)
"""

from __future__ import annotations

import argparse
import datetime
import gc
import itertools
import math
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import fused
import grid
import msgspec
import torch
from mlpfusion_kernels import Weights, act_mul
from mlpfusion_kernels.gate_up import configs, launch
from mlpfusion_kernels.gate_up.choice import Work, time_us, work
from mlpfusion_kernels.gate_up.configs import TRAINING, Cost, Shared
from mlpfusion_kernels.gate_up.decode import choose_decode, gate_up_decode
from torch.nn import functional as F

from mlpfusion import device
from mlpfusion.device import Device
from mlpfusion.environment import machine
from mlpfusion.errors import UsageError
from mlpfusion.measure.clocks import capture, race_replays
from mlpfusion.records.base import Record
from mlpfusion.records.environment import Environment
from mlpfusion.storage import files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mlpfusion_kernels.gate_up.configs import Config

Use = Literal["forward", "training", "backward"]
USES: Final[tuple[Use, ...]] = ("forward", "training", "backward")
TOKENS: Final = (24, 48, 80, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 8192)
ACTIVATION: Final = "silu"  # a tile's epilogue is a small part of it, and one activation is compiled faster than five
RIVALS: Final = 1.3
SEED: Final = 0
MOST_BYTES: Final = 2**24
STREAMED: Final = "streamed"
BASELINES: Final = ("products alone", "packed and act_mul", "two products and act_mul")


class Tiles(Record, frozen=True, kw_only=True):
    """A result file of this script: the graph clock's medians in µs, by what ran; only the gate/up product."""

    class Point(Record, frozen=True, kw_only=True):
        """One shape: x [tokens, hidden_size], weights [intermediate_size, hidden_size]."""

        use: Use
        half: grid.Half
        tokens: int
        hidden_size: int
        intermediate_size: int
        times_us: dict[str, float]

    schema: int = 1
    kind: Literal["tiles"] = "tiles"
    device: Device
    environment: Environment
    created: str
    rows: tuple[Point, ...]


def named(config: Config) -> str:
    """`hopper 128x64x64 p4 w4 s6 r1`, and ` by 8` for a split: a configuration as a key of the file."""
    tile = f"{config.block_m}x{config.block_n}x{config.block_k}"
    split = f" by {config.split}" if config.split > 1 else ""
    return f"{config.form} {tile} p{config.parts} w{config.warps} s{config.stages} r{config.resident}{split}"


def fitted(use: Use) -> dict[Config, Cost]:
    """The tiles that have a cost, with it."""
    rules: tuple[configs.Rule, ...] = getattr(configs.SM90, use)
    return {config: cost for rule in rules for config, cost in zip(rule.configs, rule.costs, strict=False)}


# ---- measuring -------------------------------------------------------------------------------------------------------


def measure(
    here: Device, *, rounds: int, budget_s: float, tokens: Sequence[int], form: str | None
) -> Iterable[Tiles.Point]:
    """The points of the tuning half, then every other of the held-out half, while the time lasts."""
    gc.freeze()  # each capture collects garbage: what the libraries hold is none
    for share, use in itertools.product(sorted(grid.shares(), key=lambda one: one.half, reverse=True), USES):
        d, h = share.spec.hidden_size, share.spec.intermediate_size
        torch.manual_seed(SEED)
        both = torch.randn(2 * h, d, device="cuda", dtype=torch.bfloat16) / d**0.5
        weights = Weights(both[:h], both[h:], both[:h])  # nothing here looks at the down weight
        for m in tokens if share.half == "tuning" else tokens[1::2]:
            if fused.elapsed_s() > budget_s:
                return
            x = torch.randn(m, d, device="cuda", dtype=torch.bfloat16)
            times = _times_us(here, use, x, both, weights, rounds, form)
            fused.tell(f"{share.half} {use} {m} x {d} x {h}: {min(times.values()):.1f} us")
            yield Tiles.Point(use=use, half=share.half, tokens=m, hidden_size=d, intermediate_size=h, times_us=times)


def _times_us(
    here: Device, use: Use, x: torch.Tensor, both: torch.Tensor, weights: Weights, rounds: int, form: str | None
) -> dict[str, float]:
    (tokens, d), h = x.shape, weights.gate.shape[0]
    tiles = [config for config in fitted(use) if config.sums_in(d) and form in {None, config.form}]
    by = _backward if use == "backward" else _forward
    calls: dict[str, Callable[[], object]] = {named(config): by(config, x, weights, use) for config in tiles}
    if use == "forward" and form is None:
        calls |= {
            BASELINES[0]: lambda: F.linear(x, both),
            BASELINES[1]: lambda: _activated(F.linear(x, both)),
            BASELINES[2]: lambda: act_mul(F.linear(x, weights.gate), F.linear(x, weights.up), ACTIVATION),
        }
        if tokens <= 64:
            shared = launch.card(here.index or 0).shared_bytes
            stream = choose_decode(tokens, d, h, here.multiprocessors or 1, 2, shared_bytes=shared)
            calls[STREAMED] = lambda: gate_up_decode(x, weights.gate, weights.up, None, None, ACTIVATION, stream)
    pool = torch.cuda.graph_pool_handle()
    contenders = [capture(name, call, pool) for name, call in calls.items()]
    raced = race_replays(contenders, here, rounds=rounds, seed=SEED)
    return {one.backend: round(statistics.median(filter(None, one.values)), 3) for one in raced}


def _activated(both: torch.Tensor) -> torch.Tensor:
    gate, up = both.chunk(2, -1)
    return act_mul(gate, up, ACTIVATION)


def _forward(config: Config, x: torch.Tensor, weights: Weights, use: Use) -> Callable[[], object]:
    return lambda: launch.gate_up_forward(x, weights, ACTIVATION, use == "training", config)


def _backward(config: Config, x: torch.Tensor, weights: Weights, use: Use) -> Callable[[], object]:
    """Of x as dy and one weight's memory as the down weight's [hidden_size, intermediate_size]."""
    down = weights.gate.view(x.shape[1], -1)
    gate, up = torch.randn(2, x.shape[0], down.shape[1], device=x.device, dtype=x.dtype)
    return lambda: launch.gate_up_backward(x, down, gate, up, ACTIVATION, config)


# ---- fitting ---------------------------------------------------------------------------------------------------------


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """The costs of the tiles by name, and the constants that they share."""

    costs: dict[str, Cost]
    shared: Shared


def fit(points: Sequence[Tiles.Point], tiles: dict[str, Config], multiprocessors: int) -> Fit:
    """Least squares over the logarithms of estimate / time, each beyond 5% by its amount (Huber, 1964).

    A time beyond RIVALS of the best one counts a tenth: of a tile that is not chosen anyway, less has to be known.
    """
    found = [(point, name) for point in points for name in tiles if name in point.times_us]
    best = [min(point.times_us[name] for name in tiles if name in point.times_us) for point, _ in found]
    rivals = [point.times_us[name] <= RIVALS * least for (point, name), least in zip(found, best, strict=True)]
    weights = torch.tensor([1.0 if rival else 0.1 for rival in rivals], dtype=torch.float64)
    log_times = torch.tensor([math.log(point.times_us[name]) for point, name in found], dtype=torch.float64)
    works = torch.tensor([_work(tiles[name], point, multiprocessors) for point, name in found], dtype=torch.float64)
    # A tile that shares the last ones has the costs of the one that does not.
    place = {config: index for index, config in enumerate(dict.fromkeys(map(_unsplit, tiles.values())))}
    places = [place[_unsplit(config)] for config in tiles.values()]
    which = torch.tensor([place[_unsplit(tiles[name])] for _, name in found])
    start = [1.4] * len(place) + [math.log(5.0)] * len(place) + [math.log(value) for value in TRAINING]
    at = torch.tensor(start, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([at], max_iter=300, line_search_fn="strong_wolfe")

    def read_off() -> tuple[Any, Any, Shared]:
        efficiency, start_us, shared = at[: len(place)], at[len(place) : 2 * len(place)], at[2 * len(place) :]
        return efficiency.sigmoid(), start_us.exp(), Shared(*shared.exp())

    def estimates() -> Any:
        efficiency, start_us, shared = read_off()
        return time_us(Work(*works.T), Cost(efficiency[which], start_us[which]), shared)

    def closure() -> Any:
        optimiser.zero_grad()
        losses = F.huber_loss(estimates().log(), log_times, delta=0.05, reduction="none")
        loss = (weights * losses).sum() / weights.sum()
        loss.backward()  # type: ignore[no-untyped-call]  # torch's stubs
        return loss

    optimiser.step(closure)  # type: ignore[no-untyped-call]  # torch's stubs
    with torch.no_grad():
        efficiency, start_us, shared = read_off()
    costs = [Cost(round(float(part), 3), round(float(us), 2)) for part, us in zip(efficiency, start_us, strict=True)]
    return Fit(
        costs={name: costs[index] for name, index in zip(tiles, places, strict=True)},
        shared=Shared(*(float(f"{float(value):.3g}") for value in shared)),
    )


def _unsplit(config: Config) -> Config:
    return config._replace(split=1)


def _work(config: Config, point: Tiles.Point, multiprocessors: int) -> Work:
    shape = (point.tokens, point.hidden_size, point.intermediate_size)
    return work(config, *shape, multiprocessors, products=1 if point.use == "backward" else 2)


def _estimated(found: Fit, name: str, tiles: dict[str, Config], point: Tiles.Point, multiprocessors: int) -> float:
    return time_us(_work(tiles[name], point, multiprocessors), found.costs[name], found.shared)


def chosen(found: Fit, tiles: dict[str, Config], point: Tiles.Point, multiprocessors: int) -> str:
    """The tile that the fit picks for a point, of those that ran."""
    ran = [name for name in tiles if name in point.times_us]
    return min(ran, key=lambda name: _estimated(found, name, tiles, point, multiprocessors))


def regret(point: Tiles.Point, name: str, tiles: dict[str, Config]) -> float:
    """A tile's time over the best tile's."""
    return point.times_us[name] / min(time for one, time in point.times_us.items() if one in tiles)


def page(result: Tiles) -> str:
    """The fit of each use to the tuning half, its error, and what it costs in both halves."""
    lines = [f"{result.device.name}; torch {result.environment.torch}, triton {result.environment.triton}"]
    sms = result.device.multiprocessors or 1
    for use in USES:
        points = {half: [one for one in result.rows if (one.use, one.half) == (use, half)] for half in grid.SHARES}
        if not points["tuning"]:
            continue
        tiles = {named(config): config for config in fitted(use)}
        found = fit(points["tuning"], tiles, sms)
        lines += [
            "",
            f"{use}: share of the peak and first us of {len(tiles)} tiles",
            *(f"  {name}: {cost.efficiency} {cost.start_us}" for name, cost in found.costs.items()),
            f"  {found.shared}",
            *(f"  {half}: {_quality(found, tiles, those, sms)}" for half, those in points.items() if those),
        ]
    return "\n".join(lines)


def _quality(found: Fit, tiles: dict[str, Config], points: Sequence[Tiles.Point], sms: int) -> str:
    errors = sorted(
        abs(math.log(_estimated(found, name, tiles, point, sms) / point.times_us[name]))
        for point in points
        for name in tiles
        if name in point.times_us
    )
    ratios = [regret(point, chosen(found, tiles, point, sms), tiles) for point in points]
    alone = {name: config for name, config in tiles.items() if config.split == 1}
    gains = [
        point.times_us[chosen(found, tiles, point, sms)] / point.times_us[chosen(found, alone, point, sms)]
        for point in points
    ]
    mean, gained = (math.exp(statistics.fmean(map(math.log, those))) for those in (ratios, gains))
    return (
        f"{len(points)} points; error of an estimate {_part(errors, 0.5):.1%} in the median, 90% below "
        f"{_part(errors, 0.9):.1%}; chosen over best tile {mean:.4f}, worst {max(ratios):.3f}; "
        f"over the choice where no tile is shared {gained:.4f} ({min(gains):.3f} to {max(gains):.3f})"
    )


def _part(ascending: Sequence[float], share: float) -> float:
    return ascending[min(int(len(ascending) * share), len(ascending) - 1)]


# ---- the file --------------------------------------------------------------------------------------------------------


def read(path: Path) -> Tiles:
    """A recorded file.

    Raises:
        UsageError: the file holds something else.
    """
    try:
        return msgspec.json.decode(files.read_whole("result file", path, MOST_BYTES), type=Tiles)
    except msgspec.MsgspecError as error:
        raise UsageError(f"{str(path)!r} is no result of this script: {error}") from None


def joined(results: Sequence[Tiles]) -> Tiles:
    """The first result with the points of all.

    Raises:
        UsageError: they are of different cards.
    """
    cards = sorted({one.device.name for one in results})
    if len(cards) > 1:
        raise UsageError(f"one fit is of one card, and these files are of {' and '.join(cards)}")
    return msgspec.structs.replace(results[0], rows=tuple(row for one in results for row in one.rows))


def main() -> None:
    """Measure, print the fit, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget-s", type=float, default=300.0, help="seconds in which to finish measuring")
    parser.add_argument("--rounds", type=int, default=11, help="samples of each tile")
    parser.add_argument("--tokens", type=int, nargs="+", default=TOKENS, help="the token counts (default: 24 to 8192)")
    parser.add_argument("--form", choices=["wide", "hopper"], help="the tiles of this form alone, and no baselines")
    parser.add_argument(
        "--out", type=Path, help="the result file; default: results/<card>-tiles.json beside this script"
    )
    parser.add_argument(
        "--show", type=Path, nargs="+", metavar="FILE", help="measure nothing: fit these result files of one card"
    )
    options = parser.parse_args()
    try:
        if options.show is not None:
            print(page(joined([read(path) for path in options.show])))
            return
        here = device.detect()
        if here.kind != "cuda" or here.capability is None or here.capability[0] != 9:
            raise UsageError(f"the fitted tiles are for compute capability 9.0; this is {here.name}")
        out = options.out or fused.RESULTS / f"{fused.card(here.name)}-tiles.json"
        files.check_file("result file", out)
        result = Tiles(
            device=here,
            environment=machine.collect(here, {}),
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            rows=tuple(
                measure(
                    here,
                    rounds=options.rounds,
                    budget_s=options.budget_s,
                    tokens=options.tokens,
                    form=options.form,
                )
            ),
        )
    except UsageError as error:
        sys.exit(str(error))
    files.write_whole("result file", out, msgspec.json.format(msgspec.json.encode(result), indent=1))
    print(page(result))


if __name__ == "__main__":
    main()
