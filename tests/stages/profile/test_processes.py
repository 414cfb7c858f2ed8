"""A race in several processes: what each adds to the rows, what one that dies takes away, and other kernels."""

from __future__ import annotations

import functools
import gzip
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from support.paths import DATA

from mlpfusion.device import Device
from mlpfusion.measure import turns
from mlpfusion.records.clocks import Clocks, Samples
from mlpfusion.records.profile import Row
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.stages.profile import processes, race
from mlpfusion.trace.analysis.kernels import analyse, analyse_work
from mlpfusion.trace.read import kineto, launch_configs
from mlpfusion.workers import supervise, tasks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HERE = Device(kind="cuda", name="NVIDIA H200", runtime="cuda")
NAMES = ("eager", "compile", "triton")
TRACES = {name: DATA / f"h200_{name}.json.gz" for name in (*NAMES, "compile_max_autotune")}


@functools.cache
def row(name: str) -> Row:
    configs = launch_configs.read(TRACES[name])
    found, _ = analyse_work(kineto.read(TRACES[name]), device="cuda", configs=configs)
    return Row(backend=name, status="ok", kernels=found.kernels, clocks=race.before_the_race(name, found, HERE))


class Workers:
    """Stands in for `supervise.run`: each process is 1% slower than the one before, unless it dies."""

    fill = b"Memset (Device)"

    def __init__(
        self, dies: dict[int, str] | None = None, others: dict[int, str] | None = None, other: str = "eager"
    ) -> None:
        self.dies, self.others, self.other = dies or {}, others or {}, other
        self.raced: list[tuple[str, ...]] = []
        self.fresh: list[bool] = []
        self.process = 1

    def __call__(self, task: tasks.Task, *, fresh: bool, **options: Any) -> tasks.Answer:
        assert isinstance(task, tasks.Race)
        self.raced.append(task.backends)
        self.fresh.append(fresh)
        doomed = self.dies.get(self.process)
        if doomed in task.backends:
            _write(task.progress, str(doomed).encode())
            return tasks.Broken(kind="failed", reason="the worker was killed by SIGSEGV")
        for place, name in enumerate(task.backends if task.traces is not None else ()):
            seen = self.others.get(self.process, name) if name == self.other else name
            text = gzip.decompress(TRACES[seen].read_bytes()).replace(b"Memset (Device)", self.fill)
            _write(f"{task.traces}/{place}.trace.json", text)
        base = 100.0 * 1.01**self.process
        self.process += 1
        times = tuple(base + index / 8 for index in range(task.rounds))
        clocks = ("wall_us", "event_us", "host_us", "idle_host_us")
        samples = [
            Samples(backend=name, clock=clock, l2="cold", values=times) for name in task.backends for clock in clocks
        ]
        return tasks.Raced(samples=tuple(samples), no_graph={}, invalid={}, neighbours=0.02)


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def raced(
    monkeypatch: pytest.MonkeyPatch, folder: Path, workers: Callable[..., tasks.Answer], number: int
) -> tuple[processes.Finished, list[processes.Finished], list[str]]:
    monkeypatch.setattr(supervise, "run", workers)
    said: list[str] = []
    seen: list[processes.Finished] = []
    field = processes.Field(
        workload=Workload(spec=MLPSpec(hidden_size=8, intermediate_size=16), batch=1, seq=4),
        here=HERE,
        folder=folder,
        rounds=20,
        processes=number,
        calls=20,
        seed=0,
        time_limit_s=1.0,
        tell=lambda backend, text: said.append(text),
    )
    return processes.race_all({name: row(name) for name in NAMES}, field, seen.append), seen, said


def test_each_process_adds_its_rounds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, seen, said = raced(monkeypatch, tmp_path, workers := Workers(), 3)
    assert workers.raced == [NAMES] * 3
    assert workers.fresh == [True] * 3
    assert [len(each.processes) for each in seen] == [1, 2, 3]
    for name, each in found.rows.items():
        clock = each.clocks.event_us
        assert [len(rounds) for rounds in clock.rounds] == [20] * 3
        assert clock.rounds[1][0] == pytest.approx(102.01)
        assert (clock.n, clock.dropped) == (60, 0)
        kernel = analyse(kineto.read(TRACES[name]), device="cuda").kernel_us
        assert each.clocks.kernel_us.rounds == (kernel,) * 3
    assert [each.neighbours for each in found.processes] == [0.02] * 3
    assert "in process 2 of 3" in said[2]


def test_one_process_is_a_fork_and_traces_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _, said = raced(monkeypatch, tmp_path, workers := Workers(), 1)
    assert workers.fresh == [False]
    assert found.rows["eager"].clocks.kernel_us == row("eager").clocks.kernel_us
    assert said == ["eager, compile, triton: 20 interleaved rounds", "done"]


@pytest.mark.parametrize("dies", [1, 2, 3])
def test_what_dies_is_named_and_what_was_finished_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dies: int
) -> None:
    found, _, _ = raced(monkeypatch, tmp_path, workers := Workers(dies={dies: "compile"}), 3)
    rest = ("eager", "triton")
    assert workers.raced == [*[NAMES] * dies, *[rest] * (4 - dies)]
    assert found.rows["compile"].status == "failed"
    assert found.rows["compile"].reason == (
        f"the race failed in process {dies} of 3 while this backend ran, as it did not alone: "
        "the worker was killed by SIGSEGV"
    )
    for name in rest:
        assert found.rows[name].status == "ok"
        assert [len(rounds) for rounds in found.rows[name].clocks.event_us.rounds] == [20] * 3
    clock = found.rows["compile"].clocks.event_us
    if dies == 1:
        assert clock is None
    else:
        kept = 20 * (dies - 1)
        assert (clock.n, clock.dropped) == (kept, 60 - kept)
        assert clock.rounds[dies - 1 :] == ((None,) * 20,) * (4 - dies)
        assert clock.is_paired


def test_when_all_die_the_finished_processes_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Unnamed(Workers):
        def __call__(self, task: tasks.Task, **options: Any) -> tasks.Answer:
            if self.process == 2:
                return tasks.Broken(kind="failed", reason="no answer within 3 s")
            return super().__call__(task, **options)

    found, _, _ = raced(monkeypatch, tmp_path, Unnamed(), 3)
    assert len(found.processes) == 1
    for each in found.rows.values():
        assert each.status == "failed"
        assert len(each.clocks.event_us.rounds) == 1


def test_a_process_that_ran_other_kernels_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _, _ = raced(monkeypatch, tmp_path, Workers(others={2: "compile"}), 3)
    others = tuple(kernel.name for kernel in row("compile").kernels)
    assert [each.kernels for each in found.processes] == [{}, {"eager": others}, {}]
    (note,) = found.rows["eager"].notes
    assert note.startswith("process 2 of 3 ran other kernels")
    assert found.rows["compile"].notes == ()


def test_a_process_whose_tuner_chose_another_launch_of_one_name_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workers = Workers(others={2: "compile_max_autotune"}, other="compile")
    found, _, _ = raced(monkeypatch, tmp_path, workers, 2)
    names = tuple(kernel.name for kernel in row("compile").kernels)
    assert [each.kernels for each in found.processes] == [{}, {"compile": names}]
    (note,) = found.rows["compile"].notes
    assert note.startswith("process 2 of 2 ran other kernels")


def test_a_fill_whose_memory_the_profiler_did_not_know_is_no_other_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workers = Workers()
    workers.fill = b"Memset (Unknown)"
    found, _, _ = raced(monkeypatch, tmp_path, workers, 2)
    assert [each.kernels for each in found.processes] == [{}, {}]


def test_kernels_of_a_row_that_does_not_say_how_they_were_launched_are_compared_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(launch_configs, "read", lambda source: {})
    found, _, _ = raced(monkeypatch, tmp_path, Workers(others={2: "compile_max_autotune"}, other="compile"), 2)
    assert [each.kernels for each in found.processes] == [{}, {}]


def test_a_trace_that_cannot_be_had_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Untraced(Workers):
        def __call__(self, task: tasks.Task, **options: Any) -> tasks.Answer:
            answer = super().__call__(task, **options)
            return replace(answer, untraced={"eager": "its trace cannot be written: No space left on device"})

    found, _, _ = raced(monkeypatch, tmp_path, Untraced(), 2)
    assert [each.reasons for each in found.processes] == [
        {"kernels of eager": "its trace cannot be written: No space left on device"}
    ] * 2
    assert found.rows["eager"].clocks.kernel_us == row("eager").clocks.kernel_us


def test_a_row_of_an_earlier_run_is_as_before_its_race(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found, _, _ = raced(monkeypatch, tmp_path, Workers(), 1)
    assert race.unraced(found.rows["eager"]) == row("eager")
    assert race.unraced(row("eager")) == row("eager")
    (tmp_path / "several").mkdir()
    several, _, _ = raced(monkeypatch, tmp_path / "several", Workers(), 2)
    clocks = race.unraced(several.rows["eager"]).clocks
    assert (clocks.kernel_us, set(clocks.reasons)) == (None, {"wall_us", "event_us", "graph_us", "kernel_us"})
    emulated = Row(backend="x", status="ok", clocks=Clocks(reasons={"wall_us": "emulated"}))
    assert race.unraced(emulated) == emulated


def test_a_races_time_limit_does_not_count_its_waits_and_one_that_dies_waits_no_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    waits = tmp_path / "waits"
    monkeypatch.setenv(turns.WAITS, str(waits))
    workers, given = Workers(dies={1: "compile"}), []

    def run(task: tasks.Task, *, waited: Callable[[], float], **options: Any) -> tasks.Answer:
        given.append(waited())
        answer = workers(task, **options)
        if isinstance(answer, tasks.Broken):
            waits.write_text("0.0\n")  # as of a process that died while it waited
        return answer

    raced(monkeypatch, tmp_path, run, 1)
    assert given[0] == 0
    assert given[1] > 0
    assert turns.waited() == given[1]
