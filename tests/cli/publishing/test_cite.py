"""The verbs for what is published, from the command line."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from support.paths import RESULTS

from mlpfusion.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

RECORDED = RESULTS / "h200-profile.json"


def test_a_version_is_cited_without_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cite"]) == 0
    assert capsys.readouterr().out.count("@") == 1


def test_a_file_is_cited_by_its_own_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cite", str(RECORDED)]) == 0
    shown = capsys.readouterr().out
    assert hashlib.sha256(RECORDED.read_bytes()).hexdigest() in shown
    assert "result file h200-profile.json," in shown
    assert str(RESULTS) not in shown


def test_a_result_is_measured_again_by_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", str(RECORDED)]) == 0
    shown = capsys.readouterr().out
    assert f"mlpfusion profile --like {RECORDED} --json rerun.json\n" in shown
    assert f"mlpfusion compare {RECORDED} rerun.json\n" in shown


@pytest.mark.parametrize("verb", ["cite", "reproduce"])
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("-", "stdin has no file"),
        ("no-such.json", "'no-such.json' does not exist"),
        ("", "is a directory"),
        ("bad.json", "is not JSON"),
    ],
)
def test_what_is_no_result_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, name: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.json").write_text("{", "utf-8")
    assert main([verb, name or "."]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert said in err


def test_only_a_profile_is_measured_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", str(RESULTS / "h200-choose-article" / "choice.json")]) == 2
    assert "holds a 'choice'; valid here: 'profile'" in capsys.readouterr().err
