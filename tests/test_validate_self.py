"""The self-test: every bad control that can run here is rejected by the check meant for it, every good one accepted."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mlpfusion.report import controls as report
from mlpfusion.spec import DTYPES
from mlpfusion.validate import controls, registry
from mlpfusion.validating import self_test

if TYPE_CHECKING:
    from mlpfusion.verdicts import SelfTest, Verdict

TABLE = controls.controls()
# One for each check that a hazard of a kernel can run into.
HAZARDS = {
    "inputs-kept",
    "written",
    "second-backward",
    "double-backward",
    "results-kept",
    "layouts",
    "compile",
    "autocast",
    "checkpoint",
    "saved-kept",
}


def test_there_are_enough_controls() -> None:
    bad = [control for control in TABLE if control.rejected_by is not None]
    on_a_cpu = [control for control in bad if control.device != "cuda"]
    on_a_gpu = [control for control in bad if control.device == "cuda"]
    assert len(on_a_cpu) >= 24
    assert len(on_a_gpu) >= 6
    assert len(TABLE) - len(bad) >= 6
    assert {control.rejected_by for control in on_a_cpu} >= HAZARDS
    assert max(Counter(control.name for control in TABLE).values()) == 1


@pytest.mark.parametrize("control", TABLE, ids=lambda control: control.name)
def test_a_control_is_described(control: controls.Control) -> None:
    names = {check.name for check in registry.ALL} | {"loads"}
    assert control.why
    assert set(control.hazards) <= names
    if control.rejected_by is not None:
        assert control.rejected_by in names
        assert control.seen_in
        assert set(control.seen_in) <= set(DTYPES)
    path, separator, name = control.target.rpartition(":")
    if separator and path.endswith(".py"):
        text = (controls.folder() / path).read_text(encoding="utf-8")
        assert name in text or path == "broken_import.py"


def test_no_control_file_is_left_out_of_the_table() -> None:
    used = {control.target.rpartition(":")[0] for control in TABLE}
    assert {path.name for path in Path(controls.folder()).glob("*.py")} <= used


@pytest.fixture(scope="module")
def found() -> SelfTest:
    return self_test(device="cpu")


def verdict(found: SelfTest, name: str) -> Verdict:
    (judged,) = (one for one in found.judged if one.control.name == name)
    assert judged.verdict is not None
    return judged.verdict


def test_every_control_gets_the_verdict_that_it_should(found: SelfTest) -> None:
    wrong = {one.control.name: one.wrong for one in found.judged if one.wrong is not None}
    assert wrong == {}
    assert found.passed
    skipped = {one.control.name for one in found.judged if one.skipped is not None}
    expected = {control.name for control in TABLE if control.device == "cuda"}
    if importlib.util.find_spec("liger_kernel") is None:
        expected |= {"liger"}
    assert skipped == expected
    text = report.render(found)
    assert report.summary(found) in text
    assert "WRONG" not in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("crashes", "was killed by SIGSEGV"),
        ("exits", "exited with code 3"),
        ("hangs", "no answer within 5 s"),
        ("too_much_memory (host)", "runs out of memory"),
        ("wrong_shape", "returns shape () for (8, 256)"),
        ("anything", "ModuleNotFoundError"),
    ],
)
def test_what_a_target_did_to_its_worker_is_said_in_words(found: SelfTest, name: str, words: str) -> None:
    assert verdict(found, name).word == "not valid"
    assert words in verdict(found, name).headline


def test_forward_only_is_named_and_not_failed(found: SelfTest) -> None:
    exact = verdict(found, "exact_exp")
    assert (exact.word, exact.headline) == ("valid", "every check passed; forward only")
    said = {each.name: each for each in exact.checks}
    assert said["differentiable"].sentence.startswith("forward only")
    assert said["backward"].status == "not decidable here"
