"""A whole run whose surroundings hold secrets leaves none of them in the files that it writes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.full  # a process of its own that races two backends

BACKEND = """
import torch
from mlpfusion.backends.eager import Eager


class Mine(Eager):
    name = "mine"
"""
SECRETS = (
    "HF_TOKEN",
    "WANDB_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "USER",
    "LOGNAME",
    "USERNAME",
    "HOSTNAME",
    "SSH_CLIENT",
)


SIZES = ("--batch", "1", "--seq", "8", "--hidden-size", "32", "--intermediate-size", "64", "--dtype", "float32")


def ran(home: Path, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """One verb of the command line in a folder, with surroundings that hold secrets."""
    return subprocess.run(
        [sys.executable, "-m", "mlpfusion", *command],
        cwd=cwd,
        env={**os.environ, "HOME": str(home), **{name: f"planted-{name}" for name in SECRETS}},
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_token_name_or_home_is_written(tmp_path: Path) -> None:
    home = tmp_path / "planted-home"
    work, own = home / "planted-work", home / "kernels"
    for folder in (work, own):
        folder.mkdir(parents=True)
    (own / "mine.py").write_text(BACKEND, encoding="utf-8")
    out, file = home / "out", home / "result.json"
    races = ("--device", "cpu", "--rounds", "20", "--processes", "2")
    places = ("--out", str(out), "--json", str(file))
    done = ran(home, "profile", *SIZES, *races, "--backends", f"eager,{own}/mine.py:Mine", *places, cwd=work)
    assert done.returncode == 0, done.stderr
    written = [path for path in (file, *out.rglob("*")) if path.is_file()]
    assert results.load(file).processes[1:]
    assert {row.backend for row in results.load(file).rows} == {"eager", "mine.py:Mine"}
    for path in written:
        assert b"planted" not in path.read_bytes(), path.name


TALKATIVE = """
\"\"\"Of planted-USER, in {home}: planted-HF_TOKEN.\"\"\"
import os
import warnings
from mlpfusion.backends.eager import Eager

SAID = __doc__ + " Bearer planted1 hf_plantedplantedplanted https://planted:word@x.org/?token=planted " + __file__


class Refuses(Eager):
    name = "refuses"

    def unsupported(self, spec, device):
        return SAID


class Raises(Eager):
    name = "raises"

    def unsupported(self, spec, device):
        raise RuntimeError(SAID)


class Breaks(Eager):
    name = "breaks"
    origin = SAID

    def bind(self, mlp):
        warnings.warn(SAID)
        raise ValueError(SAID)


class Notes(Eager):
    name = "notes"
    origin = SAID
    loaded = {{"planted-USER/kernel": SAID}}


class Dies(Eager):
    name = "dies"

    def bind(self, mlp):
        print(SAID, flush=True)
        os._exit(3)


def act_mul(gate, up):
    raise RuntimeError(SAID)
"""


@pytest.fixture
def talkative(tmp_path: Path) -> Path:
    """A home with a file of backends that say what is private, in a folder whose name is private too."""
    home = tmp_path / "planted-home"
    (home / "planteduser" / "secretproj").mkdir(parents=True)
    text = TALKATIVE.format(home=home)
    (home / "planteduser" / "secretproj" / "mine.py").write_text(text, encoding="utf-8")
    return home


def no_word_of_it(*paths: Path) -> None:
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert "planted" not in text.lower()
        assert "secretproj" not in text


def test_what_backends_say_is_cleaned_and_kept(talkative: Path) -> None:
    classes = ("Refuses", "Raises", "Breaks", "Notes", "Dies")
    names = ",".join(f"planteduser/secretproj/mine.py:{each}" for each in classes)
    asked = (*SIZES, "--device", "cpu", "--rounds", "20", "--backends", f"eager,{names}")
    done = ran(talkative, "profile", *asked, "--json", "r.json", "--format", "json", cwd=talkative)
    assert done.returncode == 1, done.stderr
    no_word_of_it(talkative / "r.json")
    assert "planted" not in done.stdout.lower()
    found = {row.backend: row for row in results.load(talkative / "r.json").rows}
    assert list(found) == ["eager", *(f"mine.py:{each}" for each in classes)]
    assert [row.status for row in found.values()] == ["ok", "unavailable", "failed", "failed", "ok", "failed"]
    for each in ("Refuses", "Raises", "Breaks"):
        assert "Of <secret>" in str(found[f"mine.py:{each}"].reason) or "Of <user>" in str(
            found[f"mine.py:{each}"].reason
        )
    assert "mine.py" in "".join(found["mine.py:Notes"].notes)


def test_a_run_like_it_finds_the_file_and_the_row(talkative: Path) -> None:
    asked = (*SIZES, "--device", "cpu", "--rounds", "20", "--backends", "eager,planteduser/secretproj/mine.py:Notes")
    for command in (("profile", *asked, "--json", "a.json"), ("profile", "--like", "a.json", "--json", "b.json")):
        done = ran(talkative, *command, cwd=talkative)
        assert done.returncode == 0, done.stderr
    no_word_of_it(talkative / "a.json", talkative / "b.json")
    for command in (
        ("compare", "a.json:mine.py:Notes", "b.json:mine.py:Notes"),
        ("table", "a.json", "--rows", "mine.py:Notes"),
    ):
        done = ran(talkative, *command, cwd=talkative)
        assert done.returncode == 0, done.stderr
        assert "mine.py:Notes" in done.stdout


def test_a_choice_goes_on_and_runs_what_it_chose(talkative: Path) -> None:
    shape = ("--hidden-size", "32", "--intermediate-size", "64", "--dtype", "fp32", "--tokens", "4")
    asked = ("choose", *shape, "--device", "cpu", "--backends", "planteduser/secretproj/mine.py:Notes", "--out", "c")
    for _ in range(2):
        done = ran(talkative, *asked, cwd=talkative)
        assert done.returncode == 0, done.stderr
    assert "qualify" not in done.stderr  # all rows were there
    no_word_of_it(*(talkative / "c").glob("*.json"))
    assert {each.backend for each in results.load_choice(talkative / "c" / "choice.json").ranges} == {"mine.py:Notes"}
    sizes = ("--batch", "1", "--seq", "4", *shape[:6])
    chosen = ("profile", *sizes, "--device", "cpu", "--backends", "eager,auto:c/choice.json", "--json", "d.json")
    done = ran(talkative, *chosen, cwd=talkative)
    assert done.returncode == 0, done.stdout + done.stderr
    no_word_of_it(talkative / "d.json")


def test_a_verdict_says_nothing_private(talkative: Path) -> None:
    target = "planteduser/secretproj/mine.py:act_mul"
    asked = ("validate", target, "--device", "cpu", "--quick", "--json", "v.json")
    done = ran(talkative, *asked, cwd=talkative)
    assert done.returncode == 1, done.stderr
    assert target in done.stdout  # a command that runs again where it was typed
    no_word_of_it(talkative / "v.json")
    again = ran(talkative, *asked[:-2], "--since", "v.json", cwd=talkative)
    assert "has no verdict on" not in again.stderr
