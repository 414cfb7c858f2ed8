"""Simulates `mlpfusion compare`: false alarms, slowdowns found, and whether the promised number of processes decides.

python bench/compare.py --out bench/results/compare-simulation.json    (minutes on one core; needs no GPU)

It prints the tables of docs/comparing.md. In a simulated process every row has an offset of its own, drawn with the
spread between processes; the rounds are autocorrelated, and the machine drifts, throttles or stalls. The recorded races
of the choices are split in halves besides, which differ in nothing: a difference between them is a false alarm.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from asked import result_file

from mlpfusion.stages.compare import difference
from mlpfusion.stages.compare.difference import LEVEL, Difference
from mlpfusion.stages.compare.power import processes_needed
from mlpfusion.stages.compare.verdict import THRESHOLD, holm, word
from mlpfusion.storage import results

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Rng = np.random.Generator

ROUNDS: Final = 60
AUTOCORRELATION: Final = 0.7  # of consecutive rounds: the 90th percentile of graph_us in the recorded races
NOISE: Final = 0.0035  # standard deviation of a round, with which a median has the noise of graph_us: 0.2%
OFFSETS: Final = (0.0, 0.005, 0.01, 0.02, 0.03)
SPREADS: Final = (0.004, 0.007)
SIDES: Final = (1, 3, 5)
ROWS: Final = (2, 10)  # of comparisons, which are corrected for their number, and for that of the clocks of each
CLOCKS: Final = (1, 2)
RECORDED: Final = Path(__file__).parent / "results"


class World(NamedTuple):
    """What disturbs the rounds of a process; shares of the time."""

    drift: float = 0.0  # from the first round to the last, of all rows alike, and a tenth of it of one row alone
    tails: bool = False  # rounds of Student's t with two degrees of freedom in place of normal ones
    throttled: float = 0.0  # how much longer all rows take in the slow one of two states of the clocks
    modes: float = 0.0  # distance of two states of one row alone


WORLDS: Final = {
    "autocorrelated": World(),
    "drift of 5%": World(drift=0.05),
    "heavy tails": World(tails=True),
    "bimodal clocks": World(throttled=0.12, modes=0.01),
    "all of them": World(drift=0.05, tails=True, throttled=0.12, modes=0.01),
}


# ---- processes -------------------------------------------------------------------------------------------------------


def times(rng: Rng, world: World, logs: NDArray[Any]) -> NDArray[Any]:
    """Times of a control and of rows in processes, [n, 1 + rows, ROUNDS]; `logs` [n, rows] are the ratios to it."""
    n, rows = logs.shape
    place = np.linspace(-0.5, 0.5, ROUNDS)
    common = rng.choice((-1, 1), (n, 1, 1)) * world.drift * place + world.throttled * _states(rng, n, 1)
    own = NOISE * _correlated(rng, (n, rows + 1), tails=world.tails) + world.modes * _states(rng, n, rows + 1)
    own += 0.1 * world.drift * rng.standard_normal((n, rows + 1, 1)) * place
    ratios = np.concatenate([np.zeros((n, 1)), logs], axis=1)
    return np.asarray(200.0 * np.exp(ratios[:, :, None] + common + own))


def _correlated(rng: Rng, shape: tuple[int, int], *, tails: bool) -> NDArray[Any]:
    """Rounds that remember the one before, with unit variance where the tails are not heavy."""
    steps = rng.standard_t(2, (*shape, ROUNDS)) if tails else rng.standard_normal((*shape, ROUNDS))
    for at in range(1, ROUNDS):
        steps[:, :, at] = AUTOCORRELATION * steps[:, :, at - 1] + math.sqrt(1 - AUTOCORRELATION**2) * steps[:, :, at]
    return steps


def _states(rng: Rng, n: int, rows: int) -> NDArray[Any]:
    """Rounds in one of two states, 0 and 1, that change every twenty rounds or so."""
    changes = np.cumsum(rng.random((n, rows, ROUNDS)) < 0.05, axis=2)
    return (rng.integers(0, 2, (n, rows, 1)) + changes) % 2.0


def own_offset(rng: Rng, world: World, spread: float) -> float:
    """The standard deviation of a process's own offset that, with the noise of its median, makes `spread`."""
    made = times(rng, world, np.zeros((4000, 1)))
    noise = np.median(np.log(made[:, 1] / made[:, 0]), axis=1).std()
    return math.sqrt(max(spread**2 - float(noise) ** 2, 0.0))


def compared(rng: Rng, world: World, n: int, offset: float, logs: Sequence[float]) -> list[Difference]:
    """`n` processes against `n` others in which the rows take exp(`logs`) as long, each with an offset of its own."""
    shift = np.array([[0.0] * len(logs)] * n + [list(logs)] * n)
    made = times(rng, world, shift + offset * rng.standard_normal(shift.shape)).tolist()
    found = []
    for row in range(1, len(logs) + 1):
        each = difference.processes([process[row] for process in made], [process[0] for process in made])
        found.append(difference.between(each[:n], each[n:]))
    return found


# ---- what is counted -------------------------------------------------------------------------------------------------


def verdicts(rng: Rng, trials: int) -> Iterator[dict[str, Any]]:
    """How often one row gets each word, by the disturbance, the spread, the processes a side and the true offset."""
    for name, world in WORLDS.items():
        for spread in SPREADS:
            own = own_offset(rng, world, spread)
            for n in SIDES:
                for offset in OFFSETS:
                    said = [word(d, d.p) for _ in range(trials) for d in compared(rng, world, n, own, [offset])]
                    shares = {each: said.count(each) / trials for each in ("slower", "faster", "same")}
                    yield {"world": name, "spread": spread, "processes": n, "offset": offset, **shares}


def of_many_rows(rng: Rng, trials: int, spread: float, rows: int, clocks: int) -> dict[str, Any]:
    """Comparisons of `rows` rows by `clocks`, of which none or one changed: how many had a false alarm, found the 3%.

    What a clock says of a row has nothing to do with what another says, which makes most false alarms.
    """
    world = WORLDS["all of them"]
    own = own_offset(rng, world, spread)
    alarms = found = 0
    for _ in range(trials):
        for changed in (0, clocks):  # of the first row all that it was timed by
            logs = [0.03] * changed + [0.0] * (rows * clocks - changed)
            each = compared(rng, world, 5, own, logs)
            said = [word(d, p) for d, p in zip(each, holm([d.p for d in each]), strict=True)]
            alarms += any(w in ("slower", "faster") for w in said[changed:])
            found += changed > 0 and "slower" in said[:changed]
    shares = {"alarms": alarms / 2 / trials, "found": found / trials}
    return {"spread": spread, "rows": rows, "clocks": clocks, "comparisons": 2 * trials, **shares}


def promises(rng: Rng, pilots: int, repeats: int) -> Iterator[dict[str, Any]]:
    """Of what was inconclusive: how often the promised number decides if the difference is what was estimated."""
    world = WORLDS["all of them"]
    for n in (1, 5):
        for spread in SPREADS:
            own = own_offset(rng, world, spread)
            for offset in OFFSETS:
                said = [each for _ in range(pilots) for each in compared(rng, world, n, own, [offset])]
                open_ = [each for each in said if word(each, each.p) == "inconclusive"]
                needed = [(each.log, number) for each in open_ if (number := processes_needed(each)) is not None]
                kept = [
                    word(again, again.p) != "inconclusive"
                    for log, number in needed
                    for _ in range(repeats)
                    for again in compared(rng, world, number, own, [log])
                ]
                yield {
                    "processes": n,
                    "spread": spread,
                    "offset": offset,
                    "inconclusive": len(open_),
                    "promised": len(needed),
                    "median": int(np.median([number for _, number in needed])) if needed else None,
                    "kept": sum(kept) / len(kept) if kept else None,
                }


def halves() -> Iterator[dict[str, Any]]:
    """The first half of every recorded race of the choices against its second, by clock."""
    for clock in ("graph_us", "kernel_us", "event_us", "wall_us"):
        rows = alarms = 0
        largest = 0.0
        for path in sorted(RECORDED.glob("h200-choose-*/inference-*.json")):
            found = list(_of_one_race(path, clock))
            said = [word(each, p) for each, p in zip(found, holm([each.p for each in found]), strict=True)]
            rows += len(found)
            alarms += sum(each in ("slower", "faster") for each in said)
            largest = max([largest, *(abs(math.expm1(each.log)) for each in found)])
        yield {"clock": clock, "rows": rows, "alarms": alarms, "largest": largest}


def _of_one_race(path: Path, clock: str) -> Iterator[Difference]:
    """The halves of every row of a recorded race that was timed in every round."""
    rows = {row.backend: row for row in results.load(path).rows if row.clocks is not None}
    control = getattr(rows["eager"].clocks, clock)
    for name, row in rows.items():
        samples = getattr(row.clocks, clock)
        if name != "eager" and samples is not None and samples.n == control.n and not samples.dropped:
            yield _halved(samples.samples, control.samples, clock, None if row.bound is None else row.bound.by)


def _halved(rounds: Sequence[float], control: Sequence[float], clock: str, bound: str | None) -> Difference:
    half = len(rounds) // 2
    pair = difference.apart if clock == "kernel_us" else difference.processes
    parts = [[*rounds[:half], *[None] * half], [*[None] * half, *rounds[half:]]]
    a, b = (pair([part], [control], least=10) for part in parts)  # a trace has twenty calls
    return difference.between(a, b, difference.PRIORS.get(clock, difference.PRIOR))


# ---- tables ----------------------------------------------------------------------------------------------------------


def tables(document: dict[str, Any]) -> str:
    """What docs/comparing.md shows of a run, as Markdown."""
    return "\n\n".join(_table(*each) for each in _contents(document))


def _contents(document: dict[str, Any]) -> Iterator[tuple[list[str], list[list[str]]]]:
    shown = [f"{offset:.1%} slower" if offset else "no change" for offset in OFFSETS]
    heads = ["disturbance", "spread of processes", "processes a side", *(f"verdicts, {each}" for each in shown)]
    cells: dict[tuple[str, ...], list[str]] = {}
    for each in document["verdicts"]:
        key = (each["world"], f"{each['spread']:.1%}", str(each["processes"]))
        cells.setdefault(key, []).append(_share(each["slower"] + each["faster"]))
    yield heads, [[*key, *values] for key, values in cells.items()]
    heads = ["spread of processes", "rows", "clocks", "comparisons with a false alarm", "3% in one row found"]
    yield (
        heads,
        [
            [
                f"{each['spread']:.1%}",
                *map(str, (each["rows"], each["clocks"])),
                _share(each["alarms"]),
                _share(each["found"]),
            ]
            for each in document["many_rows"]
        ],
    )
    heads = ["processes a side", "spread of processes", "true change", "inconclusive", "promised", "median", "decided"]
    yield (
        heads,
        [
            [
                str(each["processes"]),
                f"{each['spread']:.1%}",
                f"{each['offset']:.1%}",
                str(each["inconclusive"]),
                str(each["promised"]),
                "–" if each["median"] is None else str(each["median"]),
                "–" if each["kept"] is None else _share(each["kept"]),
            ]
            for each in document["promises"]
        ],
    )
    heads = ["clock", "rows", "false alarms", "largest difference of the halves"]
    yield (
        heads,
        [
            [f"`{each['clock']}`", str(each["rows"]), str(each["alarms"]), f"{each['largest']:.1%}"]
            for each in document["halves"]
        ],
    )


def _share(share: float) -> str:
    return f"{100 * share:.1f}%"


def _table(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(line)} |" for line in (heads, ["---"] * len(heads), *rows))


def main() -> int:
    """Simulate, write the file and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=result_file, required=True)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    document = {
        "schema": 1,
        "kind": "comparison-simulation",
        "seed": asked.seed,
        "trials": asked.trials,
        "rounds": ROUNDS,
        "autocorrelation": AUTOCORRELATION,
        "noise": NOISE,
        "threshold": THRESHOLD,
        "level": LEVEL,
        "worlds": {name: world._asdict() for name, world in WORLDS.items()},
        "verdicts": list(verdicts(rng, asked.trials)),
        "many_rows": [
            of_many_rows(rng, asked.trials // 2, spread, rows, clocks)
            for spread, rows, clocks in itertools.product(SPREADS, ROWS, CLOCKS)
        ],
        "promises": list(promises(rng, asked.trials // 5, 10)),
        "halves": list(halves()),
    }
    asked.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(tables(document))
    return 0


if __name__ == "__main__":
    sys.exit(main())
