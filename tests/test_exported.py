"""The public surface: what `import mlpfusion` promises, and what it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import mlpfusion
from mlpfusion import errors
from mlpfusion.records import profile


@pytest.mark.parametrize("name", mlpfusion.__all__)
def test_every_promised_name_is_there(name: str) -> None:
    assert getattr(mlpfusion, name) is not None
    assert name in dir(mlpfusion)


def test_checkers_and_readers_see_the_same_names() -> None:
    tree = ast.parse(Path(mlpfusion.__file__).read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.asname for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed | {"__version__"} == set(mlpfusion.__all__)
    assert len(set(mlpfusion.__all__)) == len(mlpfusion.__all__)


def test_every_error_and_every_record_of_a_result_is_public() -> None:
    raised = {
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert raised <= set(mlpfusion.__all__)
    stages = {"Record", "Analysis", "Samples"}  # what stages hand to each other; no result file holds them
    found = {
        name
        for name, value in vars(profile).items()
        if isinstance(value, type) and value.__module__ == profile.__name__
    }
    assert found - stages <= set(mlpfusion.__all__)


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'mlpfusion' has no attribute 'fuse'"):
        _ = mlpfusion.fuse  # type: ignore[attr-defined]


def test_importing_it_imports_nothing_slow() -> None:
    code = "import sys; before = set(sys.modules); import mlpfusion; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["mlpfusion"]


def test_records_are_read_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; import mlpfusion; mlpfusion.Profile, mlpfusion.load, mlpfusion.render"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
