"""The template of a third-party backend: installed as a user would, without a network, and run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distributions

import pytest
from support.paths import ROOT

TEMPLATE = ROOT / "examples" / "plugin"

# Not looked for by import: setuptools' hook on finding pip changes the distutils that torch compiles by.
LACKING = {"pip", "hatchling"} - {each.name for each in distributions()}
pytestmark = pytest.mark.skipif(bool(LACKING), reason=f"needs {' and '.join(sorted(LACKING))}")


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> dict[str, str]:
    """The environment of a process that has the template installed."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(TEMPLATE, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    arguments = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--target", str(folder / "site"))
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *arguments, str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    path = [str(folder / "site"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "PLUGIN_SOURCE": str(source)}


def run(installed, *arguments, **options):
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, env=installed, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_listed_after_the_built_in_ones(installed):
    lines = run(installed, "mlpfusion", "backends", "--device", "cpu").splitlines()
    assert lines[-2].split() == ["chunked", "available"]  # the last line sums up
    assert lines[0].split() == ["eager", "available"]


@pytest.mark.full  # pytest again
def test_its_own_tests_pass(installed):
    said = run(installed, "pytest", "-p", "no:cacheprovider", "tests", cwd=installed["PLUGIN_SOURCE"])
    assert re.search(r"\b\d+ passed in", said), said
    assert "failed" not in said


@pytest.mark.full  # a profile by the command takes half a minute of a core
def test_it_is_profiled_and_chosen_like_any_other(installed, tmp_path):
    sizes = (
        "--hidden-size",
        "16",
        "--intermediate-size",
        "32",
        "--dtype",
        "float32",
        "--device",
        "cpu",
        "--rounds",
        "20",
    )
    asked = ("choose", *sizes, "--tokens", "8", "--backends", "eager,chunked", "--out", str(tmp_path / "out"))
    made = json.loads(run(installed, "mlpfusion", *asked, "--format", "json", cwd=tmp_path))
    found = {each["backend"]: each for each in made["points"][0]["contenders"]}
    assert found["chunked"]["verdict"] in {"won", "tied", "slower"}
    assert found["chunked"]["clock"]["n"] == 20
    rows = json.loads((tmp_path / "out" / "inference-8.json").read_text(encoding="utf-8"))["rows"]
    assert [(each["backend"], each["status"]) for each in rows] == [("eager", "ok"), ("chunked", "ok")]
    plan = json.loads((tmp_path / "out" / "plan.json").read_text(encoding="utf-8"))
    assert plan["holds"]["versions"]["mlpfusion-chunked"] == "0.1.0"
