"""Records a trace, scrubs it, or compares two."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mlpfusion import limits
from mlpfusion.errors import UsageError
from mlpfusion.records.job import Job
from mlpfusion.records.profile import Profile, Row
from mlpfusion.records.trace import Reading
from mlpfusion.stages.trace.read import one_of_job
from mlpfusion.storage import files, inputs, results
from mlpfusion.trace.analysis.summary import read as read_trace
from mlpfusion.trace.diff.calls import diff as _diff
from mlpfusion.trace.diff.jobs import diff_jobs
from mlpfusion.trace.job.sources import is_group
from mlpfusion.trace.read import kineto
from mlpfusion.trace.read.source import MAX_BYTES, file_of
from mlpfusion.trace.words import numbers
from mlpfusion.workers import interrupts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mlpfusion.device import DeviceKind
    from mlpfusion.records.job import JobDifference
    from mlpfusion.records.trace import Difference

CALLS: Final = 20
OUT: Final = "trace.json.gz"
_SCHEMA: Final = re.compile(rb'"schema"\s*:')
_KIND: Final = re.compile(rb'"kind"\s*:\s*"(\w+)"')
_TRACE: Final = re.compile(rb'\s*\{[^{]*"(schemaVersion|traceEvents|deviceProperties|displayTimeUnit)"\s*:')
_PROFILER: Final = re.compile(rb"\b(torch|autograd)\.profiler\b|\bimport profiler\b")
_RUNS: Final = (
    "each side was measured in a separate process: an interval covers the spread within a run, not between runs"
)
_ARCHIVES: Final = (".zip", ".tar", ".tar.gz", ".tgz")
_START: Final = 4096  # bytes that distinguish a result file from a trace


def record(fn: Callable[..., object], *args: object, calls: int = CALLS, out: str | Path = OUT) -> Path:
    """Record `calls` calls of `fn(*args)` with torch.profiler, after warming up, and return the trace's path.

    Five calls come before those that are recorded. The trace is JSON, gzipped if `out` ends in .gz, and scrubbed: no
    paths, no host names, no words of a user's. What `fn` raises is raised, and `out` is then left as it was.

    Raises:
        UsageError: `fn` cannot be called, `calls` is not positive, `out` cannot be written or is no trace.
    """
    if not callable(fn):
        raise UsageError(f"fn must be callable, got {fn!r}")
    limits.whole("calls", calls, limits.CALLS)
    target = _check_trace(Path(out))
    from mlpfusion.measure import tracer

    with files.scratch() as scratch:
        raw = scratch / "raw.json"
        tracer.record_scheduled(lambda: fn(*args), raw, calls=calls)
        kineto.scrub(raw, target)
    return Path(out)


def record_script(
    script: str, function: str, *, calls: int = CALLS, out: Path, time_limit_s: float = 600.0
) -> str | None:
    """As `record`, of a function of a script in a separate process; returns why it failed, or None.

    Raises:
        UsageError: there is no such script or function, or the function needs arguments.
    """
    limits.whole("calls", calls, limits.CALLS)
    limits.seconds("time_limit_s", time_limit_s)
    if not Path(script).is_file():
        raise UsageError(f"script {script!r} does not exist")
    if files.is_same(Path(script), out):
        raise UsageError(f"trace file {str(out)!r} would overwrite the script itself; name another file")
    target = _check_trace(out)
    from mlpfusion.workers import supervise, tasks

    with interrupts.stoppable(), files.scratch() as scratch:
        raw = scratch / "raw.json"
        task = tasks.Trace(script=str(Path(script).resolve()), function=function, trace=str(raw), calls=calls)
        answer = supervise.run(task, folder=scratch, name="trace", time_limit_s=time_limit_s)
        if isinstance(answer, tasks.Broken):
            return answer.reason + _hint(answer.reason, Path(script))
        assert isinstance(answer, tasks.Traced)
        if answer.misused is not None:
            raise UsageError(answer.misused)
        kineto.scrub(raw, target)
    return None


def scrub(source: str, out: Path) -> None:
    """Write the trace `source` to `out` without a user's own words; only another trace, or nothing, is replaced.

    Raises:
        UsageError: `source` is no one readable trace, or `out` is the same file, or no trace, or cannot be written.
    """
    if source != inputs.STDIN and files.is_same(out, file_of(source)):
        raise UsageError(f"--out {str(out)!r} would overwrite {source!r}, which is to be read; name another file")
    kineto.scrub(source, _check_trace(out))


def _hint(reason: str, script: Path) -> str:
    """What most likely ended the worker of a script that profiles itself.

    Kineto crashes (PyTorch 2.13), or says that a profiler does not run (2.11) or that one runs already (2.15).
    """
    ended = reason.startswith("the worker was killed") or "profiler" in reason.lower()
    if not ended or not _PROFILER.search(script.read_bytes()):
        return ""
    return "; the script uses its own profiler, and only one can run at a time: exclude it from what is traced"


def _check_trace(path: Path) -> Path:
    """The real path behind `path` if a trace can be written there; only another trace, or nothing, may be replaced."""
    target = files.check_file("trace file", path)
    start = b""
    if target.exists():
        try:
            with target.open("rb") as file:
                start = file.read(_START)
            if start.startswith(b"\x1f\x8b"):
                start = zlib.decompressobj(wbits=31).decompress(start, _START)
        except (OSError, zlib.error):
            start = b"?"
    if start and not _TRACE.match(start):
        raise UsageError(f"trace file {str(path)!r} exists and is no trace; name another file")
    return target


def diff(
    a: str | Path | Reading | Row,
    b: str | Path | Reading | Row,
    *,
    call: str | None = None,
    device: DeviceKind | None = None,
    max_bytes: int = MAX_BYTES,
) -> Difference:
    """How the call of `b` differs from that of `a`.

    Each is a trace (a path, as for `read`), a row of a result file as `result.json:backend`, or what was read of one.

    Raises:
        UsageError: there is no such trace, row or call.
        MeasurementError: a trace has calls but nothing that ran in them.
    """
    sides: list[Any] = []
    labels: list[str] = []
    facts: list[dict[str, object]] = []
    for side in (a, b):
        if isinstance(side, Reading | Row):
            sides.append(side)
            labels.append(side.source if isinstance(side, Reading) else side.backend)
            facts.append({})
        else:
            row, profile = _row(str(side)) or (None, None)
            sides.append(row or read_trace(side, call=call, device=device, max_bytes=max_bytes))
            labels.append(str(side))
            facts.append({} if profile is None else _facts(profile))
        if isinstance(sides[-1], Reading):
            facts[-1] = {"GPU": sides[-1].gpu}
    found = _diff(sides[0], sides[1], labels=(labels[0], labels[1]))
    devices = [str(known["GPU"]) if known.get("GPU") is not None else None for known in facts]
    found = msgspec.structs.replace(found, a_device=found.a_device or devices[0], b_device=found.b_device or devices[1])
    if labels[0] == labels[1]:
        return found
    return msgspec.structs.replace(found, reasons=(*found.reasons, _RUNS, *_apart(*facts)))


def diff_any(
    a: str,
    b: str,
    *,
    rank: int | None = None,
    call: str | None = None,
    device: DeviceKind | None = None,
    max_bytes: int = MAX_BYTES,
) -> Difference | JobDifference:
    """How `b` differs from `a`, as `diff`, or where both are jobs (directories, patterns, archives), their ranks.

    With `rank` a job stands for its trace of that rank.

    Raises:
        UsageError: as `diff`; one of both is a job and no rank is named, or it has no such rank.
        MeasurementError: a trace has calls but nothing that ran in them.
    """
    options: dict[str, Any] = {"call": call, "device": device, "max_bytes": max_bytes}
    jobs = [_may_be_job(side) or (rank is not None and _row(side) is None) for side in (a, b)]
    if not any(jobs):
        return diff(a, b, **options)
    sides = [one_of_job(side, rank, **options) if job else side for side, job in zip((a, b), jobs, strict=True)]
    if all(isinstance(side, Job) for side in sides):
        return diff_jobs(sides[0], sides[1], labels=(a, b))  # type: ignore[arg-type]
    for side, name in zip(sides, (a, b), strict=True):
        if isinstance(side, Job):
            known = numbers([one.rank for one in side.ranks if one.rank is not None])
            raise UsageError(
                f"{name!r} is a job of {len(side.ranks)} traces and the other side is one; name one rank by --rank"
                + (f": {known}" if known else "")
            )
    return diff(sides[0], sides[1], **options)  # type: ignore[arg-type]


def _may_be_job(side: str) -> bool:
    """Whether an argument names several files, or an archive, which may hold several."""
    return is_group(side) or (side.lower().endswith(_ARCHIVES) and Path(side).is_file())


def _facts(profile: Profile) -> dict[str, object]:
    """What a result records of where it was measured."""
    there = msgspec.to_builtins(profile.environment)
    names = {"liger_kernel": "liger-kernel", "sm_clock_mhz": "SM clock MHz", "memory_clock_mhz": "memory clock MHz"}
    facts = {names.get(name, name): value for name, value in there.items() if not isinstance(value, dict)}
    return {"GPU": profile.device.name, "mlpfusion": profile.mlpfusion, **facts, **profile.environment.distributions}


def _apart(a: dict[str, object], b: dict[str, object]) -> Iterator[str]:
    """What both sides record and what differs, in one sentence if anything does."""
    both = [name for name in a if a[name] is not None and b.get(name) is not None and a[name] != b[name]]
    if both:
        yield f"they were measured in different environments: {', '.join(f'{n} {a[n]} and {b[n]}' for n in both)}"


def _row(text: str) -> tuple[Row, Profile] | None:
    """The row that `RESULT.json:backend` names with its profile, or None if `text` names no result file."""
    if not text:
        raise UsageError("a trace's name is empty: ''")
    kind = _kind_of(text)
    if kind == "profile":
        raise UsageError(f"{text!r} is a result file; name one of its rows: {_rows(results.load(text), text)}")
    path, name = inputs.split_row(text)
    if path in ("-", "stdin") and not Path(path).exists():  # a parser takes -:eager for an option
        path = inputs.STDIN
    shown, kind = (text, kind) if kind else (path, _kind_of(path) if name else None)
    if kind is None:
        return None
    if kind != "profile":
        raise UsageError(f"{shown!r} is a file of mlpfusion of kind {kind!r}; valid: a trace, or a row of a 'profile'")
    profile = results.load(path)
    row = next((row for row in profile.rows if row.backend == name), None)
    if row is None:
        raise UsageError(f"{path!r} has no row {name!r}; valid: {_rows(profile, path)}")
    if not row.kernels:
        raise UsageError(f"row {name!r} of {path!r} has no kernels: it is {row.status}: {row.reason}")
    return row, profile


def _peeked() -> bytes:
    """The first bytes of stdin, which are still there for who reads it."""
    peek = getattr(inputs.stdin(), "peek", None)
    return b"" if peek is None else peek(_START)


def _rows(profile: Profile, path: str) -> str:
    shown = "stdin" if inputs.is_stdin(path) else path
    return ", ".join(f"{shown}:{row.backend}" for row in profile.rows) or "it has none"


def _kind_of(text: str) -> str | None:
    """What the file of mlpfusion at this path holds: JSON that says so before anything long. None for any other."""
    path = Path(text)
    try:
        if inputs.is_stdin(text):
            start = _peeked()
        elif path.is_file():
            with path.open("rb") as file:
                start = file.read(_START)
        else:
            return None
    except (OSError, ValueError):  # ValueError: a name with a null byte
        return None
    start = inputs.start(start, _START)
    if start.lstrip()[:1] != b"{" or b'"traceEvents"' in start or not _SCHEMA.search(start):
        return None
    kind = _KIND.search(start)
    return kind[1].decode() if kind else None
