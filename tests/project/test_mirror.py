"""Tests mirror the sources: each module has a test file of its name, and each test file the name of a module."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.paths import ROOT, TESTS

# Where sources lie, and where below `tests` their mirror is.
MIRRORED = {"src/mlpfusion": "", "kernels/torch-ext/mlpfusion_kernels": "kernels"}
# What mirrors nothing: it judges the project, its scripts, many modules on a GPU or in a browser, or is shared.
APART = ("project", "bench", "gpu", "browser", "support")
# Targets of `validate --self-test`, each of which that test judges.
CONTROLS = "src/mlpfusion/stages/validate/controls"


def mirror(sources: list[str]) -> dict[str, str]:
    """The test of each module's name: `storage/test_files.py` of `src/mlpfusion/storage/files.py`."""
    found = {}
    for source in sources:
        (base,) = (base for base in MIRRORED if source.startswith(f"{base}/"))
        place = Path(MIRRORED[base]) / Path(source).relative_to(base)
        found[source] = place.with_name(f"test_{place.stem.strip('_')}.py").as_posix()
    return found


def strays(tests: list[str], mirrored: dict[str, str]) -> list[str]:
    """Tests whose names are neither a module's nor a module's with an aspect."""
    names = [name.removesuffix(".py") for name in mirrored.values()]
    return [
        test
        for test in tests
        if not any(
            test == f"{name}.py" or (test.startswith(f"{name}_") and "/" not in test[len(name) :]) for name in names
        )
    ]


SOURCES = [
    path.relative_to(ROOT).as_posix()
    for base in MIRRORED
    for path in sorted((ROOT / base).rglob("*.py"))
    if path.name != "__init__.py" and not path.is_relative_to(ROOT / CONTROLS)
]
HERE = [
    path.relative_to(TESTS).as_posix()
    for path in sorted(TESTS.rglob("test_*.py"))
    if path.relative_to(TESTS).parts[0] not in APART
]


def test_every_module_has_a_test_of_its_name() -> None:
    assert [source for source, test in mirror(SOURCES).items() if test not in HERE] == []


def test_every_test_has_the_name_of_a_module() -> None:
    assert strays(HERE, mirror(SOURCES)) == []


def test_a_package_only_exports() -> None:
    """What a package does besides would have no test of its name."""
    for base in MIRRORED:
        for path in (ROOT / base).rglob("__init__.py"):
            assert not re.search(r"^(def|class) (?!_)", path.read_text(encoding="utf-8"), re.MULTILINE), path


@pytest.mark.parametrize(
    ("test", "stray"),
    [
        ("storage/test_files.py", False),
        ("storage/test_files_full_disk.py", False),
        ("storage/test_file.py", True),
        ("storage/test_filesystem.py", True),
        ("test_files.py", True),
        ("kernels/gate_up/test_launch.py", False),
        ("kernels/test_launch.py", True),
        ("test_main.py", False),
    ],
)
def test_what_is_a_stray(test: str, stray: bool) -> None:
    kernel = "kernels/torch-ext/mlpfusion_kernels/gate_up/launch.py"
    mirrored = mirror(["src/mlpfusion/storage/files.py", "src/mlpfusion/__main__.py", kernel])
    assert (strays([test], mirrored) == [test]) is stray
