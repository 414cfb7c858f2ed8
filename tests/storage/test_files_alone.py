"""Two runs into one folder: the second is refused in one line, at once or later, and no run leaves an empty one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.paths import RESULTS, ROOT

from mlpfusion.cli.main import main
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.stages.choose import rows
from mlpfusion.stages.choose import run as choose_run
from mlpfusion.stages.profile import run
from mlpfusion.storage import results
from mlpfusion.storage.files import alone

if TYPE_CHECKING:
    from pathlib import Path

SPEC = MLPSpec(hidden_size=8, intermediate_size=8)
WORK = Workload(spec=SPEC, batch=1, seq=1)
RESULT = RESULTS / "h200-choose-article" / "inference-1.json"


def test_a_second_run_into_a_folder_is_refused_while_the_first_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with alone(tmp_path):
        with pytest.raises(run.UsageError, match="another run is writing there"):
            run.profile(WORK, backends=["eager"], device="cpu", out=tmp_path)
        assert main(["profile", "--backends", "eager", "--device", "cpu", "--out", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert list(tmp_path.iterdir()) == []
    with alone(tmp_path):  # it is free again
        pass


def test_a_second_choice_in_a_folder_is_refused_while_the_first_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with alone(tmp_path):
        with pytest.raises(run.UsageError, match="another run is writing there"):
            choose_run.choose(SPEC, tokens=[1], backends=["eager"], device="cpu", out=tmp_path)
        assert main(["choose", "article", "--backends", "eager", "--device", "cpu", "--out", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", [["result.json"], ["eager.trace.json.gz"], ["result.json", "eager.trace.json.gz"]])
def test_what_an_earlier_run_left_is_not_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], left: list[str]
) -> None:
    for name in left:
        (tmp_path / name).write_bytes(RESULT.read_bytes())
    with pytest.raises(run.UsageError, match=f"holds '{left[0]}' of an earlier run"):
        run.profile(WORK, backends=["eager"], device="cpu", out=tmp_path)
    assert main(["profile", "--backends", "eager", "--device", "cpu", "--out", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert repr(str(tmp_path)) in err
    assert "name another directory, or --overwrite" in err
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(left)
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {RESULT.read_bytes()}
    assert results.check_directory(tmp_path, overwrite=True) == tmp_path


@pytest.mark.full  # a whole profile
def test_a_run_that_asks_replaces_what_is_there(tmp_path: Path) -> None:
    (tmp_path / results.RESULT_NAME).write_bytes(RESULT.read_bytes())
    made = run.profile(WORK, backends=["eager"], device="cpu", rounds=2, out=tmp_path, overwrite=True)
    assert results.load(tmp_path / results.RESULT_NAME) == made


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, run.UsageError])
def test_a_run_that_ends_before_it_wrote_leaves_no_folder(tmp_path: Path, error: type[BaseException]) -> None:
    def ends(event: object) -> None:
        raise error

    with pytest.raises(error):
        run.profile(WORK, backends=["eager"], device="cpu", out=tmp_path / "new" / "deep", on_event=ends)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with pytest.raises(error):
        run.profile(WORK, backends=["eager"], device="cpu", out=tmp_path / "mine" / "new", on_event=ends)
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, run.UsageError])
@pytest.mark.parametrize("there", [[], [rows.PLAN_NAME], ["note"], ["note", rows.PLAN_NAME]])
def test_a_choice_that_ends_before_its_first_row_leaves_no_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: list[str], error: type[BaseException]
) -> None:
    def ends(*_: object, **__: object) -> None:
        assert (out / rows.PLAN_NAME).exists()
        raise error

    out = tmp_path / "new" / "deep"
    plan = (RESULT.parent / rows.PLAN_NAME).read_bytes()
    for name in there:
        out.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(plan if name == rows.PLAN_NAME else b"mine")
    monkeypatch.setattr(run, "profile", ends)
    with pytest.raises(error):
        choose_run.choose(SPEC, tokens=[1], backends=["eager"], device="cpu", out=out)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [name for name in there if name == "note"]
    assert out.exists() == bool(there)


def test_a_choice_that_ends_after_a_row_keeps_its_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(*_: object, json: Path, **__: object) -> None:
        json.write_bytes(RESULT.read_bytes())
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "profile", ends)
    with pytest.raises(KeyboardInterrupt):
        choose_run.choose(SPEC, tokens=[1], backends=["eager"], device="cpu", out=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inference-1.json", rows.PLAN_NAME]


def test_a_folder_that_holds_something_stays(tmp_path: Path) -> None:
    with alone(tmp_path / "new" / "deep"):
        (tmp_path / "new" / "note").touch()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["note"]


def test_make_profile_has_a_folder_for_each_run() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "RESULTS := results/$(shell date -u" in text
    assert "profile --out $(RESULTS)" in text
