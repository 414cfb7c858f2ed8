"""A function of a user's script: which can be called, and what is said of one that cannot."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from mlpfusion.errors import UsageError
from mlpfusion.measure import script
from mlpfusion.workers import tasks

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = """
import functools
import pathlib
import beside

number = 3
_hidden = lambda: 0
default = functools.partial(pow, 2, 3)
def step(x=1): return beside.of(x)
def many(*args, **options): return len(args)
def wants(x): return x
def names(*, x): return x
def raises(): raise ValueError("mine")
class Kind: pass
async def waits(): pass
async def streams(): yield 1
def yields(): yield 1
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script with a sibling, of which this process keeps nothing."""
    monkeypatch.setattr(sys, "path", sys.path.copy())
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    (tmp_path / "beside.py").write_text("def of(x):\n    return x + 1\n")
    (tmp_path / "mine.py").write_text(SCRIPT)
    return tmp_path / "mine.py"


@pytest.mark.parametrize(("name", "value"), [("step", 2), ("many", 0), ("default", 8), ("_hidden", 0)])
def test_what_needs_no_argument_is_called(path: Path, name: str, value: int) -> None:
    assert script.load(path, name)() == value


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("wants", "mine.py:wants needs arguments; name a function that can be called without any"),
        ("names", "mine.py:names needs arguments; name a function that can be called without any"),
        ("Kind", "mine.py:Kind is a class; name a function"),
        ("waits", "mine.py:waits is async: a call of it runs nothing; name a function that is not"),
        ("streams", "mine.py:streams is async: a call of it runs nothing; name a function that is not"),
        ("yields", "mine.py:yields is a generator: a call of it runs nothing; name a function that is none"),
        ("number", "mine.py:number is no function; valid: step, many, wants, names, raises, waits, streams, yields"),
        ("pathlib", "mine.py:pathlib is no function; valid: step, many, wants"),
        ("nowhere", "mine.py:nowhere does not exist; valid: step, many, wants"),
    ],
)
def test_what_cannot_be_called_is_named_with_what_can(path: Path, name: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        script.load(path, name)
    assert str(caught.value).startswith(said)


def test_few_functions_are_listed_and_none_is_said(path: Path) -> None:
    path.write_text("".join(f"def f{number}(): pass\n" for number in range(20)))
    with pytest.raises(UsageError, match=r"valid: f0, f1, f2, f3, f4, f5, f6, f7, …$"):
        script.load(path, "g")
    path.write_text("")
    with pytest.raises(UsageError, match=r"valid: it has none$"):
        script.load(path, "g")


def test_a_file_of_another_kind_is_no_script(path: Path) -> None:
    other = path.rename(path.with_suffix(".txt"))
    with pytest.raises(UsageError, match=r"^script 'mine.txt' is no Python file: its name must end in \.py$"):
        script.load(other, "step")


def test_a_script_named_like_a_package_takes_nobodys_place(path: Path) -> None:
    import json

    named = path.rename(path.with_name("json.py"))
    assert script.load(named, "step")() == 2
    assert sys.modules["json"] is json


def test_a_worker_answers_what_cannot_be_called_and_raises_what_the_script_raises(path: Path, tmp_path: Path) -> None:
    task = tasks.Trace(script=str(path), function="wants", trace=str(tmp_path / "t.json"), calls=3)
    assert "needs arguments" in (script.trace(task).misused or "")
    path.write_text("raise KeyError('mine')\n")
    with pytest.raises(KeyError, match="mine"):
        script.trace(task)
