"""The worker's probes of speed: what a trace says of each kernel, who races whom, and Inductor's code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.one_worker import GIVEN, RIGHT
from support.runs_made import run_of
from torch import Tensor
from torch.nn import functional

from mlpfusion.measure import clocks, tracer
from mlpfusion.records.clocks import Samples
from mlpfusion.stages.validate.worker import speed_probes
from mlpfusion.stages.validate.worker.probes import PROBES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def product(gate: Tensor, up: Tensor) -> Tensor:
    return functional.gelu(gate, approximate="tanh") * up


class Trace:
    """The events of a trace, made one by one."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def call(self, start: float, end: float, category: str = "user_annotation") -> None:
        self.events.append({"name": tracer.CALL, "cat": category, "ts": start, "dur": end - start})

    def kernel(self, name: str, launched: float, start: float, us: float, *, by: str = "cuda_runtime") -> None:
        number = len(self.events)
        self.events += [
            {"name": "launch", "cat": by, "ts": launched, "args": {"correlation": number}},
            {
                "name": name,
                "cat": "kernel",
                "ts": start,
                "dur": us,
                "args": {"correlation": number, "registers per thread": 32, "shared memory": 1024},
            },
        ]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Trace], dict[str, Any]]:
    """What `traced` reports of a trace."""

    def facts(trace: Trace) -> dict[str, Any]:
        def record(call: Callable[[], object], path: Path, **_: Any) -> None:
            path.write_text(json.dumps({"traceEvents": trace.events}))

        monkeypatch.setattr(tracer, "record", record)
        options = {"trace": str(tmp_path / "trace.json"), "calls": 3}
        return speed_probes.traced(run_of(product), GIVEN, options)[1]

    return facts


def test_a_kernel_belongs_to_the_call_that_launched_it_whenever_it_runs(
    traced: Callable[[Trace], dict[str, Any]],
) -> None:
    trace = Trace()
    for index, us in enumerate((5.0, 7.0, 6.0)):
        start = 100.0 * index
        trace.kernel("flush", start + 1, start + 2, 1.0)
        trace.call(start + 10, start + 20)
        trace.call(start + 10, start + 30, "gpu_user_annotation")
        trace.kernel("first", start + 11, start + 21, us)
        trace.kernel("second", start + 12, start + 40, 2 * us, by="cuda_driver")
    assert traced(trace) == {
        "kernels": [
            {"name": "first", "time_us": 6.0, "registers": 32, "shared_bytes": 1024},
            {"name": "second", "time_us": 12.0, "registers": 32, "shared_bytes": 1024},
        ],
        "calls": 3,
    }


def test_calls_with_other_kernels_than_the_first_are_left_out(traced: Callable[[Trace], dict[str, Any]]) -> None:
    trace = Trace()
    for index, name in enumerate(("act", "act", "autotune")):
        trace.call(100.0 * index, 100.0 * index + 10)
        trace.kernel(name, 100.0 * index + 1, 100.0 * index + 3, 4.0 + index)
    found = traced(trace)
    assert found["calls"] == 2
    assert [each["time_us"] for each in found["kernels"]] == [4.5]


def test_a_trace_without_calls_has_no_kernels(traced: Callable[[Trace], dict[str, Any]]) -> None:
    assert traced(Trace()) == {"kernels": [], "calls": 0}


def test_on_a_cpu_a_real_trace_has_no_kernels(tmp_path: Path) -> None:
    run = run_of(product)
    options = {"trace": str(tmp_path / "trace.json"), "calls": 2}
    assert speed_probes.traced(run, GIVEN, options) == ({}, {"kernels": [], "calls": 2})
    assert run.pins.asked == [None, 0]  # type: ignore[attr-defined]  # the autotuner's choice while it runs


def test_a_race_is_of_the_target_and_all_baselines_without_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[bool] = []

    def counted(gate: Tensor, up: Tensor) -> Tensor:
        called.append(torch.is_grad_enabled())
        return product(gate, up)

    raced: list[Any] = []

    def race(contenders: list[clocks.Contender], here: object, **how: Any) -> list[Samples]:
        raced.extend([[each.name for each in contenders], how["rounds"], how["seed"]])
        return [Samples(backend=contenders[0].name, clock="event_us", l2="cold", values=(1.0, 2.0))]

    def capture(name: str, step: Callable[[], object]) -> clocks.Contender:
        step()
        return clocks.Contender(name, step, None, None if name == "target" else "it synchronises")

    monkeypatch.setattr(clocks, "capture", capture)
    monkeypatch.setattr(clocks, "race", race)
    run = run_of(counted)
    options = {"peers": ["@eager:act_mul"], "activation": "gelu_tanh", "rounds": 30, "seed": 5}
    other = {f"other:{name}": value.flip(0) for name, value in GIVEN.items()}
    tensors, facts = speed_probes.raced(run, GIVEN | other, options)
    assert torch.allclose(tensors["timed"], torch.cat((RIGHT, RIGHT)))
    assert torch.allclose(tensors["fresh"], torch.cat((RIGHT.flip(0), RIGHT.flip(0))))
    assert facts == {
        "calls": speed_probes.WARMUPS + 1,
        "samples": [["target", "event_us", [1.0, 2.0]]],
        "no_graph": {"@eager:act_mul": "it synchronises"},
    }
    assert raced == [["target", "@eager:act_mul"], 30, 5]
    assert called == [False] * (speed_probes.WARMUPS + 2)
    assert run.pins.asked == [None, 0]  # type: ignore[attr-defined]


def test_the_generated_code_comes_with_what_it_computed() -> None:
    tensors, facts = speed_probes.generated(run_of(torch.compile(product)), GIVEN, {})
    assert torch.allclose(tensors["y"], RIGHT)
    assert any("cpp_fused" in source for source in facts["sources"])


def test_no_probe_has_the_name_of_another() -> None:
    assert set(PROBES) & set(speed_probes.SPEED_PROBES) == set()
