"""What changed since an earlier validation, and files that it cannot be compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from support.checks_made import checked, validation
from support.paths import RESULTS

from mlpfusion.cli.main import main
from mlpfusion.errors import UsageError
from mlpfusion.records.validation import Checked, Verdict
from mlpfusion.stages.validate.since import earlier, since
from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path


def found(name: str, status: str = "pass", **changes: Any) -> Checked:
    return msgspec.structs.replace(checked(name, status), **{"dtype": "float32", **changes})


def verdict(*checks: Checked, target: str = "t.py:f", word: str = "not valid") -> Verdict:
    return Verdict(target=target, kind="act_mul", activation="silu", word=word, headline="", checks=checks)  # type: ignore[arg-type]


FAIL, PASS = found("function", "fail"), found("function")
UNDECIDED = found("function", "not decidable here")
HAZARD = msgspec.structs.replace(checked("function", "reported", hazard=True), dtype="float32")


@pytest.mark.parametrize(
    ("then", "now", "where"),
    [
        (PASS, FAIL, "new"),
        (None, FAIL, "new"),
        (PASS, HAZARD, "new"),
        (FAIL, PASS, "mended"),
        (HAZARD, PASS, "mended"),
        (FAIL, UNDECIDED, "not_judged"),
        (FAIL, None, "not_judged"),
        (FAIL, FAIL, None),
        (PASS, PASS, None),
        (PASS, UNDECIDED, None),
    ],
)
def test_a_fault_is_new_mended_or_not_judged(then: Checked | None, now: Checked | None, where: str | None) -> None:
    old, new = (verdict(*([] if each is None else [each])) for each in (then, now))
    (changed,) = since(validation(old), validation(new)).targets
    counts = {name: len(getattr(changed, name)) for name in ("new", "mended", "not_judged")}
    assert counts == {name: int(name == where) for name in counts}


def test_another_dtype_is_another_fault() -> None:
    other = found("function", "fail", dtype="bfloat16")
    (changed,) = since(validation(verdict(FAIL)), validation(verdict(PASS, other))).targets
    assert (changed.new, changed.mended) == ((other,), (FAIL,))


def test_other_versions_devices_and_bounds_are_told() -> None:
    then, now = validation(verdict(), bounds={"score": 2.0}), validation(verdict(), bounds={"score": 3.0})
    now = msgspec.structs.replace(
        now,
        environment=msgspec.structs.replace(now.environment, torch="9.9"),
        device=msgspec.structs.replace(now.device, name="another"),
    )
    said = since(then, now).made_with
    assert "the bound score was 2.0, is 3.0" in said
    assert f"torch was {then.environment.torch}, is 9.9" in said
    assert f"device was {then.device.name}, is another" in said
    assert since(then, then).made_with == ()
    assert since(validation(verdict()), then).made_with == ("the bounds of then are not recorded",)


def test_what_cannot_be_compared_is_refused_in_one_line(tmp_path: Path) -> None:
    old = tmp_path / "verdict.json"
    old.write_text(results.encode(validation(verdict())), encoding="utf-8")
    assert earlier(old, ["t.py:f"], "silu").verdicts[0].target == "t.py:f"
    for targets, activation, words in (
        (["t.py:f", "other"], "silu", "has no verdict on 'other'; it has: t.py:f"),
        (["t.py:g"], "silu", "has no verdict on 't.py:g'"),
        (["t.py:f"], "gelu", "judged t.py:f as silu, not as gelu"),
    ):
        with pytest.raises(UsageError, match=words) as refused:
            earlier(old, targets, activation)
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (RESULTS / "h200-profile.json", "is a profile"),
        (RESULTS / "h200-validate.json.gz", "is a validation-set"),
        ("no.json", "no.json"),
    ],
)
def test_another_kind_of_file_is_refused_before_anything_is_judged(
    capsys: pytest.CaptureFixture[str], file: object, words: str
) -> None:
    assert main(["validate", "eager", "--device", "cpu", "--since", str(file)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("fmt", ["csv", "json"])
def test_it_is_said_in_words_alone(capsys: pytest.CaptureFixture[str], fmt: str) -> None:
    assert main(["validate", "eager", "--since", "x.json", "--format", fmt]) == 2
    assert f"not {fmt}" in capsys.readouterr().err


@pytest.mark.parametrize("was", ["planted/t.py:f", "t.py:f"])
def test_a_target_is_found_by_the_name_that_the_file_has(was: str, tmp_path: Path) -> None:
    results.save(validation(verdict(PASS, target=was)), tmp_path / "then.json")
    then = earlier(tmp_path / "then.json", ["planted/t.py:f"], "silu")
    assert then.verdicts[0].target == "t.py:f"
    (changed,) = since(then, validation(verdict(FAIL, target="planted/t.py:f"))).targets
    assert (changed.target, changed.new) == ("t.py:f", (FAIL,))
