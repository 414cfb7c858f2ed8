"""Imports modules of `bench/`, which import each other by their bare names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

BENCH = str(Path(__file__).parents[2] / "bench")


def bench(name: str) -> ModuleType:
    """The module of a file in `bench/`."""
    sys.path.insert(0, BENCH)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(BENCH)
