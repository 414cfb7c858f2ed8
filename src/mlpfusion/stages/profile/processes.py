"""Races the qualified backends in one process after another, and names the one that kills its process."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mlpfusion.environment import machine
from mlpfusion.errors import MlpfusionError
from mlpfusion.measure import turns
from mlpfusion.records.clocks import Samples
from mlpfusion.records.environment import Process
from mlpfusion.stages.profile import race
from mlpfusion.storage import private
from mlpfusion.trace.analysis.kernels import analyse_work
from mlpfusion.trace.names.same import compared
from mlpfusion.trace.read import kineto, launch_configs
from mlpfusion.workers import supervise, tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mlpfusion.device import Device
    from mlpfusion.records.profile import Kernel, Row
    from mlpfusion.spec import Workload


class Field(NamedTuple):
    """Where and how the backends are raced; `tell` gets a backend, or None, and what is said of it."""

    workload: Workload
    here: Device
    folder: Path
    rounds: int
    processes: int
    calls: int
    seed: int
    time_limit_s: float
    tell: Callable[[str | None, str], None]


class Finished(NamedTuple):
    """What has been raced so far: the rows of all that were in the race, and its processes."""

    rows: Mapping[str, Row]
    processes: tuple[Process, ...]


def race_all(rows: Mapping[str, Row], field: Field, finished: Callable[[Finished], None]) -> Finished:
    """Race these rows; `finished` is called after each process.

    A backend that kills its process has failed: the others race again without it, and keep what earlier processes
    measured, as it does itself. Several processes are fresh interpreters, and each traces every backend once its race
    is over: a tuner may choose other kernels in each.
    """
    found = dict(rows)
    raced: list[tasks.Raced] = []
    processes: list[Process] = []
    names = list(rows)
    for number in range(1, field.processes + 1):
        where = f" in process {number} of {field.processes}" if field.processes > 1 else ""
        field.tell(None, f"{', '.join(names)}: {field.rounds} interleaved rounds{where}")
        attempt = _survived(names, field, number, where)
        for name, reason in attempt.failed.items():
            found[name] = msgspec.structs.replace(found[name], status="failed", reason=reason)
        if attempt.answer is None:
            break
        answer, process = _read(attempt, [rows[name] for name in names if name not in attempt.failed], field)
        raced.append(answer)
        processes.append(process)
        for name in rows:
            if any(series.backend == name for each in raced for series in each.samples):
                now = race.after_the_race(rows[name], raced, field.here, processes)
                found[name] = _keeping(found[name], now)
        names = [name for name in names if found[name].status == "ok"]
        field.tell(None, f"done{where}")
        finished(Finished(found, tuple(processes)))
        if not names:
            break
    return Finished(found, tuple(processes))


def _keeping(before: Row, now: Row) -> Row:
    """The row as it is now; one that failed in an earlier process stays failed."""
    if before.status == "ok":
        return now
    return msgspec.structs.replace(now, status=before.status, reason=before.reason)


class _Attempt(NamedTuple):
    """A process with all that can race: its answer, None where nothing can; and why the others cannot."""

    answer: tasks.Raced | None
    started: str
    traces: Path
    failed: Mapping[str, str]


def _survived(names: Sequence[str], field: Field, number: int, where: str) -> _Attempt:
    failed: dict[str, str] = {}
    left, attempt = list(names), 0
    while left:
        attempt += 1
        started, name = machine.now(), f"race-{number}-{attempt}"
        progress, traces = field.folder / f"{name}.progress", field.folder / f"{name}.traces"
        answer = _raced(left, field, name, progress, traces)
        if isinstance(answer, tasks.Raced):
            return _Attempt(answer, started, traces, failed)
        assert isinstance(answer, tasks.Broken)
        culprit = progress.read_text().strip() if progress.exists() else ""
        gone = [culprit] if culprit in left else left
        reason = f"the race failed{where} while this backend ran, as it did not alone: {answer.reason}"
        failed.update(dict.fromkeys(gone, reason))
        left = [name for name in left if name not in gone]
        then = "racing again without it" if left else "no backend is left to race"
        field.tell(culprit or None, f"failed: {answer.reason}; {then}")
    return _Attempt(None, machine.now(), field.folder, failed)


def _raced(names: Sequence[str], field: Field, name: str, progress: Path, traces: Path) -> tasks.Answer:
    several = field.processes > 1
    if several:
        traces.mkdir()
    task = tasks.Race(
        backends=tuple(names),
        workload=field.workload,
        device=field.here.kind,
        seed=field.seed,
        rounds=field.rounds,
        progress=str(progress),
        traces=str(traces) if several else None,
        calls=field.calls,
    )
    limit = field.time_limit_s * len(names)
    try:
        return supervise.run(
            task, folder=field.folder, name=name, time_limit_s=limit, fresh=several, waited=turns.waited
        )
    finally:
        turns.settle()


# ---- what a process ran ----------------------------------------------------------------------------------------------


def _read(attempt: _Attempt, rows: Sequence[Row], field: Field) -> tuple[tasks.Raced, Process]:
    """The answer with the kernel clock of each trace, and the process with the kernels of rows that ran others."""
    assert attempt.answer is not None
    answer = attempt.answer
    samples = list(answer.samples)
    kernels: dict[str, tuple[str, ...]] = {}
    reasons = dict(answer.unread)
    for place, row in enumerate(rows if field.processes > 1 else ()):
        trace = attempt.traces / f"{place}.trace.json"
        try:
            if row.backend in answer.untraced:
                raise MlpfusionError(answer.untraced[row.backend])
            configs = launch_configs.read(trace)
            analysis, _ = analyse_work(kineto.read(trace), device=field.here.kind, configs=configs)
            if analysis.faults:
                raise MlpfusionError("; ".join(analysis.faults))
        except MlpfusionError as error:
            reasons[f"kernels of {row.backend}"] = private.text(str(error))
            continue
        finally:
            trace.unlink(missing_ok=True)
        samples.append(Samples(backend=row.backend, clock=race.KERNEL, l2=samples[0].l2, values=analysis.kernel_us))
        if not _alike(analysis.kernels, row.kernels):
            kernels[row.backend] = tuple(kernel.name for kernel in analysis.kernels)
    if answer.neighbours is None:
        reasons["neighbours"] = "the system does not tell, or the race was too short"
    process = Process(
        started=attempt.started,
        throttle_reasons=answer.throttled,
        neighbours=answer.neighbours,
        kernels=kernels,
        reasons=reasons,
        **answer.readings,
    )
    return msgspec.structs.replace(answer, samples=tuple(samples)), process


def _alike(a: Sequence[Kernel], b: Sequence[Kernel]) -> bool:
    """Whether a tuner chose the same: kernels of these names, launched in the same way as far as both say how."""
    return len(a) == len(b) and all(
        compared(one.name) == compared(other.name)
        and (one.launch == other.launch or None in (one.launch, other.launch))
        for one, other in zip(a, b, strict=True)
    )
