"""Finds the commit that mlpfusion runs from, if it runs from a checkout of its own."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path
from typing import Final

from mlpfusion.records.environment import Checkout

_GIT_S: Final = 20.0


@functools.cache
def checkout(package: Path = Path(__file__).parents[1]) -> Checkout | None:
    """The commit of the checkout that the package is a tracked part of, and whether nothing in it was changed.

    A package that is installed inside somebody's repository, in a virtual environment say, is no part of that.
    """
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit, changes = _git(package, "rev-parse", "HEAD"), _git(package, "status", "--porcelain")
    if commit is None or changes is None:
        return None
    return Checkout(commit=commit, clean=not changes)


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints, or None where it fails; it takes no lock, and starts no program that the checkout names."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_S, check=True, env=environment)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip()
