"""Checks `mlpfusion compare` on one machine: no verdict between equal processes, and a planted slowdown found.

python bench/planted.py FOLDER [--processes 12] [--share 0.03] [--backends eager triton fused] [--json FILE]
                         [--options "--hidden-size 2048 …"]

FOLDER gets two profiles of one workload: the backends, and the same with a kernel behind each call that spins for a
share of its time. Files that are there are judged and not measured again. Five processes of one file are then compared
with five others of it, and with five of the other file, ten times each: one must say nothing, the other "slower".
"""

from __future__ import annotations

import argparse
import math
import random
import shlex
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import torch
from asked import result_file

from mlpfusion.device import Device
from mlpfusion.records.base import Record
from mlpfusion.records.environment import Environment
from mlpfusion.records.profile import Profile
from mlpfusion.spec import Workload
from mlpfusion.stages.compare import difference, groups, times
from mlpfusion.stages.compare.verdict import holm, word
from mlpfusion.storage import files, results

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mlpfusion.stages.compare.difference import Process

    Sides = Mapping[str, Sequence[Process]]

CONTROL: Final = "packed"  # eager is judged itself
PLAIN: Final = "plain.json"
PLANTED: Final = "planted.json"
MODULE: Final = "slow.py"
CLOCKS: Final = ("graph_us", "kernel_us")  # those that decide
SIDE: Final = 5
SPLITS: Final = 10
SPINS: Final = 20  # of one graph, whose time is divided by their number
BACKENDS: Final = ("eager", "triton", "fused")
SLOW: Final = '''"""Backends with a spinning kernel behind each call: made by bench/planted.py."""

import time

import torch

from mlpfusion.backend import load


def spin(length):
    """`length` cycles on a GPU, nanoseconds on a CPU."""
    if torch.cuda.is_available():
        torch.cuda._sleep(length)
        return
    end = time.perf_counter_ns() + length
    while time.perf_counter_ns() < end:
        pass


class Slow:
    def __init__(self):
        self.inner = load(self.of)
        self.name = f"slow-{self.of}"
        self.distributions = getattr(self.inner, "distributions", ())

    def unsupported(self, spec, device):
        return self.inner.unsupported(spec, device)

    def bind(self, mlp):
        forward = self.inner.bind(mlp)

        def slow(x):
            y = forward(x)
            spin(self.length)
            return y

        return slow
'''


class Planted(Record, frozen=True, kw_only=True):
    """What the splits said of one clock of a backend: verdicts between equal processes, and slowdowns found.

    `planted` is the share of the time that was planted, `seen` the ratio of the times minus 1, of all processes.
    """

    backend: str
    clock: str
    splits: int
    alarms: int
    found: int
    planted: float
    seen: float
    spread: float


class Recording(Record, frozen=True, kw_only=True):
    """A file of this script."""

    schema: int = 1
    kind: Literal["planted"] = "planted"
    created: str
    device: Device
    environment: Environment
    workload: Workload
    control: str
    processes: int
    background_load: float | None
    rows: tuple[Planted, ...]


# ---- record ----------------------------------------------------------------------------------------------------------


def record(folder: Path, names: Sequence[str], share: float, control: str, options: Sequence[str]) -> None:
    """The two profiles; the second with a spin in the time of each backend that the first gives the length of."""
    if not (folder / PLAIN).exists():
        _profile(folder, PLAIN, [control, *names], options)
    if (folder / PLANTED).exists():
        return
    per_us, before = spin_rate()
    lengths = {name: round((us - before) * per_us) for name, us in shares(_read(folder / PLAIN), names, share).items()}
    classes = [
        f"\n\nclass {_class(name)}(Slow):\n    of = {name!r}\n    length = {max(1, length)}\n"
        for name, length in lengths.items()
    ]
    files.write_whole("backends", folder / MODULE, (SLOW + "".join(classes)).encode())
    _profile(folder, PLANTED, [control, *map(_loose, names)], options)


def shares(found: Profile, names: Sequence[str], share: float) -> dict[str, float]:
    """That share of each backend's time, in µs."""
    made = {}
    for row in found.rows:
        if row.backend in names:
            clock = row.clocks and (row.clocks.graph_us or row.clocks.wall_us)
            if not clock:
                raise SystemExit(f"{row.backend} was not timed: {row.reason}")
            made[row.backend] = share * clock.median
    return made


def _loose(name: str) -> str:
    return f"./{MODULE}:{_class(name)}"


def _class(name: str) -> str:
    return "Slow" + name.title().replace("-", "")


def _profile(folder: Path, file: str, names: Sequence[str], options: Sequence[str]) -> None:
    command = ["-m", "mlpfusion", "profile", "--backends", ",".join(names), "--json", file, *options]
    done = subprocess.run([sys.executable, *command], cwd=folder, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise SystemExit(f"profile of {', '.join(names)} ended with {done.returncode}; what it measured is in {file}")


def spin_rate() -> tuple[float, float]:
    """Cycles (nanoseconds on a CPU) of one µs, and the µs that a spin of no cycles adds to a graph."""
    if not torch.cuda.is_available():
        return 1000.0, 0.0
    short, long = 2_000, 40_000
    low, high = (_spin_us(cycles) for cycles in (short, long))
    per_us = (long - short) / (high - low)
    return per_us, low - short / per_us


def _spin_us(cycles: int) -> float:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(SPINS):
            torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]
    seen: list[float] = []
    for _ in range(30):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
        events[0].record()
        graph.replay()
        events[1].record()
        torch.cuda.synchronize()
        seen.append(1000 * events[0].elapsed_time(events[1]) / SPINS)
    return statistics.median(seen)


# ---- judge -----------------------------------------------------------------------------------------------------------


def judge(folder: Path, names: Sequence[str], share: float, control: str) -> Recording:
    """The verdicts of `compare` over the splits of both files."""
    plain, slow = _read(folder / PLAIN), _read(folder / PLANTED)
    rows = [
        row
        for clock in CLOCKS
        for row in judged(
            clock,
            {name: _processes(plain, name, clock, control) for name in names},
            {name: _processes(slow, _loose(name), clock, control) for name in names},
            share,
        )
    ]
    if not rows:
        raise SystemExit(f"no backend has {2 * SIDE} processes with times of its own and of {control}")
    loads = [each.neighbours for found in (plain, slow) for each in found.processes]
    return Recording(
        created=slow.created,
        device=plain.device,
        environment=plain.environment,
        workload=plain.workload,
        control=control,
        processes=min(len(plain.processes), len(slow.processes)),
        background_load=max((each for each in loads if each is not None), default=None),
        rows=tuple(rows),
    )


def judged(clock: str, equal: Sides, planted: Sides, share: float) -> list[Planted]:
    """The splits of one clock: SIDE processes against SIDE, of all backends that have as many, as `compare` does."""
    timed = [name for name in equal if len(equal[name]) >= 2 * SIDE and len(planted[name]) >= SIDE]
    if not timed:
        return []
    alarms, found = Counter[str](), Counter[str]()
    rng = random.Random(0)
    for _ in range(SPLITS):
        first, second, other = {}, {}, {}
        places = rng.sample(range(min(len(equal[name]) for name in timed)), 2 * SIDE)
        others = rng.sample(range(min(len(planted[name]) for name in timed)), SIDE)
        for name in timed:
            first[name] = [equal[name][at] for at in places[:SIDE]]
            second[name] = [equal[name][at] for at in places[SIDE:]]
            other[name] = [planted[name][at] for at in others]
        alarms.update(name for name, said in _words(first, second).items() if said in ("slower", "faster"))
        found.update(name for name, said in _words(first, other).items() if said == "slower")
    return [
        Planted(
            backend=name,
            clock=clock,
            splits=SPLITS,
            alarms=alarms[name],
            found=found[name],
            planted=share,
            seen=math.expm1(difference.between(equal[name], planted[name]).log),
            spread=difference.deviation([each.log for each in equal[name]]),
        )
        for name in timed
    ]


def _words(baseline: Sides, candidate: Sides) -> dict[str, str]:
    found = {name: difference.between(baseline[name], candidate[name]) for name in baseline}
    adjusted = holm([each.p for each in found.values()])
    return {name: word(each, p) for (name, each), p in zip(found.items(), adjusted, strict=True)}


def _processes(profile: Profile, name: str, clock: str, control: str) -> tuple[Process, ...]:
    group = groups.of_record(profile, "")[0]
    timed, other = group.rows[name].clocks.get(clock), group.rows[control].clocks.get(clock)
    return times.processes_of(clock, timed, other) if timed and other else ()


def _read(path: Path) -> Profile:
    found = results.load(path)
    if not isinstance(found, Profile):
        raise SystemExit(f"{path.name} holds a {found.kind!r}, not a profile")
    return found


def render(found: Recording) -> str:
    """A table with a row for each clock of a backend, in Markdown."""
    load = "was not recorded" if found.background_load is None else f"was at most {found.background_load:.1%}"
    lines = [
        f"{found.device.name}, {found.workload.tokens} tokens, {found.processes} processes with and {found.processes} "
        f"without, control `{found.control}`; background load {load}",
        "",
        "| backend | clock | spread of processes | verdicts between equal ones | planted | seen | found |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {row.backend} | {row.clock} | {row.spread:.2%} | {row.alarms} of {row.splits} | {row.planted:.1%} | "
        f"{row.seen:.1%} | {row.found} of {row.splits} |"
        for row in found.rows
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is not there yet, judge, print and, if a file is given, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--share", type=float, default=0.03)
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS))
    parser.add_argument("--control", default=CONTROL)
    parser.add_argument("--options", type=shlex.split, default=[], help="of profile, in one text")
    parser.add_argument("--json", type=result_file)
    asked: Any = parser.parse_args(arguments)
    asked.folder.mkdir(parents=True, exist_ok=True)
    options = [f"--processes={asked.processes}", f"--rounds={asked.rounds}", *asked.options]
    record(asked.folder, asked.backends, asked.share, asked.control, options)
    found = judge(asked.folder, asked.backends, asked.share, asked.control)
    print(render(found))
    if asked.json is not None:
        files.write_whole("recording", asked.json, msgspec.json.format(msgspec.json.encode(found), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
