"""The verb `compare`: exit codes, options, and refusals in one line."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from support.command import refused, run
from support.comparisons_made import raced, saved, with_spec
from support.paths import RESULTS
from support.studies_made import recorded

if TYPE_CHECKING:
    from pathlib import Path


Capture = pytest.CaptureFixture[str]


def pair(folder: Path, factor: float, **options: Any) -> tuple[str, str]:
    """A file, and one whose triton takes `factor` times as long."""
    made = (raced({"triton": 0.9 * each}, seed=seed, **options) for seed, each in enumerate((1.0, factor)))
    return tuple(saved(folder, f"{name}.json", each) for name, each in zip("ab", made, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("factor", "options", "code"),
    [
        (1.0, (), 0),
        (0.9, (), 0),
        (1.05, (), 1),
        (1.05, ("--threshold", "10%"), 0),
        (1.05, ("--threshold", "0.1"), 0),
        (1.05, ("--exact",), 0),
        (1.0, ("--strict",), 0),
    ],
)
def test_the_exit_code(tmp_path: Path, capsys: Capture, factor: float, options: tuple[str, ...], code: int) -> None:
    assert run(capsys, "compare", *pair(tmp_path, factor), *options)[0] == code


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--strict",), 1)])
def test_strict_takes_inconclusive_for_a_failure(
    tmp_path: Path, capsys: Capture, options: tuple[str, ...], code: int
) -> None:
    found, out, err = run(capsys, "compare", *pair(tmp_path, 1.0, processes=1), *options)
    assert (found, err) == (code, "")
    assert "inconclusive, one process" in out


def test_json_goes_to_stdout_alone(tmp_path: Path, capsys: Capture) -> None:
    code, out, err = run(capsys, "compare", *pair(tmp_path, 1.05), "--format", "json")
    assert (code, err) == (1, "")
    assert json.loads(out)["kind"] == "comparison"


@pytest.mark.parametrize("fmt", ["json", "github"])
def test_what_others_see_names_no_folder(tmp_path: Path, capsys: Capture, fmt: str) -> None:
    """A comment of a pull request, or an artefact, says nothing of where its maker keeps files."""
    one, other = pair(tmp_path, 1.0)
    folder = tmp_path.name
    for arguments in ((one, other), (f"{one}:triton", f"{other}:triton"), ("--self", one)):
        assert folder not in run(capsys, "compare", *arguments, "--format", fmt)[1]
    shown = json.loads(run(capsys, "compare", one, other, "--format", "json")[1])
    assert {shown["baseline"], shown["candidate"]} == {one.rpartition("/")[2], other.rpartition("/")[2]}
    assert "/a.json" in run(capsys, "compare", one, other)[1]


def test_a_file_against_itself(tmp_path: Path, capsys: Capture) -> None:
    path = saved(tmp_path, "a.json", raced({"triton": 0.9}))
    code, out, _ = run(capsys, "compare", "--self", path)
    assert code == 0
    assert "false alarms: 0 of 10 splits" in out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("a.json",), "compare 'a.json' with what?"),
        (("a.json", "a.json"), "are the same"),
        (("a.json", "a.json:triton"), "are the same"),
        (("--self", "a.json", "b.json"), "one file too many"),
        *(
            (("--self", "a.json", option), f"{option} is for two files")
            for option in ("--exact", "--force", "--strict", "--full")
        ),
        *(
            (("a.json", "b.json", "--exact", option, value), f"{option} is for times, which --exact leaves out")
            for option, value in (("--control", "triton"), ("--control", "none"), ("--threshold", "2%"))
        ),
        *(
            (("--", *sides), "are both stdin, which can be read once")
            for sides in (("-", "-"), ("-:triton", "-:fused"), ("-", "-:triton"), ("-:./mine.py:Mine", "-"))
        ),
        *((sides, "stdin can be read once") for sides in (("-:triton", "-:fused"), ("-", "-:triton"))),
        (("a.json:triton", "a.json:eager", "--control", "nothing"), "valid for --control: eager, triton, none"),
        (("a.json:triton", "b.json:triton", "--control", "nothing"), "valid for --control: eager, triton, none"),
        (("a.json", "b.json", "--format", "csv"), "unknown format 'csv'; valid: text, github, json"),
        (("a.json", "b.json", "--control", "nothing"), "valid for --control: eager, triton, none"),
        *(
            (("a.json", "b.json", "--threshold", bad), f"--threshold {bad!r}")
            for bad in ("0", "x", "100%", "nan", "1e-2", "-1%", "")
        ),
    ],
)
def test_wrong_use_is_one_line(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], said: str
) -> None:
    pair(tmp_path, 1.0)
    monkeypatch.chdir(tmp_path)
    assert said in refused(capsys, "compare", *options)


def _edited(document: dict[str, Any], kind: str) -> str:
    graph = document["rows"][1]["clocks"]["graph_us"]
    if kind == "a bound beyond its samples":
        graph["p80"] = 1e6
    elif kind == "NaN as text":
        graph["median"] = "NaN"
    elif kind == "more kernels than names":
        document["rows"][1]["traffic"] = {"minimum_bytes": 1, "steps": [
            {"op": "mm", "source": "operator", "read_bytes": 1, "write_bytes": 1, "kernels": [99]}]}  # fmt: skip
    elif kind == "a process too many":
        graph["rounds"].append(graph["rounds"][0])
    elif kind == "future":
        document["schema"] = 99
    elif kind == "another kind":
        document["kind"] = "self-test"
    text = json.dumps(document)
    return {"cut short": text[: len(text) // 2], "empty": "", "null": "null"}.get(kind, text)


@pytest.mark.parametrize(
    "kind",
    ["a bound beyond its samples", "NaN as text", "more kernels than names", "a process too many", "future",
     "another kind", "cut short", "empty", "null"],
)  # fmt: skip
@pytest.mark.parametrize("first", [True, False])
def test_a_damaged_file_is_named_in_one_line(tmp_path: Path, capsys: Capture, kind: str, first: bool) -> None:
    good, bad = pair(tmp_path, 1.0)
    path = tmp_path / "b.json"
    path.write_text(_edited(json.loads(path.read_text(encoding="utf-8")), kind), encoding="utf-8")
    assert "b.json" in refused(capsys, "compare", *((bad, good) if first else (good, bad)))


def test_other_files_are_refused(capsys: Capture) -> None:
    good = str(RESULTS / "h200-article.json")
    for name in ("h200-choose-article/plan.json", "h200-traffic.json", "h200-ladder.json", "h200-tiles.json"):
        assert name in refused(capsys, "compare", good, str(RESULTS / name))


def test_profiles_of_a_cpu_and_emulated_rows_are_compared_by_their_facts(tmp_path: Path, capsys: Capture) -> None:
    emulated = {"triton": {"emulated": True, "tokens": 8, "clocks": None}}
    a = saved(tmp_path, "a.json", raced({"triton": 1.0}, clocks=("wall_us",), rows=emulated))
    b = saved(tmp_path, "b.json", raced({"triton": 1.0}, clocks=("wall_us",), rows=emulated, seed=1))
    assert run(capsys, "compare", a, b)[0] == 0


def test_two_folders_of_a_study(tmp_path: Path, capsys: Capture) -> None:
    made = recorded(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    shutil.copy(tmp_path / "b" / "cells" / f"{made.cells[0].file}", tmp_path / "b" / "cells" / "of-before.json")
    for a, b in (("a", "b"), ("a/study.json", "b"), ("a/study.json", "b/study.json")):
        code, out, _ = run(capsys, "compare", str(tmp_path / a), str(tmp_path / b), "--format", "json")
        assert code == 0
        assert len(json.loads(out)["groups"]) == len(made.cells)
    assert "are the same" in refused(capsys, "compare", str(tmp_path / "a"), str(tmp_path / "a" / "study.json"))


# ---- how long it takes -----------------------------------------------------------------------------------------------


def study(folder: Path, rows: int, seed: int) -> str:
    """A folder of profiles with this many rows of all samples, besides eager's."""
    folder.mkdir()
    rng = random.Random(seed)
    names = {f"row{place}": rng.uniform(0.5, 1) for place in range(9)}
    for place in range(rows // 9):
        made = with_spec(raced(names, clocks=("graph_us", "event_us"), seed=seed + place), hidden_size=768 + place)
        saved(folder, f"{place}.json", made)
    return str(folder)


@pytest.mark.full
def test_a_study_of_500_rows_takes_seconds_of_a_core(tmp_path: Path, capsys: Capture) -> None:
    a, b = (study(tmp_path / name, 500, seed) for name, seed in (("a", 0), ("b", 100)))
    start = time.process_time()
    code, out, _ = run(capsys, "compare", a, b, "--format", "github")
    assert time.process_time() - start < 30  # 5 s are meant, of a core that is not shared
    assert code in (0, 1)
    assert len(out) < 65_536


def test_torch_and_numpy_are_not_imported(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'triton', 'numpy', 'scipy', 'mlpfusion_kernels'))); "
        f"from mlpfusion.cli.main import main; sys.exit(main(['compare', *{pair(tmp_path, 1.05)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    assert "triton" in done.stdout


def test_strict_fails_what_nobody_can_tell_and_what_is_gone(tmp_path: Path, capsys: Capture) -> None:
    few = pair(tmp_path, 2.0, rounds=10)
    assert run(capsys, "compare", *few)[0] == 0
    assert run(capsys, "compare", *few, "--strict")[0] == 1
    code, out, _ = run(capsys, "compare", *few, "--strict", "--exact")
    assert code == 0
    assert "in the baseline alone" not in out
    both = saved(tmp_path, "both.json", raced({"triton": 0.9, "fused": 0.7}))
    one = saved(tmp_path, "one.json", raced({"triton": 0.9}, seed=1))
    assert run(capsys, "compare", both, one)[0] == 0
    assert run(capsys, "compare", both, one, "--strict")[0] == 1
    assert run(capsys, "compare", one, both, "--strict")[0] == 0


@pytest.mark.parametrize("verb", ["compare", "table"])
def test_a_pipe_in_a_folder_is_passed_over(tmp_path: Path, capsys: Capture, verb: str) -> None:
    folder, other = tmp_path / "folder", pair(tmp_path, 1.0)[1]
    folder.mkdir()
    saved(folder, "a.json", raced({"triton": 0.9}))
    os.mkfifo(folder / "pipe.json")
    assert run(capsys, verb, str(folder), *([other] if verb == "compare" else []))[0] == 0
