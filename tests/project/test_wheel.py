"""The two wheels: what `pip install mlpfusion` puts on a machine, and what `mlpfusion-read` alone can do."""

from __future__ import annotations

import configparser
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from support import command, lacking, rings
from support.paths import DATA, RESULTS, ROOT

from mlpfusion.cli.main import app
from mlpfusion.cli.needs import READERS
from mlpfusion.environment import provenance

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

builder = pytest.importorskip("hatchling.builders.wheel", reason="needs hatchling")
from hatchling.builders.sdist import SdistBuilder  # noqa: E402

READ = ROOT / "packages" / "read"
TRACE = DATA / "h200_eager.json.gz"
RESULT = RESULTS / "h200-article.json"
VERBS = sorted(each.name for each in app.registered_commands)


def built(project: Path, folder: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(builder.WheelBuilder(str(project)).build(directory=str(folder), versions=["standard"])))


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dist")


@pytest.fixture(scope="module")
def wheel(dist: Path) -> zipfile.ZipFile:
    return built(ROOT, dist)


@pytest.fixture(scope="module")
def reader(dist: Path) -> zipfile.ZipFile:
    return built(READ, dist)


def project(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return read


def held(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def source_files(folder: Path) -> set[str]:
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder.parent)) for path in found}


def test_together_they_hold_both_packages_each_file_once(wheel: zipfile.ZipFile, reader: zipfile.ZipFile) -> None:
    wanted = source_files(ROOT / "src" / "mlpfusion") | source_files(
        ROOT / "kernels" / "torch-ext" / "mlpfusion_kernels"
    )
    assert held(wheel) | held(reader) == wanted
    assert not held(wheel) & held(reader)
    assert "mlpfusion/py.typed" in held(reader)
    assert {"mlpfusion/trace/read/kineto.py", "mlpfusion/report/profile/table.py"} <= held(reader)
    assert {"mlpfusion/module.py", "mlpfusion/measure/clocks.py"} <= held(wheel)


@pytest.mark.parametrize("folder", rings.only_first([ROOT, READ]), ids=["mlpfusion", "mlpfusion-read"])
def test_a_wheel_from_the_source_archive_holds_the_same(folder: Path, tmp_path: Path, request) -> None:
    archive = next(SdistBuilder(str(folder)).build(directory=str(tmp_path), versions=["standard"]))
    with tarfile.open(archive) as file:
        file.extractall(tmp_path / "source")
    (source,) = (tmp_path / "source").iterdir()
    again = built(source, tmp_path)
    assert held(again) == held(request.getfixturevalue("wheel" if folder == ROOT else "reader"))


def test_they_register_the_command_and_the_backends(wheel: zipfile.ZipFile, reader: zipfile.ZipFile) -> None:
    def points(wheel: zipfile.ZipFile) -> configparser.ConfigParser:
        parser = configparser.ConfigParser(delimiters="=")
        parser.optionxform = str  # names keep their case
        parser.read_string(wheel.read(next(n for n in wheel.namelist() if n.endswith("entry_points.txt"))).decode())
        return parser

    assert dict(points(reader)["console_scripts"]) == project(READ)["scripts"]
    assert dict(points(wheel)["mlpfusion.backends"]) == project(ROOT)["entry-points"]["mlpfusion.backends"]
    assert "console_scripts" not in points(wheel)


def test_they_carry_the_license_and_one_version(wheel: zipfile.ZipFile, reader: zipfile.ZipFile) -> None:
    for each in (wheel, reader):
        text = each.read(next(name for name in each.namelist() if name.endswith("/LICENSE"))).decode()
        assert text == (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert project(READ)["version"] == project(ROOT)["version"]
    assert f"mlpfusion-read=={project(READ)['version']}" in project(ROOT)["dependencies"]


def test_only_reading_and_running_are_installed_without_an_extra() -> None:
    plain = " ".join(project(ROOT)["dependencies"])
    assert "kernels" not in plain
    assert "liger" not in plain
    assert {"hub", "liger", "quack"} <= project(ROOT)["optional-dependencies"].keys()


def test_each_dependency_is_explained_on_its_line() -> None:
    for folder in (ROOT, READ):
        lines = (folder / "pyproject.toml").read_text(encoding="utf-8").splitlines()
        assert all("# " in line for line in lines if line.startswith('  "') and ("<" in line or ">=" in line))


# ---- the reader alone in an environment ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone(reader: zipfile.ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has `mlpfusion-read` and what it requires, and nothing else."""
    folder = tmp_path_factory.mktemp("alone")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=240)
    (site,) = folder.glob("lib/python*/site-packages")
    reader.extractall(site)
    wanted = {name.split(">")[0] for name in project(READ)["dependencies"]}
    for name in provenance._closure(wanted):
        if provenance.version(name) is None:  # a marker leaves it out here
            continue
        found = metadata.distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(found.locate_file(top))))
    return folder / "bin" / "python"


def run(python: Path, *arguments: str, **options) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [str(python), "-m", "mlpfusion", *arguments]
    return subprocess.run(command, env=clean, capture_output=True, text=True, timeout=240, check=False, **options)


def test_nothing_else_is_there(alone: Path) -> None:
    names = ["torch", "triton", "kernels", "mlpfusion_kernels", "transformers"]
    code = f"from importlib.util import find_spec; print([name for name in {names} if find_spec(name)])"
    command = [str(alone), "-I", "-c", code]
    assert subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout == "[]\n"


READING = [
    ("read", str(TRACE)),
    ("read", str(TRACE), "--format", "json"),
    ("table", str(RESULT)),
    ("table", str(RESULT), "--full", "--format", "github"),
    ("compare", str(RESULT), str(RESULTS / "h200-choose-article" / "inference-8192.json"), "--format", "json"),
    ("diff", str(DATA / "h200_eager.json.gz"), str(DATA / "h200_compile.json.gz")),
    ("diff", f"{RESULT}:eager", f"{RESULT}:compile", "--format", "json"),
    ("explain", "triton_poi_fused__unsafe_view_gelu_mul_0"),
    ("predict", str(RESULTS / "h200-choose-article" / "inference-8192.json")),
    ("cite", str(RESULT)),
    ("reproduce", str(RESULT)),
    ("merge", "--help"),
    ("plot", "--help"),
    ("report", "--help"),
    ("scrub", "--help"),
    ("open", "--help"),
    ("--version",),
    ("--help",),
    (),
]


def here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> tuple[int, str, str]:
    """The exit code of a command that is run in this process, where everything is, and what it prints."""
    monkeypatch.setattr(sys, "argv", ["mlpfusion", *arguments])
    code, out, _ = command.run(capsys, *arguments)
    assert (code, bool(out)) == (0, True)
    return code, out, ""


def test_it_reads_as_all_of_it_does(
    alone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = lacking.run(alone, [], READING, "-I", folder=tmp_path)
    for arguments, there in zip(READING, found, strict=True):
        assert there == here(capsys, monkeypatch, arguments), arguments


@pytest.mark.full  # each in a process that has imported nothing yet
@pytest.mark.parametrize("arguments", READING, ids=lambda each: " ".join(Path(part).name for part in each) or "nothing")
def test_it_does_so_in_a_process_of_its_own(
    alone: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = run(alone, *arguments)
    assert (there.returncode, there.stdout, there.stderr) == here(capsys, monkeypatch, arguments)


def test_every_recorded_trace_is_read(alone: Path) -> None:
    done = run(alone, "read", *map(str, sorted(DATA.glob("*.json.gz"))), "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_only_traces_need_numpy(alone: Path, tmp_path: Path) -> None:
    commands = [each for each in READING if not each or each[0] != "read"]
    found = lacking.run(alone, ["numpy"], commands, "-I", folder=tmp_path)
    assert len(found) == len(commands)
    for arguments, (code, out, err) in zip(commands, found, strict=True):
        if any(each.startswith(str(DATA)) for each in arguments):
            assert (code, out, err) == (2, "", said_of("numpy")), arguments
        else:
            assert code == 0, (arguments, err)


def without(python: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command where a package is not installed."""
    code = f"import sys; sys.modules[{name!r}] = None; from mlpfusion.__main__ import main; sys.exit(main())"
    command = [str(python), "-I", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def said_of(name: str) -> str:
    return f"mlpfusion: this needs {name}, which is not installed: pip install {name}\n"


@pytest.mark.parametrize("name", ["numpy", "msgspec", "tabulate", "typer"])
def test_a_package_that_is_missing_is_one_line(alone: Path, name: str) -> None:
    done = without(alone, name, "read", str(TRACE))
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said_of(name))


def test_a_module_of_nobody_s_is_a_fault_and_shows_where(alone: Path) -> None:
    done = without(alone, "mlpfusion.trace.findings.host", "read", str(TRACE))
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_open_serves(alone: Path) -> None:
    done = run(alone, "open", str(TRACE), "--port", "0", "--timeout", "1")
    assert done.returncode == 1
    assert "no browser fetched" in done.stderr
    assert "ui.perfetto.dev" in done.stdout


def test_every_reader_is_tried() -> None:
    assert {each[0] for each in READING if each} - {"--version", "--help"} == set(READERS)


def test_every_other_verb_says_what_to_install(alone: Path, tmp_path: Path) -> None:
    asked = [(), ("--help",), ("anything", "--no-such-option")]
    commands = [(verb, *arguments) for verb in sorted(set(VERBS) - set(READERS)) for arguments in asked]
    found = lacking.run(alone, [], commands, "-I", folder=tmp_path)
    for (verb, *_), said in zip(commands, found, strict=True):
        line = f"mlpfusion: `mlpfusion {verb}` needs torch, which is not installed: pip install mlpfusion\n"
        assert said == (2, "", line)
    assert list(tmp_path.iterdir()) == []
