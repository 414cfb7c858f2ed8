"""What an import of an installed library changes is not the target's, and what the target changes itself is."""

from __future__ import annotations

import builtins
import importlib
import os
import random
import sys
from typing import TYPE_CHECKING

import pytest
from support.targets_made import verdict_of, written

from mlpfusion.stages.validate.worker import settings
from mlpfusion.stages.validate.worker.targets import imports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mlpfusion.stages.validate.judge import examine

CHANGES = {
    "env": ("import os\nos.environ['LIBRARY_SETS'] = '1'\n", "the environment"),
    "random": ("import random\nrandom.random()\n", "the generator of the module random"),
    "setting": ("import sys\nsys.setrecursionlimit(sys.getrecursionlimit() + 7)\n", "the recursion limit"),
}
GOOD = "def good(gate, up):\n    return F.gelu(gate, approximate='tanh') * up\n"


def library(folder: Path, name: str, text: str, *, installed: bool) -> str:
    """A module below `folder` that does `text` when it is imported, by a package of its own."""
    package = folder / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "inner.py").write_text(text, encoding="utf-8")
    if installed:
        about = folder / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
        (about / "top_level.txt").write_text(name, encoding="utf-8")
    return name


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("LIBRARY_SETS", "TARGET_SETS"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(name, "0")  # is taken back afterwards, whatever it is then
    limit, state = sys.getrecursionlimit(), random.getstate()
    yield
    sys.setrecursionlimit(limit)
    random.setstate(state)


@pytest.mark.parametrize("by", ["statement", "from", "of_another", "name", "relative_name"])
@pytest.mark.parametrize("installed", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_a_library_s_changes_are_as_if_they_had_been_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, installed: bool, by: str
) -> None:
    text, told = CHANGES[change]
    name = library(tmp_path, f"lib_{change}_{installed}_{by}".lower(), text, installed=installed)
    statement = f"import {name}.inner" if by == "statement" else f"from {name} import inner"
    if by.endswith("name"):
        asked = f"'.inner', {name!r}" if by == "relative_name" else f"'{name}.inner'"
        statement = f"from importlib import import_module\nimport_module({asked})"
    if by == "of_another":
        name = library(tmp_path, f"outer_{name}", statement, installed=installed)
        statement = f"import {name}.inner"
    monkeypatch.syspath_prepend(tmp_path)
    state = settings.read()
    with imports.apart(state, ()):
        exec(statement, {"__name__": "target"})
        os.environ["TARGET_SETS"] = "1"
    left = settings.changed(state)
    assert left.pop("the environment").endswith(
        "TARGET_SETS" if installed or change != "env" else "LIBRARY_SETS, TARGET_SETS"
    )
    assert list(left) == ([] if installed or change == "env" else [told])


def test_what_the_target_changed_before_stays_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = library(tmp_path, "lib_after", "".join(text for text, _ in CHANGES.values()), installed=True)
    monkeypatch.syspath_prepend(tmp_path)
    state = settings.read()
    with imports.apart(state, ()):
        random.random()
        os.environ["LIBRARY_SETS"] = "2"
        exec(f"import {name}.inner", {"__name__": "target"})
    left = settings.changed(state)
    assert set(left) == {"the environment", "the generator of the module random"}


def test_the_target_s_own_package_is_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = library(tmp_path, "lib_own", CHANGES["env"][0], installed=True)
    monkeypatch.syspath_prepend(tmp_path)
    state = settings.read()
    with imports.apart(state, {name}):
        exec(f"import {name}.inner", {"__name__": "target"})
    assert settings.changed(state)["the environment"].endswith("LIBRARY_SETS")


def test_an_import_that_fails_is_its_own_error_and_leaves_no_watch(tmp_path: Path) -> None:
    before, load = builtins.__import__, importlib.import_module
    by_name = imports._BOOTSTRAP._gcd_import
    with pytest.raises(ModuleNotFoundError, match="no_such_library"), imports.apart(settings.read(), ()):
        exec("import no_such_library", {})
    assert builtins.__import__ is before
    state = settings.read()
    with imports.apart(state, ()):
        exec("import colorsys", {"__name__": "target"})
    assert (builtins.__import__, importlib.import_module) == (before, load)
    assert imports._BOOTSTRAP._gcd_import is by_name
    assert not settings.changed(state)


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_verdict_tells_a_target_s_own_changes_alone(
    bench: examine.Bench, tmp_path: Path, change: str, lazy: bool
) -> None:
    name = library(tmp_path / "site", f"lib_of_{change}_{lazy}".lower(), CHANGES[change][0], installed=True)
    head, statement = f"sys.path.insert(0, {str(tmp_path / 'site')!r})\n", f"import {name}.inner\n"
    good = GOOD.replace("    return", f"    {statement}    return") if lazy else statement + GOOD
    path = written(tmp_path, head + good)
    assert "state" not in {each.name for each in verdict_of(bench, f"{path}:good", only=("runs", "state")).hazards}
    path = written(tmp_path, head + CHANGES[change][0].replace("LIBRARY", "TARGET") + good, "changes.py")
    found = verdict_of(bench, f"{path}:good", only=("runs", "state"))
    assert "leaves the program changed" in str(found.hazards)
