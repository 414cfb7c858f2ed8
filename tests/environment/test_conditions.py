"""Under which conditions a choice holds, and what of them is different here."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mlpfusion.device import Device, detect
from mlpfusion.environment import conditions, provenance
from mlpfusion.records.choice import Conditions

THEN = Conditions(device="NVIDIA H200", capability=(9, 0), versions={"torch": "2.13.0", "liger-kernel": None})


def test_the_same_has_no_differences() -> None:
    assert conditions.differences(THEN, THEN) == []


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"device": "NVIDIA H100"}, ["NVIDIA H200 (sm_90) there, NVIDIA H100 (sm_90) here"]),
        ({"capability": (10, 0)}, ["NVIDIA H200 (sm_90) there, NVIDIA H200 (sm_100) here"]),
        ({"device": "a CPU", "capability": None}, ["NVIDIA H200 (sm_90) there, a CPU here"]),
        ({"versions": {"torch": "2.14.0", "liger-kernel": None}}, ["torch 2.13.0 there, 2.14.0 here"]),
        ({"versions": {"torch": "2.13.0", "liger-kernel": "1"}}, ["liger-kernel not installed there, 1 here"]),
        ({"versions": {}}, ["torch 2.13.0 there, not installed here"]),
    ],
)
def test_each_difference_is_one_phrase(now: dict[str, object], said: list[str]) -> None:
    assert conditions.differences(THEN, replace(THEN, **now)) == said


def test_what_was_not_named_then_does_not_count() -> None:
    now = replace(THEN, versions={**THEN.versions, "somebody": "1.0"})
    assert conditions.differences(THEN, now) == []
    assert conditions.differences(now, THEN) == ["somebody 1.0 there, not installed here"]


def test_this_machine_has_no_differences_from_itself_and_names_what_runs() -> None:
    here = conditions.conditions(detect("cpu"), ["eager", "triton"])
    assert conditions.differences(here, conditions.conditions(detect("cpu"), ["eager", "triton"])) == []
    assert {"torch", "triton", provenance.OURS, conditions.KERNELS} <= here.versions.keys()
    assert list(here.versions) == sorted(here.versions)


def test_a_distribution_may_be_asked_for_whether_it_is_there_or_not() -> None:
    device = Device(kind="cpu", name="a CPU")
    found = conditions.conditions(device, [], also=["pytest", "no-such-distribution"]).versions
    assert found["pytest"] == pytest.__version__
    assert found["no-such-distribution"] is None


def test_a_change_of_a_kernels_source_is_another_version(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    folder = tmp_path / conditions.KERNELS / "inner"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("")
    (folder / "a.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, conditions.KERNELS, raising=False)
    before = conditions._kernels()
    (folder / "a.py").write_text("x = 2\n")
    assert before is not None
    assert conditions._kernels() not in (None, before)
