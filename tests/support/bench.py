"""Imports the scripts of `bench/` and `tools/`, which import each other by their bare names."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from support.paths import ROOT

if TYPE_CHECKING:
    from types import ModuleType


def bench(name: str) -> ModuleType:
    """The module of a file in `bench/`."""
    return _script("bench", name)


def tool(name: str) -> ModuleType:
    """The module of a file in `tools/`."""
    return _script("tools", name)


def _script(folder: str, name: str) -> ModuleType:
    sys.path.insert(0, str(ROOT / folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(ROOT / folder))
