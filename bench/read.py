"""Times the reading of a large trace against decoding its bytes and against HolisticTraceAnalysis, with peak memory.

    python bench/read.py [--megabytes 300] [--rounds 3] [--ranks 200] [--from TRACE.json.gz] [--json FILE]

The trace is a recorded one over and over, each time a profiler step, with shifted times and ids, written as torch
writes it into a temporary folder. Every figure is the best of the rounds, each in a process of its own, on one machine
in one run; CPU seconds are those of all its threads. The ranks of a job are as many traces of 3 MB in a folder, read as
`mlpfusion read FOLDER` does, once. HTA is timed once, if it is installed (extra `bench`), and ended after four minutes;
its ratio is then a lower bound.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from asked import result_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RECORDED: Final = Path(__file__).parents[1] / "tests" / "data" / "h200_eager.json.gz"
HTA_LIMIT_S: Final = 240.0
RANK_BYTES: Final = 3_000_000


class Template(NamedTuple):
    """One entry in five parts, between which its time and its ids go."""

    parts: tuple[str, str, str]
    time_ns: int
    first_id: int | None
    second_id: int | None


def nanoseconds(value: object) -> int:
    """The exact nanoseconds of a time in µs."""
    return int(Decimal(str(value)) * 1000)


def template(entry: dict[str, Any]) -> Template:
    """An entry laid out as torch prints it."""
    entry = dict(entry)
    at, args = nanoseconds(entry.pop("ts")), dict(entry.pop("args", {}))
    if entry["ph"] == "X":
        duration = Decimal(str(entry.pop("dur")))
        head = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in entry.items())
        external, correlation = args.pop("External id", None), args.pop("correlation", None)
        rest = ", ".join(f"{json.dumps(key)}: {json.dumps(value, default=float)}" for key, value in args.items())
        tail = (", " if rest and (external, correlation) != (None, None) else "") + rest + "\n    }\n  }"
        middle = f', "dur": {duration:.3f},\n    "args": {{\n      '
        return Template((f'  {{\n    {head},\n    "ts": ', middle, tail), at, external, correlation)
    number = entry.pop("id")
    head = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in entry.items())
    return Template((f'  {{\n    {head},\n    "ts": ', ', "id": ', "\n  }"), at, int(number), None)


def written(one: Template, shift_ns: int, shift_ids: int) -> str:
    """The entry with its time and its ids shifted."""
    at = one.time_ns + shift_ns
    before, between, after = one.parts
    if between == ', "id": ':
        ids = str((one.first_id or 0) + shift_ids)
    else:
        named = (("External id", one.first_id), ("correlation", one.second_id))
        ids = ", ".join(f'"{name}": {value + shift_ids if value else 0}' for name, value in named if value is not None)
    return f"{before}{at // 1000}.{at % 1000:03d}{between}{ids}{after}"


def generate(recorded: Path, path: Path, size: int) -> int:
    """Write a trace of about `size` bytes to `path`; how many entries it has."""
    document = json.loads(gzip.decompress(recorded.read_bytes()), parse_float=Decimal)
    entries = document.pop("traceEvents")
    timed = [entry for entry in entries if entry["ph"] == "X"]
    ends = [nanoseconds(entry["ts"]) + nanoseconds(entry["dur"]) for entry in timed]
    span = max(ends) - min(nanoseconds(entry["ts"]) for entry in timed) + 1_000_000
    ids = [int(entry["args"].get(key, 0)) for entry in timed for key in ("External id", "correlation")]
    step = max([*ids, *(int(entry.get("id", 0)) for entry in entries)]) + 1
    templates = [template(entry) for entry in entries if entry["ph"] in ("X", "s", "f")]
    labels = [json.dumps(entry, default=float) for entry in entries if entry["ph"] == "M"]
    first = min(timed, key=lambda entry: nanoseconds(entry["ts"]))
    step_of = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#", "pid": first["pid"], "tid": first["tid"]}
    count, rounds = len(labels), 0
    with path.open("w", encoding="utf-8") as file:
        head = json.dumps(document, indent=2, default=float).removesuffix("\n}")
        file.write(head + ',\n  "traceEvents": [\n' + ",\n".join(labels))
        while file.tell() < size:
            # Each repetition is a step, as in a trace that was recorded with a schedule.
            named = {**step_of, "name": f"ProfilerStep#{rounds + 5}", "ts": first["ts"], "dur": (span - 1000) / 1000}
            whole = [template({**named, "args": {"External id": 0}}), *templates]
            file.write(",\n" + ",\n".join(written(one, rounds * span, rounds * step) for one in whole))
            count, rounds = count + len(whole), rounds + 1
        file.write('\n  ],\n  "traceName": "generated"\n}\n')
    return count


# ---- what is timed, each in a process of its own ---------------------------------------------------------------------


def decode(path: str) -> float:
    """Decode the bytes into structs of the needed fields, as the least that any reader must do."""
    import msgspec

    from mlpfusion.trace.read.entry import Entry

    kind = msgspec.defstruct("File", [("traceEvents", list[Entry])], gc=False)
    data = Path(path).read_bytes()
    start = time.perf_counter()
    msgspec.json.decode(data, type=kind)
    return time.perf_counter() - start


def read(path: str) -> float:
    """Read the whole: decode, link, calls, records ready for a table."""
    from mlpfusion.trace.analysis.summary import read as read_trace

    start = time.perf_counter()
    found = read_trace(path)
    seconds = time.perf_counter() - start
    assert found.incomplete is None, found.incomplete
    return seconds


def read_ranks(path: str) -> float:
    """Read the traces of a folder as the ranks of one job, and print its page into nothing."""
    from mlpfusion.report.job import render
    from mlpfusion.stages.trace.read import read_job

    start = time.perf_counter()
    found = read_job(path)
    lines = render(found).count("\n")
    seconds = time.perf_counter() - start
    assert lines < 100, lines
    assert all(rank.times for rank in found.ranks)
    return seconds


def hta_parse(path: str) -> float:
    """HolisticTraceAnalysis's parse of the file."""
    from hta.common.trace import parse_trace_file

    start = time.perf_counter()
    parse_trace_file(path)
    return time.perf_counter() - start


def hta_load(path: str) -> float:
    """HolisticTraceAnalysis's full load."""
    from hta.trace_analysis import TraceAnalysis

    start = time.perf_counter()
    TraceAnalysis(trace_files={0: path})
    return time.perf_counter() - start


TIMED: Final[dict[str, Callable[[str], float]]] = {
    "decode": decode,
    "read": read,
    "read_ranks": read_ranks,
    "hta_parse": hta_parse,
    "hta_load": hta_load,
}


def timed(name: str, path: str) -> None:
    """Print the seconds of one run, imports before it not counted, and the peak memory of this process."""
    seconds = TIMED[name](path)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({"seconds": seconds, "cpu_s": time.process_time(), "peak_bytes": peak}))


def one_run(name: str, path: Path, limit_s: float | None = None) -> dict[str, float] | None:
    """Seconds and peak memory of one run, or None where the limit ended it."""
    command = [sys.executable, __file__, "--timed", name, str(path)]
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def best(runs: list[dict[str, float]]) -> dict[str, float]:
    """The best and the median time, and the highest peak."""
    seconds = sorted(run["seconds"] for run in runs)
    return {
        "seconds": seconds[0],
        "median_s": seconds[len(seconds) // 2],
        "peak_bytes": max(run["peak_bytes"] for run in runs),
    }


@contextlib.contextmanager
def generated(recorded: Path, size: int) -> Iterator[tuple[Path, Path, int]]:
    """The generated trace, the same gzipped, and its number of entries."""
    with tempfile.TemporaryDirectory(prefix="mlpfusion-read-") as folder:
        plain, packed = Path(folder) / "trace.json", Path(folder) / "packed.json.gz"
        count = generate(recorded, plain, size)
        with plain.open("rb") as source, gzip.open(packed, "wb", compresslevel=6) as target:
            while chunk := source.read(1 << 20):
                target.write(chunk)
        yield plain, packed, count


def measure_ranks(recorded: Path, ranks: int) -> dict[str, Any]:
    """One reading of a job of so many ranks. They are one file with several names: what is in it does not matter."""
    with tempfile.TemporaryDirectory(prefix="mlpfusion-ranks-") as folder:
        first = Path(folder) / "rank0.json"
        generate(recorded, first, RANK_BYTES)
        for rank in range(1, ranks):
            os.link(first, Path(folder) / f"rank{rank}.json")
        return {"ranks": ranks, "bytes_each": first.stat().st_size, **(one_run("read_ranks", Path(folder)) or {})}


def measure(recorded: Path, size: int, rounds: int, ranks: int) -> dict[str, Any]:
    """All figures and the ratios that have a limit."""
    with generated(recorded, size) as (plain, packed, count):
        figures: dict[str, Any] = {"bytes": plain.stat().st_size, "entries": count, "cpus": os.cpu_count()}
        runs: dict[str, list[dict[str, float]]] = {"decode": [], "read": [], "read_gz": []}
        for _ in range(rounds):  # interleaved, so that a busy moment is not one reader's alone
            for name, path in (("decode", plain), ("read", plain), ("read_gz", packed)):
                runs[name].append(one_run(name.removesuffix("_gz"), path) or {})
        figures.update({name: best(each) for name, each in runs.items()})
        if importlib.util.find_spec("hta"):
            for name in ("hta_parse", "hta_load"):
                figures[name] = one_run(name, plain, HTA_LIMIT_S)
    if ranks:
        figures["read_ranks (200: at most 30 s, 300 MB)"] = measure_ranks(recorded, ranks)
    ours = figures["read"]["seconds"]
    figures["ratios"] = {
        "read / decode (at most 4)": ours / figures["decode"]["seconds"],
        "peak / file (at most 0.5)": figures["read"]["peak_bytes"] / figures["bytes"],
        "gz / plain (at most 1.3)": figures["read_gz"]["seconds"] / ours,
    }
    for name, least in (("hta_parse", 5), ("hta_load", 20)):
        if name in figures:
            seconds = (figures[name] or {}).get("seconds", HTA_LIMIT_S)
            figures["ratios"][f"{name} / read (at least {least})"] = seconds / ours
    return figures


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=200, help="0 for none")
    parser.add_argument("--from", dest="recorded", type=Path, default=RECORDED)
    parser.add_argument("--json", type=result_file)
    parser.add_argument("--timed", nargs=2, metavar=("WHAT", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.timed:
        timed(*options.timed)
        return
    figures = measure(options.recorded, int(options.megabytes * 1e6), options.rounds, options.ranks)
    text = json.dumps({"schema": 1, "kind": "reading", **figures}, indent=2)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
