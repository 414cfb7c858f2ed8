"""The self-test: every bad control that can run here is rejected by the check meant for it, every good one accepted."""

from __future__ import annotations

import importlib.util
import inspect
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import pytest
from support import forked, rings
from support.one_by_one import one_by_one
from support.targets_made import verdict_of

from mlpfusion.report import self_test as report
from mlpfusion.spec import DTYPES
from mlpfusion.stages.validate.judge import examine
from mlpfusion.stages.validate.judge import self_test as self_test_judge
from mlpfusion.stages.validate.judge.checks import registry
from mlpfusion.stages.validate.progress import silent
from mlpfusion.stages.validate.run import self_test

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlpfusion.records.validation import Control, Judged, Verdict
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.judge.checks.check import Check

TABLE = self_test_judge.controls()
# Checks that only say what they saw: by them nothing is rejected.
REPORTING = {"rounding", "ulps", "tf32", "exactness"}
REJECTING = {check.name for check in registry.ALL} - REPORTING | {"loads"}
ON_A_GPU = {"offsets"}  # of tensors of 4 GB


# Those of a GPU, which are skipped here, take no time.
CASES = rings.first_of_each(TABLE, lambda control: control.name if control.device == "cuda" else None)
# A good control for each way to name a target. The first ring judges each of them in one dtype, by all checks.
NAMED = {
    (bool(separator), file.endswith(".py")): control
    for control in reversed(TABLE)
    if control.rejected_by is None and control.device != "cuda"
    for file, separator, _ in [control.target.rpartition(":")]
}
GOOD = list(zip(NAMED.values(), DTYPES, strict=True))
# The first bad control of each check, which the first ring judges by that check alone: seconds instead of minutes.
REJECTED = {each.rejected_by: each for each in reversed(TABLE) if each.rejected_by and each.device != "cuda"}


def test_there_are_enough_controls() -> None:
    bad = [control for control in TABLE if control.rejected_by is not None]
    on_a_cpu = [control for control in bad if control.device != "cuda"]
    on_a_gpu = [control for control in bad if control.device == "cuda"]
    assert len(on_a_cpu) >= 24
    assert len(on_a_gpu) >= 6
    assert len(TABLE) - len(bad) >= 6
    assert {control.rejected_by for control in on_a_cpu} == REJECTED.keys() == REJECTING
    assert {control.rejected_by for control in on_a_gpu} >= ON_A_GPU
    assert max(Counter(control.name for control in TABLE).values()) == 1


def test_the_first_ring_judges_three_good_controls() -> None:
    assert len({control.name for control, _ in GOOD}) == 3
    assert {dtype for _, dtype in GOOD} == set(DTYPES)
    assert all(control.rejected_by is None and not control.only for control, _ in GOOD)


@pytest.mark.parametrize("check", [each for each in registry.ALL if each.name in REPORTING], ids=lambda each: each.name)
def test_what_has_no_bad_control_rejects_nothing(check: Check) -> None:
    code = inspect.getsource(check.run)
    assert "failed(" not in code
    assert "hazard(" not in code


@one_by_one(TABLE)
def test_a_control_is_described(control: Control) -> None:
    names = {check.name for check in registry.ALL} | {"loads"}
    assert control.why
    assert set(control.hazards) <= names
    if control.rejected_by is not None:
        assert control.rejected_by in names
        assert control.seen_in
        assert set(control.seen_in) <= set(DTYPES)
    path, separator, name = control.target.rpartition(":")
    if separator and path.endswith(".py"):
        text = (self_test_judge.folder() / path).read_text(encoding="utf-8")
        assert name in text or path == "broken_import.py"


def test_no_control_file_is_left_out_of_the_table() -> None:
    used = {control.target.rpartition(":")[0] for control in TABLE}
    place = self_test_judge.folder()
    assert {path.relative_to(place).as_posix() for path in place.rglob("*.py")} <= used


class Judge:
    """Judges each control once."""

    def __init__(self, bench: examine.Bench) -> None:
        self.bench = bench
        self._judged: dict[str, Judged] = {}

    def __call__(self, control: Control) -> Judged:
        if control.name not in self._judged:
            self._judged[control.name] = self_test_judge.judge(
                self.bench, control, seed=examine.new_seed(), tell=silent
            )
        return self._judged[control.name]

    def verdict(self, name: str) -> Verdict:
        (control,) = (one for one in TABLE if one.name == name)
        judged = self(control)
        assert judged.verdict is not None
        return judged.verdict


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with forked.workers(), examine.Bench("cpu") as bench:
        yield Judge(bench)


@pytest.mark.parametrize("check", REJECTED)
def test_each_check_rejects_a_bad_control_by_itself(check: str, judge: Judge) -> None:
    control = REJECTED[check]
    judged = judge(msgspec.structs.replace(control, name=f"{control.name} by {check}", only=(check,)))
    assert judged.wrong is None
    assert judged.skipped is None


@pytest.mark.parametrize(("control", "dtype"), GOOD, ids=lambda each: getattr(each, "name", each))
def test_a_good_control_is_accepted_by_every_check(control: Control, dtype: Dtype, judge: Judge) -> None:
    path, separator, name = control.target.rpartition(":")
    target = f"{self_test_judge.folder() / path}:{name}" if separator and path.endswith(".py") else control.target
    verdict = verdict_of(judge.bench, target, control.activation, dtypes=(dtype,))
    assert verdict.is_accepted(strict=False)
    assert {check.name for check in verdict.hazards} <= set(control.hazards)
    assert {check.dtype for check in verdict.checks} == {dtype}


@pytest.mark.parametrize("control", CASES, ids=lambda control: control.name)
def test_every_control_gets_the_verdict_that_it_should(control: Control, judge: Judge) -> None:
    """By all checks in one dtype, of which neighbours in the table have others: in three it takes half an hour."""
    if control.only is None:
        dtypes = control.dtypes or control.seen_in or DTYPES
        control = msgspec.structs.replace(control, dtypes=(dtypes[TABLE.index(control) % len(dtypes)],))
    judged = judge(control)
    assert judged.wrong is None
    lacking = control.needs is not None and importlib.util.find_spec(control.needs) is None
    assert (judged.skipped is not None) == (control.device == "cuda" or lacking)


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
def test_what_a_target_did_to_its_worker_is_said_in_words(judge: Judge, name: str, words: str) -> None:
    assert judge.verdict(name).word == "not valid"
    assert words in judge.verdict(name).headline


@pytest.mark.full  # a good control more
def test_forward_only_is_named_and_not_failed(judge: Judge) -> None:
    exact = judge.verdict("exact_exp")
    assert (exact.word, exact.headline) == ("valid", "every check passed; forward only")
    said = {each.name: each for each in exact.checks}
    assert said["differentiable"].sentence.startswith("forward only")
    assert said["backward"].status == "not decidable here"


@pytest.mark.full  # three times workers of its own
def test_the_self_test_judges_all_of_them_and_says_what_was_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    accepted = next(one for one in TABLE if one.rejected_by is None)
    rejected = next(one for one in TABLE if one.name == "exits")
    skipped = next(one for one in TABLE if one.device == "cuda")
    monkeypatch.setattr(self_test_judge, "controls", lambda: (rejected, skipped))
    found = self_test(device="cpu")
    assert [one.control.name for one in found.judged] == [rejected.name, skipped.name]
    assert [one.skipped is not None for one in found.judged] == [False, True]
    assert found.passed
    assert report.summary(found) in report.render(found)
    assert "WRONG" not in report.render(found)
    wrong = msgspec.structs.replace(accepted, name="wrong", target=rejected.target)
    monkeypatch.setattr(self_test_judge, "controls", lambda: (wrong,))
    found = self_test(device="cpu")
    assert not found.passed
    assert "WRONG" in report.render(found)
