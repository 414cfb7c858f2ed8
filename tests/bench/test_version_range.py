"""The outcomes of the suite over versions of Python, torch and triton: read from pytest, kept, told in docs."""

from __future__ import annotations

import re

import pytest
from support.bench import bench
from support.paths import ROOT

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

version_range = bench("version_range")
Run, Outcomes, outcome, told = version_range.Run, version_range.Outcomes, version_range.outcome, version_range.told
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

PRINTED = """
..F.E                                     [100%]
=========================== short test summary info ============================
FAILED tests/test_a.py::test_one[x - y] - AssertionError: a
FAILED tests/test_a.py::test_two
ERROR tests/test_b.py::test_three - RuntimeError
2 failed, 3 passed, 4 skipped, 5 warnings, 1 error in 12.34s (0:00:12)
"""


def run(*failures: str, files: tuple[str, ...] = (), commit: str = "a" * 40):
    seen = {"python": "3.13.0", "torch": "2.15.0", "triton": "3.9.0"}
    return Run(versions=seen, commit=commit, finished="now", files=files, passed=1000, failed=len(failures), skipped=2,
               failures=failures)  # fmt: skip


def release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def test_counts_and_names_are_read_from_what_pytest_prints() -> None:
    passed, failed, skipped, names = outcome(PRINTED)
    assert (passed, failed, skipped) == (3, 3, 4)
    assert names == ("tests/test_a.py::test_one[x - y]", "tests/test_a.py::test_two", "tests/test_b.py::test_three")


@pytest.mark.parametrize("printed", ["", "...... [ 50%]\n", "KeyboardInterrupt\n"])
def test_a_run_that_did_not_end_is_none(printed: str) -> None:
    with pytest.raises(ValueError, match="did not come to its end"):
        outcome(printed)


def test_a_repair_closes_the_failures_of_the_files_that_were_run_again_and_no_others() -> None:
    first = run("tests/test_a.py::one", "tests/test_a.py::two", "tests/test_b.py::three")
    again = run("tests/test_a.py::two", files=("tests/test_a.py",), commit="b" * 40)
    found = Outcomes(runs={"v": (first, again)})
    assert found.open("v") == ("tests/test_b.py::three", "tests/test_a.py::two")
    assert "| 1,000 | 3 | 2 |" in told(found)
    last = run(files=("tests/test_a.py", "tests/test_b.py"), commit="c" * 40)
    found = Outcomes(runs={"v": (first, again, last)})
    assert found.open("v") == ()
    assert "| 1,000 | 3, of which none fails at ccccccc | 2 |" in told(found)
    assert Outcomes(runs={"v": (first, run())}).open("v") == ()


def test_the_readme_says_which_versions_were_run() -> None:
    assert told(version_range.read()) in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_what_was_run_is_in_the_list_and_nothing_is_left_open() -> None:
    kept = version_range.read()
    assert kept.runs.keys() <= {each.name for each in version_range.RANGE}
    for name, runs in kept.runs.items():
        asked = next(each for each in version_range.RANGE if each.name == name)
        for one in runs:
            assert one.versions["python"].startswith(f"{asked.python}.")
            assert one.versions["torch"].split("+")[0] == asked.torch
            assert one.versions["triton"] == asked.triton
        assert kept.open(name) == ()


@pytest.mark.parametrize("library", ["torch", "triton"])
def test_the_pins_begin_with_the_oldest_and_end_where_evidence_ends(library: str) -> None:
    pin = next(each for each in PROJECT["dependencies"] if each.startswith(f"{library}>"))
    oldest, above = (release(text) for text in re.findall(r"[\d.]+", pin))
    by_ci = release(
        re.findall(rf"^{library}==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)[0]
    )
    listed = {each.name: release(getattr(each, library)) for each in version_range.RANGE}
    assert min(listed.values()) == oldest
    newest = max([by_ci, *(release for name, release in listed.items() if name in version_range.read().runs)])
    assert above == (newest[0], newest[1] + 1)
