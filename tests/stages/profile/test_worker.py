"""The worker's side of each task, run in this process."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from support.strange_workers import TINY, task_for

from mlpfusion import backend as registry
from mlpfusion.errors import MeasurementError
from mlpfusion.measure import host_load
from mlpfusion.measure.host_load import Reading
from mlpfusion.stages.profile import worker
from mlpfusion.traffic.recording import generated_code
from mlpfusion.workers import tasks

if TYPE_CHECKING:
    from pathlib import Path

LOOSE = """
import torch
class Good:
    name = "good"
    origin = "from here"
    def unsupported(self, spec, device): return None
    def bind(self, mlp): return lambda x: mlp.forward(x)
class Recompiles(Good):
    def bind(self, mlp):
        calls = []
        def call(x):
            calls.append(1)
            if len(calls) == 5: torch.compile(lambda t: t + 1, backend="eager")(x)  # three calls are warm-up
            return mlp.forward(x)
        return call
class SpoilsItsInput(Good):
    def bind(self, mlp): return lambda x: mlp.forward(x.mul_(2))
class SpoilsTheWeights(Good):
    def bind(self, mlp): return lambda x: mlp.forward(x) + 0 * mlp.up_proj.weight.mul_(2).sum()
class WrongTheSecondTime(Good):
    def bind(self, mlp):
        calls = []
        def call(x):
            calls.append(1)
            return mlp.forward(x) * (1 if len(calls) == 1 else 1.5)
        return call
class CannotBeEmulated(Good):
    def unsupported(self, spec, device): return "only on a GPU"
class CanBeEmulated(Good):
    def unsupported(self, spec, device): return None if device.interpreted else "only on a GPU"
"""


@pytest.fixture
def loose(tmp_path: Path) -> str:
    """The beginning of the names of the backends above."""
    path = tmp_path / "loose.py"
    path.write_text(LOOSE, encoding="utf-8")
    return f"{path}:"


def qualify(name: str, folder: Path) -> tasks.Qualified:
    trace = str(folder / "trace.json")
    found = worker.qualify(
        tasks.Qualify(
            backend=name, workload=TINY, device="cpu", seed=0, trace=trace, calls=2, emulate=False, tokens=None
        )
    )
    assert isinstance(found, tasks.Qualified)
    return found


def race(names: tuple[str, ...], folder: Path, rounds: int = 20) -> tasks.Raced:
    progress = str(folder / "progress")
    return worker.race(
        tasks.Race(backends=names, workload=TINY, device="cpu", seed=0, rounds=rounds, progress=progress)
    )


# ---- qualification ---------------------------------------------------------------------------------------------------


def test_what_is_right_has_numbers_a_ledger_and_a_trace(loose: str, tmp_path: Path) -> None:
    found = qualify(f"{loose}Good", tmp_path)
    assert found.unsupported is None
    assert found.accuracy is not None
    assert found.accuracy.ratio == pytest.approx(1)
    assert found.setup is not None
    assert found.setup.first_call_s > 0
    assert found.memory is not None
    assert found.ledger is not None
    assert found.notes == ("from here",)
    assert found.traced
    assert (tmp_path / "trace.json").stat().st_size > 0


@pytest.mark.parametrize(("name", "emulatable"), [("CannotBeEmulated", False), ("CanBeEmulated", True)])
def test_what_refuses_this_device_may_still_be_emulated(
    loose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, emulatable: bool
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET")
    found = qualify(f"{loose}{name}", tmp_path)
    assert found == tasks.Qualified(unsupported="only on a GPU", emulatable=emulatable)


@pytest.mark.parametrize(
    ("name", "what"), [("SpoilsItsInput", "it changes its input"), ("SpoilsTheWeights", "it changes the weights")]
)
def test_inputs_and_weights_are_compared_with_what_was_given(loose: str, tmp_path: Path, name: str, what: str) -> None:
    with pytest.raises(MeasurementError, match=what):
        qualify(f"{loose}{name}", tmp_path)


def test_the_last_call_is_judged_as_well_as_the_first(loose: str, tmp_path: Path) -> None:
    found = qualify(f"{loose}WrongTheSecondTime", tmp_path)
    assert found.accuracy is not None
    assert found.accuracy.ratio > found.accuracy.limit


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        ("shows a path", "failed", "RuntimeError: cannot open file.bin"),
        ("raises", "failed", "ValueError: first line"),
        ("refuses", "unavailable", "not today"),
    ],
)
def test_whatever_is_raised_is_an_answer(tmp_path: Path, body: str, kind: str, reason: str) -> None:
    assert worker._answer(task_for(body, tmp_path)) == tasks.Broken(kind=kind, reason=reason)  # type: ignore[arg-type]


# ---- fallbacks -------------------------------------------------------------------------------------------------------


def test_what_compiled_something_did_not_fall_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated_code, "graphs_compiled", lambda: 1)
    assert worker._fell_back(registry.load("compile")) is None


@pytest.mark.parametrize("name", registry.built_in())
def test_what_a_fallback_looks_like_is_known_to_the_class(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(generated_code, "graphs_compiled", lambda: 0)
    made = registry.load(name)
    assert (worker._fell_back(made) is not None) == name.startswith("compile")
    assert getattr(made, "replays_graphs", False) == (name in {"compile-cudagraphs", "fused-graph"})


# ---- the race --------------------------------------------------------------------------------------------------------


def test_a_race_samples_all_and_says_who_compiled_meanwhile(loose: str, tmp_path: Path) -> None:
    names = ("eager", f"{loose}Good", f"{loose}Recompiles")
    found = race(names, tmp_path)
    assert {(each.backend, len(each.values)) for each in found.samples if each.clock == "wall_us"} == {
        (name, 20) for name in names
    }
    assert found.no_graph == dict.fromkeys(names, "CUDA graphs need a GPU")
    assert found.invalid == {names[2]: "recompiled inside the measured window (1 graphs)"}
    assert (tmp_path / "progress").read_text() in names  # whoever was at work last


def test_a_race_reports_the_background_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([Reading(10.0, 50.0, 5.0, 4), Reading(12.0, 54.0, 7.0, 4)])
    monkeypatch.setattr(host_load, "read", lambda: next(readings))
    assert race(("eager",), tmp_path).neighbours == pytest.approx((4.0 - 2.0) / (2.0 * 4))


# ---- the process -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [False, True])
def test_an_answer_is_written_whole_and_only_counting_lets_the_process_end_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: bool
) -> None:
    """What counts under a profiler must run down, for that profiler to collect."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    monkeypatch.setattr(worker, "_answer", lambda task: tasks.Broken(kind="failed", reason=task.device))
    task: tasks.Task = task_for("supports", tmp_path)
    if count:
        task = tasks.Count(backends=("eager",), workload=TINY, device="cpu", seed=0)
    (tmp_path / "task.json").write_bytes(tasks.encode(task))
    worker.work(tmp_path / "task.json", tmp_path / "answer.json")
    answer = tasks.decode_answer((tmp_path / "answer.json").read_bytes())
    assert answer == tasks.Broken(kind="failed", reason="cpu")
    assert codes == ([] if count else [0])
    assert not (tmp_path / "answer.partial").exists()
