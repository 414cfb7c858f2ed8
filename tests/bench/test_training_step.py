"""bench/training_step.py: what is foretold of a step, and what is said where nothing can be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from support.bench import bench
from support.profiles_made import clock, profile, ratio, timed

from mlpfusion.device import detect
from mlpfusion.environment.machine import collect
from mlpfusion.records.breakdown import MLPShare
from mlpfusion.records.clocks import Clocks
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

HALF = MLPShare(layers=6, forward_us=100.0, kernel_share=0.6, call_share=0.5, backward_layers=6, backward_us=150.0)
FASTER = msgspec.structs.replace(HALF, forward_us=80.0, backward_us=120.0)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return bench("training_step")


def step(script: ModuleType, time_ratio: float, **changes: Any) -> Any:
    plain, swapped = clock(100.0), clock(100.0 * time_ratio, ratio_to_eager=ratio(time_ratio))
    facts = {"share": HALF, "swapped_share": FASTER, "mlp_speedup": 1.25, "reason": None} | changes
    return script.Step(mode="eager", plain=plain, swapped=swapped, measured=1 / time_ratio - 1, **facts)


@pytest.mark.parametrize(("time_ratio", "agrees"), [(0.9, True), (0.905, True), (0.88, False), (1.1, False)])
def test_half_of_a_step_that_is_a_quarter_faster_gains_a_ninth(
    script: ModuleType, time_ratio: float, agrees: bool
) -> None:
    found = step(script, time_ratio)
    for gain in (found.foretold, found.foretold_in_step):
        assert gain == pytest.approx(1 / 9)
        assert found.agrees(gain) is agrees


def test_without_a_share_or_a_speedup_nothing_is_foretold(script: ModuleType) -> None:
    assert step(script, 0.9, share=None).foretold is None
    assert step(script, 0.9, mlp_speedup=None).foretold is None
    other = msgspec.structs.replace(FASTER, backward_layers=5)
    for changes in ({"share": None}, {"swapped_share": None}, {"swapped_share": other}):
        assert step(script, 0.9, **changes).foretold_in_step is None
    assert step(script, 0.9).agrees(None) is None


def test_the_speedup_of_one_mlp_is_that_of_its_kernels(script: ModuleType) -> None:
    def row(name: str, us: float | None) -> Any:
        return msgspec.structs.replace(timed(name, 100), clocks=Clocks(kernel_us=us and clock(us)))

    found = profile(row("eager", 300.0), row("compile", 240.0), row("fused", 200.0), row("odd", None))
    assert script.mlp_speedup(found, "eager", "fused") == (1.5, None)
    assert script.mlp_speedup(found, "compile", "fused") == (1.2, None)
    assert script.mlp_speedup(found, "eager", "odd") == (None, "no kernel time of odd in the profile of one MLP")


def test_a_recording_is_a_file_that_table_reads(script: ModuleType, tmp_path: Path) -> None:
    here = detect("cpu")
    workload = Workload(spec=MLPSpec(hidden_size=64, intermediate_size=128), batch=1, seq=8, mode="training")
    found = script.Recording(
        created="2026-01-02T03:04:05+00:00",
        device=here,
        environment=collect(here, {}),
        layers=6,
        workload=workload,
        backend="fused",
        clock="event_us",
        rounds=100,
        steps=(step(script, 0.9), step(script, 0.9, share=None, reason="because")),
    )
    lines = script.render(found).splitlines()[1:]
    assert lines == [
        "eager: 100 -> 90 µs, +11.1%; MLPs 50.0% of the step",
        "  one alone: 1.250x as fast, +11.1% foretold: agrees",
        "  in the step: 1.250x as fast, +11.1% foretold: agrees",
        "eager: 100 -> 90 µs, +11.1%; MLPs ? of the step",
        "  one alone: nothing foretold: because",
        "  in the step: nothing foretold: because",
    ]
    (tmp_path / "a.json").write_bytes(msgspec.json.encode(found))
    assert results.load_any(tmp_path / "a.json").kind == "training-step"
