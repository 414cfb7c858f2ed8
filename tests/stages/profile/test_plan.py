"""planned: what `backends` announces is what `profile` does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mlpfusion import backend
from mlpfusion.device import detect
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.stages.profile import plan as plan_profile
from mlpfusion.stages.profile import run as profile_run
from mlpfusion.workers import supervise, tasks

CPU = detect("cpu")
GPU = msgspec.structs.replace(CPU, kind="cuda", runtime="cuda", name="NVIDIA H200", capability=(9, 0))


def spec(**changes: Any) -> MLPSpec:
    return MLPSpec(**{"hidden_size": 32, "intermediate_size": 64, **changes})


@pytest.mark.parametrize("interpret", ["0", "1"])
@pytest.mark.parametrize(
    "asked",
    [spec(), spec(dtype="float32"), spec(dtype="float16", bias=True), spec(hidden_size=24), spec(activation="relu")],
)
def test_a_profile_does_what_is_announced(monkeypatch: pytest.MonkeyPatch, asked: MLPSpec, interpret: str) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", interpret)
    started: dict[str, bool] = {}

    def run(task: Any, **how: Any) -> tasks.Answer:
        started[task.backend] = task.emulate
        return tasks.Broken(kind="failed", reason="not run in this test")

    monkeypatch.setattr(supervise, "run", run)
    names = backend.built_in()
    plans = {name: plan_profile.planned(name, asked, detect("cpu")) for name in names}
    rows = profile_run.profile(Workload(spec=asked, batch=1, seq=2), backends=names, device="cpu").rows
    assert started == {name: plan.status == "emulated" for name, plan in plans.items() if plan.status != "unavailable"}
    for row in rows:
        plan = plans[row.backend]
        assert (row.status == "unavailable") == (plan.status == "unavailable")
        assert plan.status != "unavailable" or row.reason == plan.reason


@pytest.mark.parametrize("name", ["triton", "packed", "fused"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_our_kernels_are_emulated_on_a_cpu_and_raced_on_a_gpu(name: str, dtype: Any) -> None:
    assert plan_profile.planned(name, spec(dtype=dtype), CPU) == (name, "emulated", plan_profile.emulation(16))
    assert plan_profile.planned(name, spec(dtype=dtype), GPU) == (name, "available", None)


def test_what_cannot_be_emulated_in_bfloat16_says_how_it_can() -> None:
    plan = plan_profile.planned("fused", spec(), CPU)
    assert plan.status == "unavailable"
    assert "--dtype float32 or float16" in (plan.reason or "")
    for dtype in ("float32", "float16"):
        assert plan_profile.planned("fused", spec(dtype=dtype), CPU).status == "emulated"


def test_a_check_that_fails_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    class Strange:
        def unsupported(self, spec: MLPSpec, here: object) -> str | None:
            raise LookupError("no idea\nat all")

    monkeypatch.setattr(backend, "load", lambda name: Strange())
    assert plan_profile.planned("strange", spec(), CPU) == (
        "strange",
        "unavailable",
        "its check failed: LookupError: no idea",
    )
