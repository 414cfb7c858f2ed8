"""Damaged traces: seeded changes of events and bytes of small traces, and what must hold of any of them."""

from __future__ import annotations

import contextlib
import gzip
import json
import math
import random
import re
from typing import TYPE_CHECKING, Any, Final

from mlpfusion.errors import MlpfusionError
from mlpfusion.report.trace.page import render
from mlpfusion.trace.analysis.summary import read_all
from mlpfusion.trace.findings.host import findings
from support.mutants import VALUES, damage, said
from support.paths import DATA

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mlpfusion.records.trace import Finding, Reading

CALLS: Final = 3  # of a recorded trace that are kept
NAMES: Final = (
    "k", "ProfilerStep#7", "cudaMalloc", "cudaStreamSynchronize", "cudaGraphLaunch", "cudaStreamBeginCapture",
    "cuModuleLoadData", "hipMemcpyWithStream", "aten::item", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(int)",
    "Memcpy DtoH (Device -> Pageable)", "Memset (Device)", "aten::mm", "nn.Module: Net_0", "a.py(3): f",
    "entire_frame_compile", "Torch-Compiled Region: 0/1", "_ZN2at6native", "void <<<", "nvjet_sm90_", "execute_0(1)",
)  # fmt: skip
CATEGORIES: Final = (
    "kernel", "gpu_memcpy", "gpu_memset", "cpu_op", "cuda_runtime", "cuda_driver", "user_annotation", "overhead",
    "python_function", "gpu_user_annotation", "cuda_sync", "xpu_runtime", "mtia_runtime", "Trace", "",
)  # fmt: skip
SHAPES: Final = ([[8, 4], [4, 2]], [[], []], [[-1, 0]], [[2**40, 2**40], [2**40, 3]], "x", [[8, 4], [[4]]], [[1.5]])
# A finding whose observation is a yes or no.
WITHOUT_NUMBERS: Final = {"no_cuda_graph"}
_NUMBER: Final = re.compile(r"\d")
_NO_NUMBER: Final = re.compile(r"(?<![\w.])(nan|inf|-inf|NaN|Infinity)(?![\w.])")


def recorded() -> list[list[Any]]:
    """The events of the first calls of each recorded trace."""
    found = []
    for path in sorted(DATA.glob("*.json.gz")):
        events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        calls = sorted(one["ts"] + one["dur"] for one in events if one.get("name") == "mlpfusion.call")
        end = calls[min(CALLS, len(calls)) - 1] if calls else math.inf
        kept = [one for one in events if one.get("ph") == "X" and one["ts"] < end]
        found.append(kept if len(kept) < 1500 else kept[:1500])
    return found


def mutant(sources: Sequence[list[Any]], seed: random.Random) -> tuple[bytes, str]:
    """A damaged trace, and what was done to it."""
    source = seed.choice(sources)
    events = [{**one, "args": dict(one.get("args") or {})} for one in source]
    changes = [_change(events, seed) for _ in range(seed.choice((1, 1, 2, 3, 5, 8, 30)))]
    document: Any = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], "traceEvents": events}
    data = json.dumps(document).encode("utf-8", "surrogatepass")
    if seed.random() < 0.15:
        return damage(data, seed), "; ".join((*changes, "bytes"))
    return data, "; ".join(changes)


def _change(events: list[Any], seed: random.Random) -> str:
    if not events:
        return "nothing"
    at = seed.randrange(len(events))
    one = events[at]
    how = seed.choice(sorted(_WAYS))
    if how == "delete" or not isinstance(one, dict):
        del events[at]
    elif how == "duplicate":
        events.insert(seed.randrange(len(events) + 1), {**one})
    elif how == "all":  # of one name, as when a profiler writes a whole kind wrongly
        key, value = seed.choice(("ts", "dur", "cat", "pid", "tid")), seed.choice((*VALUES, *CATEGORIES))
        for other in events:
            if isinstance(other, dict) and other.get("name") == one.get("name"):
                other[key] = value
    else:
        _WAYS[how](one, seed)
    return f"{how} {at}"


def _retime(one: Any, seed: random.Random) -> None:
    key, times = seed.choice(("ts", "dur")), seed.choice((-1, 0, 1e-3, 0.5, 2, 1e3, 1e12))
    if isinstance(one.get(key), int | float) and abs(one[key]) < 1e300:  # an earlier change may have made it huge
        one[key] = one[key] * times + seed.choice((0, 0, 0.0004, 1, -1, 5000))


def _any(one: Any, seed: random.Random) -> None:
    one[seed.choice(("ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id"))] = seed.choice(VALUES)


def _name(one: Any, seed: random.Random) -> None:
    one["name"] = seed.choice(NAMES)


def _category(one: Any, seed: random.Random) -> None:
    one["cat"] = seed.choice(CATEGORIES)


def _correlation(one: Any, seed: random.Random) -> None:
    if isinstance(one.get("args"), dict):
        one["args"]["correlation"] = seed.choice((0, 1, 2, 3, -1, None, "7", 2**64 - 1, 1.0, [], seed.randrange(9999)))


def _shapes(one: Any, seed: random.Random) -> None:
    if isinstance(one.get("args"), dict):
        one["args"][seed.choice(("Input Dims", "Collective name", "dtype", "grid", "stream"))] = seed.choice(SHAPES)


def _nothing(one: Any, seed: random.Random) -> None:
    del one, seed


_WAYS: Final[dict[str, Callable[[Any, random.Random], None]]] = {
    "retime": _retime, "any": _any, "name": _name, "category": _category, "correlation": _correlation,
    "shapes": _shapes, "delete": _nothing, "duplicate": _nothing, "all": _nothing,
}  # fmt: skip


def check(data: bytes) -> bool:
    """Read a trace, which may only be refused in one line; whether it was read."""
    try:
        readings = read_all(data)
    except MlpfusionError as error:
        return _refused(error)
    told = [(one, findings(one)) for one in readings]
    for reading, found in told:
        sound(reading, found)
    for fmt in ("text", "github", "csv", "json"):
        text = render(told, fmt)
        assert not _NO_NUMBER.search(text), fmt
    return True


def _refused(error: MlpfusionError) -> bool:
    assert len(str(error).splitlines()) == 1, error
    return False


def sound(reading: Reading, found: Sequence[Finding]) -> None:
    """No finding without its numbers, none out of order, and parts that sum to the whole."""
    for one in found:
        assert math.isfinite(one.cost_us), one
        assert one.cost_us >= 0, one
        assert math.isfinite(one.share), one
        assert _NUMBER.search(one.seen) or one.id in WITHOUT_NUMBERS, one
        assert one.means, one
        assert one.do, one
    costs = [one.cost_us for one in found]
    assert costs == sorted(costs, reverse=True)
    use = reading.device_use
    if use is not None:
        whose = use.own_us + use.others_us + use.orphans_us + use.idle_us
        causes = use.working_us + use.waiting_us + use.final_wait_us + use.launched_us
        assert math.isclose(whose, use.length_us, abs_tol=0.01), use
        assert math.isclose(causes, use.idle_us, abs_tol=0.01), use
        assert min(use.own_us, use.others_us, use.orphans_us, use.idle_us, use.waiting_us, use.launched_us) >= 0, use
        assert sum(one.us for one in use.did) <= use.working_us + 0.01, use


def attack(sources: Sequence[list[Any]], numbers: range, *, seed: int, faults: list[str] | None = None) -> int:
    """Check the mutants of these numbers; how many were read. Faults are raised, or listed where a list is given."""
    answered = 0
    for number in numbers:
        data, what = mutant(sources, random.Random(f"{seed}-{number}"))
        with contextlib.ExitStack() as stack:
            if faults is not None:
                stack.enter_context(_listed(faults, f"{number}: {what}"))
            answered += check(data)
    return answered


@contextlib.contextmanager
def _listed(faults: list[str], what: str) -> Any:
    import traceback

    try:
        yield
    except Exception as error:  # every fault is listed
        last = traceback.extract_tb(error.__traceback__)[-1]
        faults.append(
            f"{type(error).__name__} {last.filename.rpartition('/')[2]}:{last.lineno} {error!s:.200} | {what}"
        )


# ---- ranks of a job --------------------------------------------------------------------------------------------------

_PLACES: Final[tuple[Any, ...]] = (
    {"rank": 0, "world_size": 4}, {"rank": 1, "world_size": -1}, {"rank": "x"}, {"rank": 2**70, "world_size": 4}, {},
    [], None,
)  # fmt: skip
_ASKED: Final = (
    [],
    ["--rank", "0"],
    ["--rank", "1"],
    ["--format", "github"],
    ["--format", "json"],
    ["--format", "csv"],
)


def attack_jobs(source: list[Any], folder: Path, numbers: range, *, seed: int) -> int:
    """Read folders of two to four ranks, half of them damaged; how many were read by the command."""
    answered = 0
    for number in numbers:
        chosen = random.Random(f"{seed}-{number}")
        job = folder / str(number)
        job.mkdir()
        for rank in range(chosen.choice((2, 3, 4))):
            (job / f"trace_rank{rank}.json").write_bytes(_rank(source, rank, chosen))
        answered += check_command(["read", str(job), *chosen.choice(_ASKED)]) == 0
    return answered


def _rank(source: list[Any], rank: int, seed: random.Random) -> bytes:
    data, _ = mutant([source], seed) if seed.random() < 0.5 else (json.dumps({"traceEvents": source}).encode(), "")
    with contextlib.suppress(ValueError, UnicodeDecodeError):
        document = json.loads(data)
        if isinstance(document, dict):
            place = seed.choice((*_PLACES, *[{"rank": rank, "world_size": 4}] * len(_PLACES)))
            data = json.dumps({**document, "distributedInfo": place}).encode("utf-8", "surrogatepass")
    return data


def check_command(args: list[str]) -> int:
    """Run a command line that may answer, or refuse each file in one line; its exit code."""
    code, out, err = said(args)
    assert code in (0, 2), (args, code, err)
    assert all(line.startswith("mlpfusion: ") for line in err.splitlines()), err
    assert not _NO_NUMBER.search(out), args
    return code
