"""The verb that prints result files: what it refuses, and what it does with several files and -o."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace
from support.command import refused, run
from support.paths import RESULTS
from support.races_made import failed, profile
from support.studies_made import recorded

from mlpfusion.records.profile import Row
from mlpfusion.report.table.render import FORMATS
from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path

CHOSEN = RESULTS / "h200-choose-article"
UNAVAILABLE = Row(backend="liger", status="unavailable", reason="no GPU")


@pytest.fixture
def two(tmp_path: Path) -> tuple[str, str]:
    paths = (tmp_path / "a.json", tmp_path / "b.json")
    for path, tokens in zip(paths, (16, 256), strict=True):
        results.save(profile({"fused": 0.5}, tokens, extra=(UNAVAILABLE,)), path)
    return str(paths[0]), str(paths[1])


@pytest.mark.parametrize("fmt", FORMATS)
def test_one_file_and_two_in_every_format(capsys: pytest.CaptureFixture[str], two: tuple[str, str], fmt: str) -> None:
    for files in (two[:1], two):
        code, out, err = run(capsys, "table", *files, "--format", fmt)
        assert (code, err) == (0, "")
        assert "liger" in out
        assert "no GPU" in out


@pytest.mark.parametrize("args", [("--rows", "eager"), ("--long", "--format", "csv"), ("--format", "latex")])
def test_the_file_of_a_study_gives_the_rows_of_its_cells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...]
) -> None:
    recorded(tmp_path / "study")
    code, out, err = run(capsys, "table", str(tmp_path / "study" / "study.json"), *args)
    assert (code, err) == (0, "")
    assert out == run(capsys, "table", str(tmp_path / "study"), *args)[1]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--format", "xml"], "unknown format 'xml'; valid: text, github, latex, csv, json, html"),
        (["--columns", "speeds"], "unknown column 'speeds'"),
        (["--columns", "status,status"], "--columns names 'status' twice"),
        (["--columns", "speed,"], "has an empty name"),
        (["--rows", "nobody"], "--rows names 'nobody'"),
        (["--baseline", "nobody"], "--baseline 'nobody'"),
        (["--sort", "nothing"], "of --sort"),
        (["--long"], "--long is for --format csv, got 'text'"),
        (["--long", "--format", "csv", "--transpose"], "leave --transpose out"),
        (["--long", "--format", "csv", "--columns", "speed"], "leave --columns out"),
        (["--caption", "c"], "--caption is for --format latex and html"),
        (["--label", "l", "--format", "html"], "--label is for --format latex"),
        (["--label", "a}b", "--format", "latex"], "--label 'a}b' is no label"),
        (["--full", "--sort", "tokens"], "give it or --sort, not both"),
        (["--full", "--format", "html"], "--full is for --format text"),
    ],
)
def test_what_is_no_table_is_refused(
    capsys: pytest.CaptureFixture[str], two: tuple[str, str], args: list[str], said: str
) -> None:
    assert said in refused(capsys, "table", two[0], *args)


def edited(document: dict[str, Any], change: str) -> str:
    row = document["rows"][1]
    if change == "a bound beyond its samples":
        row["clocks"]["event_us"]["p80"] = 1e9
    elif change == "more kernels than names":
        row["launches"]["kernels"] = 99
    elif change == "NaN as text":
        row["clocks"]["event_us"]["median"] = "NaN"
    elif change == "future schema":
        document["schema"] = 99
    elif change == "another kind":
        document["kind"] = "recipe"
    text = json.dumps(document)
    return text[: len(text) // 2] if change == "cut short" else "" if change == "empty" else text


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("change", "place"),
    [
        ("a bound beyond its samples", "$.rows[1].clocks.event_us"),
        ("more kernels than names", "`$.rows[1].launches.kernels`"),
        ("NaN as text", "$.rows[1].clocks.event_us.median"),
        ("future schema", "schema 99"),
        ("another kind", "recipe"),
        ("cut short", "JSON"),
        ("empty", ""),
    ],
)
def test_a_damaged_file_is_named_with_the_place(
    capsys: pytest.CaptureFixture[str], two: tuple[str, str], change: str, place: str, alone: bool
) -> None:
    with open(two[1], encoding="utf-8") as file:
        text = edited(json.load(file), change)
    with open(two[1], "w", encoding="utf-8") as file:
        file.write(text)
    for fmt in ("text", "latex"):
        said = refused(capsys, "table", *(two[1:] if alone else two), "--format", fmt)
        assert repr(two[1]) in said
        assert place in said


@pytest.mark.parametrize("content", [None, "", "{", '{"schema": 9, "kind": "profile"}'])
def test_a_bad_result_file_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "r.json"
    if content is not None:
        path.write_text(content)
    assert "r.json" in refused(capsys, "table", str(path))


def test_a_file_given_twice_is_refused(capsys: pytest.CaptureFixture[str], two: tuple[str, str]) -> None:
    assert "is given twice" in refused(capsys, "table", two[0], two[0])


def test_a_folder_is_one_table_and_the_ranges_of_its_choice(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "table", str(CHOSEN))
    assert (code, err) == (0, "")
    assert out.count("speedup vs eager") == 1
    assert "mean of 5" in out
    assert "\nRanges: choice.json\n" in out


def test_studies_without_a_common_row_are_side_by_side(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name, tokens in (("fused", 16), ("triton", 256)):
        made = profile({name: 0.5}, tokens)
        results.save(replace(made, rows=made.rows[1:]), tmp_path / f"{name}.json")
    code, out, _ = run(capsys, "table", str(tmp_path), "--transpose", "--columns", "event_us")
    assert code == 0
    assert "no backend was measured in all of them" in out


def test_where_every_row_failed_the_table_says_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    results.save(replace(profile({}), rows=(failed("eager", "no GPU"), failed("hub"))), path)
    for fmt in ("latex", "html"):
        code, out, _ = run(capsys, "table", str(path), "--format", fmt)
        assert code == 0
        assert "no row was measured" in out


# ---- -o --------------------------------------------------------------------------------------------------------------


def test_the_table_is_written_to_a_file(
    capsys: pytest.CaptureFixture[str], two: tuple[str, str], tmp_path: Path
) -> None:
    target = tmp_path / "t.tex"
    target.write_text("old")
    assert run(capsys, "table", *two, "--format", "latex", "-o", str(target)) == (0, f"written: {target}\n", "")
    assert target.read_text(encoding="utf-8") == run(capsys, "table", *two, "--format", "latex")[1]


def test_an_input_a_result_a_device_and_a_folder_are_no_output(
    capsys: pytest.CaptureFixture[str], two: tuple[str, str], tmp_path: Path
) -> None:
    link = tmp_path / "link.tex"
    link.symlink_to(two[0])
    before = [open(each, "rb").read() for each in two]  # noqa: SIM115
    for target, said in (
        (two[0], "is an input"),
        (str(link), "is an input"),
        (two[1], "holds a 'profile' of mlpfusion"),
        (os.devnull, "is not a regular file"),
        (str(tmp_path), "is a directory"),
        (str(tmp_path / "no" / "t.tex"), "does not exist"),
        ("", "needs a path"),
        ("-", "needs a path"),
    ):
        assert said in refused(capsys, "table", two[0], "--format", "latex", "-o", target)
    assert [open(each, "rb").read() for each in two] == before  # noqa: SIM115


def test_a_full_disk_keeps_the_old_file(
    capsys: pytest.CaptureFixture[str], two: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "t.tex"
    target.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    code, out, err = run(capsys, "table", *two, "-o", str(target))
    assert (code, out) == (1, "")
    assert "No space left on device" in err
    assert target.read_text() == "old"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.json", "b.json", "t.tex"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device here")
def test_a_full_stdout_is_one_line(two: tuple[str, str]) -> None:
    command = f"{sys.executable} -m mlpfusion table {two[0]} --format latex > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


# ---- in a process of its own -----------------------------------------------------------------------------------------


def test_reading_a_table_needs_no_torch(two: tuple[str, str]) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'triton')))\n"
        "from mlpfusion.cli.main import main\n"
        f"for fmt in {FORMATS!r}: assert main(['table', *sys.argv[1:], '--format', fmt]) == 0\n"
        "assert main(['table', *sys.argv[1:], '--format', 'csv', '--long']) == 0\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *two], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_that_stops_early_is_no_error(tmp_path: Path) -> None:
    results.save(profile({}, extra=(replace(UNAVAILABLE, reason="x" * 200_000),)), tmp_path / "r.json")
    command = f"{sys.executable} -m mlpfusion table {tmp_path / 'r.json'} | head -c 10"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""
