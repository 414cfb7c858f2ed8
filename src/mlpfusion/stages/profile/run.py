"""Runs the stages of a profile: qualify, trace, analyse, race, store."""

from __future__ import annotations

import contextlib
import hashlib
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from mlpfusion import backend as registry
from mlpfusion import device as devices
from mlpfusion import limits
from mlpfusion.environment import card, machine, provenance
from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.records.clocks import Clocks
from mlpfusion.records.profile import SCHEMA, Profile, Row
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.stages.compare import self_test
from mlpfusion.stages.profile import race
from mlpfusion.stages.profile.plan import EMULATED_TOKENS, emulation, planned, refusal
from mlpfusion.stages.profile.processes import Field, Finished, race_all
from mlpfusion.stages.profile.settings import ROUNDS
from mlpfusion.storage import private, results
from mlpfusion.storage.files import alone, scratch
from mlpfusion.trace.analysis.kernels import analyse_work
from mlpfusion.trace.read import kineto, launch_configs
from mlpfusion.traffic import annotate
from mlpfusion.traffic import row as row_traffic
from mlpfusion.workers import forking, interrupts, supervise, tasks

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mlpfusion.device import Device
    from mlpfusion.records.environment import Environment, Process
    from mlpfusion.records.traffic import Ceilings

TRACED_CALLS: Final = 20


class Progress(NamedTuple):
    """One step of a run: its stage, its backend, and the message for the user."""

    stage: str
    backend: str | None
    text: str


def default_workload(device: Device) -> Workload:
    """The GeGLU tutorial's shape on a GPU, and one that takes about a minute in all on a CPU."""
    spec = MLPSpec(hidden_size=768, intermediate_size=3072)
    if device.kind == "cpu":
        return Workload(spec=spec, batch=2, seq=64)
    return Workload(spec=spec, batch=64, seq=128)


def backends(spec: MLPSpec, *, device: str | None = None) -> list[tuple[str, str | None]]:
    """Every registered backend with None if it can run `spec` here, else the reason why not."""
    here = devices.detect(device)
    return [(name, refusal(name, spec, here)) for name in registry.names()]


def profile(
    workload: Workload,
    *,
    backends: Sequence[str] | None = None,
    device: str | None = None,
    out: str | os.PathLike[str] | None = None,
    json: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    rounds: int = ROUNDS,
    processes: int = 1,
    time_limit_s: float = 600.0,
    seed: int = 0,
    counters: bool = False,
    finished: Sequence[Row] = (),
    command: Sequence[str] | None = None,
    on_event: Callable[[Progress], None] | None = None,
) -> Profile:
    """Qualify each backend in a separate process, then race the good ones in one, or in several one after the other.

    On Linux these processes are forks of one that has imported PyTorch and touched no device.

    `finished` are rows of an earlier run of this workload here; their backends are raced, not qualified again.
    `command` is what was typed, for the result; it must hold no path.

    Every finished row is written at once to `json` and to `out`/result.json, where also a Chrome trace of each backend
    goes; a folder that holds an earlier run's is refused unless it may `overwrite` that.

    An interrupt ends the workers; what is finished stays in the files. With `counters` each backend runs twice
    more under Nsight Compute, and a compiled one is compiled once more; where that cannot be, the rows say why.

    Raises:
        UsageError: a bad name or number, a duplicate, a workload that does not fit into memory, or a place that cannot
            be written to, where another run writes, or whose files would be lost.
    """
    names = _checked_names(registry.names() if backends is None else backends)
    limits.whole("rounds", rounds, limits.ROUNDS)
    limits.whole("processes", processes, limits.PROCESSES)
    limits.seconds("time_limit_s", time_limit_s)
    limits.whole("seed", seed, limits.SEED)
    folder, file = (None if path is None else Path(path) for path in (out, json))
    here = msgspec.structs.replace(devices.detect(device), interpreted=False)
    check_memory(workload, here, len(names))
    if file is not None:
        results.check_file(file)
    files = [path for path in (file, folder / results.RESULT_NAME if folder else None) if path is not None]
    with _running(folder) as working:
        if folder is not None:
            results.check_directory(folder, overwrite=overwrite)
        run = _Run(
            workload=workload,
            here=here,
            scratch=working,
            out=folder,
            files=files,
            rounds=rounds,
            time_limit_s=time_limit_s,
            seed=seed,
            counters=counters,
            tell=on_event or (lambda event: None),
            environment=machine.collect(here, {}),
            created=machine.now(),
            processes=processes,
            command=None if command is None else tuple(command),
            rows={},
            raced=[],
        )
        return run.profile(names, {row.backend: race.unraced(row) for row in finished})


@contextlib.contextmanager
def _running(out: Path | None) -> Iterator[Path]:
    """A folder for the workers' files, with `out` locked and workers that end on an interrupt."""
    with (
        interrupts.stoppable(),
        alone(out),
        forking.kept(),
        scratch() as folder,
    ):
        yield folder


class _Run(NamedTuple):
    """One `profile` under way: its options, and the rows so far."""

    workload: Workload
    here: Device
    scratch: Path
    out: Path | None
    files: Sequence[Path]
    rounds: int
    time_limit_s: float
    seed: int
    counters: bool
    tell: Callable[[Progress], None]
    environment: Environment
    created: str
    processes: int
    command: tuple[str, ...] | None
    rows: dict[str, Row]
    raced: list[Process]

    def profile(self, names: Sequence[str], finished: Mapping[str, Row]) -> Profile:
        """All rows, in the order of `names`."""
        for name in names:
            self.tell(Progress("qualify", name, "…"))
            self.rows[name] = row = finished[name] if name in finished else self._qualify(name)
            self.tell(Progress("qualify", name, _said(row)))
            self._save(complete=False)
        self._race([name for name in names if self.rows[name].status == "ok" and not self.rows[name].emulated])
        found = self._weigh([name for name in names if self.rows[name].status == "ok" and not self.rows[name].emulated])
        return self._save(complete=True, ceilings=found)

    # -- qualification: one process per backend

    def _qualify(self, name: str) -> Row:
        emulate = False
        if name in registry.built_in():  # our own code is called here, third-party code only in its worker
            plan = planned(name, self.workload.spec, self.here)
            if plan.status == "unavailable":
                return Row(backend=name, status="unavailable", reason=plan.reason)
            emulate = plan.status == "emulated"
        answer = self._ask(name, emulate=emulate)
        if isinstance(answer, tasks.Qualified) and answer.emulatable:
            emulate = True
            answer = self._ask(name, emulate=True)
        if isinstance(answer, tasks.Broken):
            return Row(backend=name, status=answer.kind, reason=answer.reason)
        assert isinstance(answer, tasks.Qualified)
        if answer.unsupported is not None:
            return Row(backend=name, status="unavailable", reason=answer.unsupported)
        row = Row(
            backend=name,
            status="ok",
            accuracy=answer.accuracy,
            notes=answer.notes,
            distributions=answer.distributions,
        )
        return self._emulated(row, answer) if emulate else self._qualified(row, answer)

    def _ask(self, name: str, *, emulate: bool) -> tasks.Answer:
        file_name = f"qualify-{_file_name(name)}"
        task = tasks.Qualify(
            backend=name,
            workload=self.workload,
            device=self.here.kind,
            seed=self.seed,
            trace=str(self.scratch / f"{file_name}.trace.json"),
            calls=TRACED_CALLS,
            emulate=emulate,
            tokens=min(EMULATED_TOKENS, self.workload.tokens) if emulate else None,
        )
        return supervise.run(task, folder=self.scratch, name=file_name, time_limit_s=self.time_limit_s)

    def _emulated(self, row: Row, answer: tasks.Qualified) -> Row:
        tokens = min(EMULATED_TOKENS, self.workload.tokens)
        wrong = _wrong(answer)
        nothing = dict.fromkeys(("wall_us", "event_us", "kernel_us", "graph_us"), "emulated")
        return msgspec.structs.replace(
            row,
            status="failed" if wrong else "ok",
            reason=wrong or f"emulated: {emulation(tokens)}",
            emulated=True,
            tokens=tokens,
            clocks=Clocks(reasons=nothing),
            traffic=row_traffic.emulated(self.workload, tokens, answer.ledger, no_ledger=answer.no_ledger),
        )

    def _qualified(self, row: Row, answer: tasks.Qualified) -> Row:
        name, tokens = row.backend, self.workload.tokens
        row = msgspec.structs.replace(row, tokens=tokens, setup=answer.setup, memory=answer.memory)
        trace = self.scratch / f"qualify-{_file_name(name)}.trace.json"
        wrong = _wrong(answer) or answer.fell_back
        try:
            configs = launch_configs.read(trace)
            analysis, work = analyse_work(kineto.read(trace), device=self.here.kind, configs=configs)
            file_name = None
            if self.out is not None:
                self.out.mkdir(parents=True, exist_ok=True)
                file_name = f"{_file_name(name)}{results.TRACE_SUFFIX}"
                kineto.scrub(trace, self.out / file_name)
        except MlpfusionError as error:
            reason = wrong or f"its trace cannot be used: {private.text(str(error))}"
            return msgspec.structs.replace(row, status="failed", reason=reason)
        finally:
            trace.unlink(missing_ok=True)
        wrong = wrong or "; ".join(analysis.faults)
        if wrong:
            row = msgspec.structs.replace(row, status="failed", reason=wrong)
        return msgspec.structs.replace(
            row,
            kernels=analysis.kernels,
            launches=analysis.launches,
            pre_ops=analysis.pre_ops,
            clocks=race.before_the_race(name, analysis, self.here, failed=bool(wrong)),
            traffic=row_traffic.traffic(
                self.workload, answer.ledger, analysis.kernels, work, no_ledger=answer.no_ledger
            ),
            trace_file=file_name,
            notes=(*row.notes, *analysis.notes, *_graph_notes(answer, analysis.launches.runtime_launches)),
        )

    # -- the race: all of them, in one process or in several

    def _race(self, names: Sequence[str]) -> None:
        if not names:
            return
        field = Field(
            workload=self.workload,
            here=self.here,
            folder=self.scratch,
            rounds=self.rounds,
            processes=self.processes,
            calls=TRACED_CALLS,
            seed=self.seed,
            time_limit_s=self.time_limit_s,
            tell=lambda backend, text: self.tell(Progress("race", backend, text)),
        )
        self._raced(race_all({name: self.rows[name] for name in names}, field, self._saved))

    def _saved(self, finished: Finished) -> None:
        self._raced(finished)
        if len(self.raced) < self.processes:
            self._save(complete=False)

    def _raced(self, finished: Finished) -> None:
        self.rows.update(finished.rows)
        self.raced[:] = finished.processes

    # -- what the card can do, and what its counters say

    def _weigh(self, names: list[str]) -> Ceilings | None:
        """Puts measured bytes and limits on the rows; returns what the card was measured to reach."""
        rows, found = annotate.weighed(
            [self.rows[name] for name in names],
            self.workload,
            self.here,
            counters=self.counters,
            folder=self.scratch,
            seed=self.seed,
            time_limit_s=self.time_limit_s,
            tell=lambda stage, text: self.tell(Progress(stage, None, text)),
        )
        self.rows.update((row.backend, row) for row in rows)
        return found

    def _save(self, *, complete: bool, ceilings: Ceilings | None = None) -> Profile:
        # The clocks of a card at work: read again as soon as the race is over.
        here = machine.collect(self.here, {}) if complete else self.environment
        behind = provenance.of_rows(self.rows.values())
        result = Profile(
            schema=SCHEMA,
            kind="profile",
            mlpfusion=metadata.version("mlpfusion"),
            created=self.created,
            workload=self.workload,
            device=self.here,
            environment=msgspec.structs.replace(
                here, distributions=behind, card=card.with_clocks(here.card, self.raced)
            ),
            rows=tuple(self.rows.values()),
            processes=tuple(self.raced),
            command=self.command,
            complete=complete,
            ceilings=ceilings,
        )
        if complete and len(self.raced) > 1:
            result = msgspec.structs.replace(result, itself=self_test.of_profile(result))
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)
        for path in self.files:
            results.save(result, path)
        return result


def _checked_names(names: Sequence[str]) -> list[str]:
    if isinstance(names, str):
        raise UsageError(f"backends must be a sequence of names, got the text {names!r}")
    if not names:
        raise UsageError(f"no backend was named; known: {', '.join(registry.names())}")
    for name in names:
        registry.check_name(name)
        if list(names).count(name) > 1:
            raise UsageError(f"backend {name!r} is named twice")
    return list(names)


def check_memory(workload: Workload, here: Device, count: int) -> None:
    """Raise a UsageError if `count` backends cannot have this workload in the device's memory at once."""
    needed = workload.resident_bytes + (count - 1) * workload.spec.weight_bytes
    if here.free_bytes is not None and needed > here.free_bytes:
        raise UsageError(
            f"batch {workload.batch} x seq {workload.seq} with hidden_size {workload.spec.hidden_size} and "
            f"intermediate_size {workload.spec.intermediate_size} needs about {needed / 1e9:.1f} GB; "
            f"{here.name} has {here.free_bytes / 1e9:.1f} GB free"
        )


def _wrong(answer: tasks.Qualified) -> str | None:
    accuracy = answer.accuracy
    if accuracy is None or accuracy.ratio <= accuracy.limit:
        return None
    if accuracy.max_error is None or accuracy.rms_error is None:
        return "numerically wrong: its output holds nan or inf where eager's does not"
    return (
        f"numerically wrong: {accuracy.times('eager')} against fp64 "
        f"(max {accuracy.max_error:.2g}, rms {accuracy.rms_error:.2g}; at most {accuracy.limit:g} times is allowed)"
    )


def _graph_notes(answer: tasks.Qualified, launches: dict[str, int]) -> tuple[str, ...]:
    if any("GraphLaunch" in api for api in launches):
        return ("its peak memory leaves out the pool that the CUDA graph reserved when it was captured",)
    if answer.replays_graphs:
        return ("CUDA graphs were requested, but no graph launch was observed",)
    return ()


def _said(row: Row) -> str:
    if row.status != "ok" or row.emulated:
        return f"{row.status}: {row.reason}"
    taken = f", first call {row.setup.first_call_s:.1f} s" if row.setup else ""
    return f"ok: {row.launches.kernels if row.launches else '?'} kernels{taken}"


def _file_name(name: str) -> str:
    """A file name for a backend: its own name, or that of a loose file's class, made unique."""
    if not name.isascii() or not all(letter.isalnum() or letter in "-_" for letter in name):
        kind = "".join(letter for letter in name.rpartition(":")[2] if letter.isascii() and letter.isalnum())
        return f"{kind}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name
