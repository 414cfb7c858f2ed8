"""Every file that a verb or a script has written is shown by `table`, whatever its kind, and so is a folder of them."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from support.command import refused, run
from support.paths import RESULTS

from mlpfusion.report.table import result as report
from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path

FILES = sorted(RESULTS.rglob("*.json"))
SMALL = [path for path in FILES if path.stat().st_size < 100_000]


def shown(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    code, out, err = run(capsys, "table", *args)
    assert (code, err) == (0, "")
    return out


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(RESULTS)))
def test_every_recorded_file_has_a_schema_a_kind_and_a_table(path: Path) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    assert list(document)[:2] == ["schema", "kind"]
    found = results.load_any(path)
    assert found.kind == document["kind"]
    assert len(report.render(found, source=str(path)).splitlines()) > 3


@pytest.mark.parametrize("path", SMALL, ids=lambda path: str(path.relative_to(RESULTS)))
@pytest.mark.parametrize("fmt", ["github", "csv", "json"])
def test_in_every_format(path: Path, fmt: str) -> None:
    found = results.load_any(path)
    text = report.render(found, fmt, source=str(path))
    assert text.endswith("\n")
    if fmt == "json":
        assert json.loads(text)
    if fmt == "csv":
        heads, *lines = list(csv.reader(io.StringIO(text)))
        assert lines
        assert {len(line) for line in lines} == {len(heads)}


def test_several_profiles_in_one_file(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, str(RESULTS / "h200-traffic.json"))
    assert out.startswith("article\n\n")
    assert "\nlarge\n\n" in out


def test_the_whole_of_a_profile_is_asked_of_profiles_alone(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("h200-choose-article/choice.json", "h200-fused.json"):
        said = refused(capsys, "table", str(RESULTS / name), "--full")
        assert f"--full is for profiles, and {str(RESULTS / name)!r} holds a " in said


def test_a_folder_without_results(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "deep").mkdir()
    assert f"folder {str(tmp_path)!r} holds no file of mlpfusion" in refused(capsys, "table", str(tmp_path))


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        ("validation", {"verdicts": 3}),
        ("self-test", {"judged": [{}]}),
        ("tuning", {"answers": {}}),
        ("proof", {"speed": []}),
        ("choice plan", {"rounds": 0}),
        ("traffic", {"profiles": {"a": {"schema": 9, "kind": "profile"}}}),
        ("traffic", {"profiles": {"a": {"schema": 1, "kind": "choice"}}}),
        ("traffic", {"profiles": {"a": 3}}),
        ("traffic", {"profiles": []}),
        ("traffic", {}),
        ("nothing of ours", {}),
    ],
)
def test_a_damaged_file_of_any_kind_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str, document: dict[str, Any]
) -> None:
    path = tmp_path / "file.json"
    path.write_text(json.dumps({"schema": 1, "kind": kind, **document}))
    assert repr(str(path)) in refused(capsys, "table", str(path))
    assert "file.json" in refused(capsys, "table", str(tmp_path)) or kind == "nothing of ours"


@pytest.mark.parametrize("kind", ["fused", "validation", "proof", "tuning", "traffic"])
def test_a_newer_file_of_any_kind_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file.json"
    path.write_text(json.dumps({"schema": 99, "kind": kind, "mlpfusion": "9.1.0"}))
    assert "with schema 99; this one reads up to" in refused(capsys, "table", str(path))
