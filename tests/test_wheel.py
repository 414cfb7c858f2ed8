"""The wheel: what a plain `pip install` puts on a machine."""

from __future__ import annotations

import configparser
import zipfile
from pathlib import Path

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

builder = pytest.importorskip("hatchling.builders.wheel", reason="needs hatchling")

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    built = next(
        builder.WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("dist")), versions=["standard"])
    )
    return zipfile.ZipFile(built)


def source_files(folder: Path) -> set[str]:
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder.parent)) for path in found}


def test_it_holds_both_packages_the_controls_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    wanted = source_files(ROOT / "src" / "mlpfusion") | source_files(
        ROOT / "kernels" / "torch-ext" / "mlpfusion_kernels"
    )
    wanted |= {f"mlpfusion/{name}" for name in source_files(ROOT / "tests" / "controls")}
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == wanted
    assert "mlpfusion/py.typed" in held


def test_it_registers_the_command_and_the_backends(wheel: zipfile.ZipFile) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = configparser.ConfigParser(delimiters="=")
    points.optionxform = str  # names keep their case
    points.read_string(wheel.read(next(n for n in wheel.namelist() if n.endswith("entry_points.txt"))).decode())
    assert dict(points["console_scripts"]) == project["scripts"]
    assert dict(points["mlpfusion.backends"]) == project["entry-points"]["mlpfusion.backends"]


def test_it_carries_its_license(wheel: zipfile.ZipFile) -> None:
    text = wheel.read(next(name for name in wheel.namelist() if name.endswith("/LICENSE"))).decode()
    assert "Apache License" in text
