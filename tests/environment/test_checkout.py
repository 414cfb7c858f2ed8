"""The commit that a package runs from: of a checkout of its own, never of the repository around it."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from mlpfusion.environment import checkout

if TYPE_CHECKING:
    from pathlib import Path


def git(folder: Path, *arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    named = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    command = ["git", *named, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "src" / "package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    git(tmp_path, "init", "-q")
    return folder


def found(package: Path) -> object:
    checkout.checkout.cache_clear()
    return checkout.checkout(package)


def test_a_package_that_is_part_of_it(package: Path) -> None:
    git(package, "add", ".")
    git(package, "commit", "-q", "-m", "one")
    commit = git(package, "rev-parse", "HEAD")
    assert found(package) == checkout.Checkout(commit=commit, clean=True)
    (package / "__init__.py").write_text("x = 1")
    assert found(package) == checkout.Checkout(commit=commit, clean=False)


def test_a_package_that_only_lies_in_somebodys_repository(package: Path) -> None:
    (package.parent / "theirs.py").write_text("")
    git(package.parent, "add", "theirs.py")
    git(package, "commit", "-q", "-m", "theirs")
    assert found(package) is None


def test_where_nothing_was_committed_or_there_is_no_git(
    package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(package, "add", ".")
    assert found(package) is None
    git(package, "commit", "-q", "-m", "one")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert found(package) is None


def test_variables_of_git_lead_nowhere_else(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(package, "add", ".")
    git(package, "commit", "-q", "-m", "one")
    before = found(package)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "nowhere"))
    assert found(package) == before
