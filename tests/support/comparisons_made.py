"""Makes profiles of several processes whose true differences are known, for tests of what a comparison finds."""

from __future__ import annotations

import random
import statistics
from typing import TYPE_CHECKING, Any

import msgspec

from mlpfusion.records.clocks import Clock, Clocks
from mlpfusion.records.environment import Process
from mlpfusion.stages.compare import run
from mlpfusion.storage import results
from support.profiles_made import EAGER, profile

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.records.comparison import ClockChange, Comparison, RowChange
    from mlpfusion.records.profile import Profile, Row

EAGER_US = 240.0


def clock(rounds: list[tuple[float | None, ...]], **changes: Any) -> Clock:
    kept = sorted(time for process in rounds for time in process if time is not None)
    dropped = sum(process.count(None) for process in rounds)
    fifths = (kept[len(kept) // 5], kept[4 * len(kept) // 5]) if len(kept) >= 20 else (None, None)
    fields = {"n": len(kept), "median": statistics.median(kept), "p20": fifths[0], "p80": fifths[1], "l2": "cold"}
    return Clock(**{**fields, "dropped": dropped, "rounds": tuple(rounds), **changes})


def raced(
    factors: dict[str, float],
    *,
    processes: int = 5,
    spread: float = 0.001,
    rounds: int = 60,
    clocks: tuple[str, ...] = ("graph_us",),
    load: float | None = 0.0,
    machine: float = 1.0,
    seed: int = 0,
    rows: dict[str, dict[str, Any]] | None = None,
    **changes: Any,
) -> Profile:
    """A profile of eager and of rows that take these factors of its time, in processes of this spread.

    What the machine does in a round it does to all rows; `rows` are changes of single rows.
    """
    rng = random.Random(seed)
    times: dict[str, list[tuple[float, ...]]] = {name: [] for name in ("eager", *factors)}
    for _ in range(processes):
        state = [machine * EAGER_US * (1 + 0.05 * rng.random()) for _ in range(rounds)]
        for name, each in times.items():
            factor = factors.get(name, 1.0) * (1 + (0 if name == "eager" else rng.gauss(0, spread)))
            each.append(tuple(factor * time * (1 + rng.gauss(0, 0.001)) for time in state))
    made = []
    for name, each in times.items():
        found = Clocks(**{name: clock(each) for name in clocks}, neighbours=load)
        row = msgspec.structs.replace(EAGER, backend=name, clocks=found)
        made.append(msgspec.structs.replace(row, **(rows or {}).get(name, {})))
    started = "2026-01-02T03:04:05+00:00"
    ran = tuple(Process(started=started, neighbours=load) for _ in range(processes))
    return profile(*made, schema=2, processes=ran, **changes)


def saved(folder: Path, name: str, found: Profile) -> str:
    """The path of a result file with this profile."""
    path = folder / name
    results.save(found, path)
    return str(path)


def compared(folder: Path, a: Profile, b: Profile, **options: Any) -> Comparison:
    """The comparison of two profiles by their files."""
    return run.compare(saved(folder, "a.json", a), saved(folder, "b.json", b), **options)


def row(found: Comparison, name: str = "triton") -> RowChange:
    """The row of a comparison with this name."""
    return next(each for each in found.rows if each.baseline == name)


def time(found: Comparison, name: str = "triton", clock: str = "graph_us") -> ClockChange:
    """A clock of the row with this name."""
    return next(each for each in row(found, name).times if each.clock == clock)


def with_spec(found: Profile, **changes: Any) -> Profile:
    """A profile of another MLP."""
    spec = msgspec.structs.replace(found.workload.spec, **changes)
    return msgspec.structs.replace(found, workload=msgspec.structs.replace(found.workload, spec=spec))


def with_environment(found: Profile, **changes: Any) -> Profile:
    """A profile of another environment."""
    return msgspec.structs.replace(found, environment=msgspec.structs.replace(found.environment, **changes))


def row_of(found: Profile, name: str) -> Row:
    """The row of a backend."""
    return next(row for row in found.rows if row.backend == name)
