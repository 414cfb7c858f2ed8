"""Which distributions a result names: all that stand behind the backends that ran, whoever wrote them."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from importlib import metadata
from typing import TYPE_CHECKING

import hypothesis  # noqa: F401  # installed, and required by nothing of ours
import msgspec
import pytest
from support.paths import RESULTS, ROOT

from mlpfusion import backend as registry
from mlpfusion.backends.auto import Auto
from mlpfusion.device import detect
from mlpfusion.environment import conditions, machine, provenance
from mlpfusion.errors import MeasurementError
from mlpfusion.records.profile import Row
from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path

SOURCES = {"mlpfusion": ROOT / "src" / "mlpfusion", "mlpfusion_kernels": ROOT / "kernels/torch-ext/mlpfusion_kernels"}
PLUGIN = ROOT / "examples" / "plugin" / "mlpfusion_chunked"
# The distribution of a module that may not be installed where this test runs.
DISTRIBUTION = {"liger_kernel": "liger-kernel", "quack": "quack-kernels", "cutlass": "nvidia-cutlass-dsl"}

PRETENDED = """
from importlib import import_module

from mlpfusion.backends.eager import Eager


class Mine(Eager):
    name = "mine"
    {attributes}

    def bind(self, mlp):
        for name in {imports}:
            import_module(name)
        return super().bind(mlp)
"""


def third_party(path: Path) -> set[str]:
    """The top-level modules that a file imports, wherever in it, and that are neither Python's nor ours."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {each.name.split(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - SOURCES.keys()


def behind(path: Path) -> set[Path]:
    """A backend's file and those of the backends and kernels that it imports, directly or not."""
    found, left = set(), {path}
    while left:
        found |= left
        left = {each for one in left for each in ours(one)} - found
    return found


def ours(path: Path) -> set[Path]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    wanted = [name.split(".") for name in names if name.startswith(("mlpfusion.backends", "mlpfusion_kernels"))]
    files = {SOURCES[parts[0]].joinpath(*parts[1:]).with_suffix(".py") for parts in wanted}
    files |= set(SOURCES["mlpfusion_kernels"].rglob("*.py")) if any("kernels" in p[0] for p in wanted) else set()
    return {file for file in files if file.is_file()}


def named(name: str) -> set[str]:
    """What a result says of a backend, and what every result says."""
    return {*provenance.installed(name), "torch", "triton", "numpy"}


@pytest.mark.parametrize("name", registry.built_in())
def test_a_built_in_backend_names_whatever_its_sources_import(name: str) -> None:
    module = registry.points(name)[0].module.split(".")
    imported = {each for file in behind(SOURCES["mlpfusion"].joinpath(*module[1:]).with_suffix(".py")) for each in
                third_party(file)}  # fmt: skip
    # A client of the Hub comes with `kernels`, which requires it.
    owners = {DISTRIBUTION.get(each, each) for each in imported} - {"huggingface_hub"}
    assert owners <= named(name), f"say in {name}'s class: distributions = {tuple(sorted(owners - named(name)))}"
    assert "mlpfusion" in provenance.installed(name)


def test_the_template_of_a_plugin_imports_nothing_that_it_does_not_require() -> None:
    imported = {each for file in PLUGIN.rglob("*.py") for each in third_party(file)}
    required = (PLUGIN.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert all(f'"{each}"' in required for each in imported)


@pytest.mark.parametrize("name", ["liger", "hub", "quack"])
def test_the_peers_name_their_packages_whether_installed_or_not(name: str) -> None:
    wanted = {"liger": {"liger-kernel"}, "hub": {"kernels"}, "quack": {"quack-kernels", "nvidia-cutlass-dsl"}}[name]
    found = provenance.installed(name)
    assert wanted <= found.keys()
    for each in wanted:
        assert found[each] == provenance.version(each)


# ---- third-party backends, in processes as they run ------------------------------------------------------------------


def package(site: Path, name: str, *, requires: tuple[str, ...] = (), code: str = "", points: str = "") -> None:
    """An installed distribution of one module, as pip leaves it."""
    module = name.replace("-", "_")
    info = f"{module}-1.2.3.dist-info"
    (site / info).mkdir(parents=True)
    (site / f"{module}.py").write_text(code, encoding="utf-8")
    lines = "".join(f"Requires-Dist: {each}\n" for each in requires)
    (site / info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.3\n{lines}", "utf-8")
    (site / info / "RECORD").write_text(f"{module}.py,,\n{info}/METADATA,,\n{info}/RECORD,,\n", "utf-8")
    (site / info / "entry_points.txt").write_text(points, "utf-8")


PROFILES = pytest.mark.full  # a profile by the command takes half a minute of a core


def profiled(tmp_path: Path, name: str) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """What a profile by the command says of the backend: in its row, and in its environment."""
    sizes = ("--dim", "16", "--hidden", "32", "--batch", "1", "--seq", "8", "--dtype", "float32", "--device", "cpu")
    command = [sys.executable, "-m", "mlpfusion", "profile", *sizes, "--backends", name, "--rounds", "20", "--json"]
    path = os.pathsep.join([str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [*command, str(tmp_path / "found.json")],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert [each["status"] for each in found["rows"]] == ["ok"]
    return found["rows"][0]["distributions"], found["environment"]["distributions"]


def mine(*imports: str, attributes: str = "") -> str:
    return PRETENDED.format(imports=imports, attributes=attributes)


@PROFILES
def test_a_loose_file_has_its_digest_and_what_it_imports_is_named(tmp_path: Path) -> None:
    package(tmp_path / "site", "deep-thing")
    package(tmp_path / "site", "fast-thing", requires=("deep-thing>=1",), code="import deep_thing")
    (tmp_path / "mine.py").write_text(mine("fast_thing"), encoding="utf-8")
    row, everything = profiled(tmp_path, "./mine.py:Mine")
    # What fast-thing requires comes with it; a package of ours is in every result.
    assert row == {
        "./mine.py:Mine": provenance.digest([tmp_path / "mine.py"]),
        "fast-thing": "1.2.3",
    }
    assert everything == row


@PROFILES
def test_a_plugin_names_itself_what_it_requires_what_it_declares_and_what_it_loaded(tmp_path: Path) -> None:
    points = "[mlpfusion.backends]\nmine = mine_all:Mine\n"
    loaded = 'distributions = ("shared-library", "not-there"); loaded = {"owner/name": "revision 9"}'
    package(tmp_path / "site", "shared-library")
    package(tmp_path / "site", "unsaid-thing")
    package(tmp_path / "site", "required-thing")
    package(
        tmp_path / "site",
        "Mine.All",
        requires=("mlpfusion", "torch", "required-thing (>=1)", 'optional-thing; extra == "x"'),
        points=points,
    )
    (tmp_path / "site" / "mine_all.py").write_text(mine("unsaid_thing", attributes=loaded), encoding="utf-8")
    row, everything = profiled(tmp_path, "mine")
    assert everything == row == {
        "mine-all": "1.2.3",
        "not-there": None,
        "owner/name": "revision 9",
        "required-thing": "1.2.3",
        "shared-library": "1.2.3",
        "unsaid-thing": "1.2.3",
    }  # fmt: skip


def test_metadata_is_parsed_once_for_all_files_of_a_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    class Distribution:
        parsed = 0

        @property
        def name(self) -> str:
            self.parsed += 1
            return "large"

        def read_text(self, file: str) -> str:
            return "".join(f"large/m{number}.py,sha256=,1\n" for number in range(1000)) + "large/data.txt,,\n"

    one = Distribution()
    monkeypatch.setattr(metadata, "distributions", lambda: [one])
    found = provenance._installed_files.__wrapped__()
    assert found == {f"large/m{number}.py": "large" for number in range(1000)}
    assert one.parsed == 1


@pytest.mark.parametrize(
    "attributes", ['distributions = "liger-kernel"', "distributions = (1,)", "loaded = ['a']", "loaded = {'a': 1}"]
)
def test_attributes_that_name_nothing_are_refused_in_one_line(attributes: str) -> None:
    space: dict[str, object] = {}
    exec(mine(attributes=attributes), space)
    with pytest.raises(MeasurementError, match=r"backend 'mine': its `(distributions|loaded)` is ") as caught:
        provenance.of_backend(space["Mine"]())  # type: ignore[operator]
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(("name", "more"), [("eager", set()), ("./mine.py:Mine", {"hypothesis"})])
def test_imports_count_for_third_parties_alone(name: str, more: set[str]) -> None:
    assert "hypothesis" in sys.modules
    found = provenance.ran(name, object(), set(sys.modules) - {"hypothesis"})
    assert found.keys() == provenance.installed(name).keys() | more


# ---- results ---------------------------------------------------------------------------------------------------------


def test_rows_that_did_not_run_are_left_out_and_older_rows_are_looked_up() -> None:
    rows = [
        Row(backend="eager", status="ok"),
        Row(backend="liger", status="failed", reason="wrong"),
        Row(backend="quack", status="unavailable", reason="no GPU"),
        Row(backend="hub", status="ok", distributions={"kernels": "0.16", "owner/name": "version 1"}),
    ]
    found = provenance.of_rows(rows)
    assert set(found) == {"mlpfusion", "liger-kernel", "kernels", "owner/name"}
    assert found["kernels"] == "0.16"
    assert found["mlpfusion"] == metadata.version("mlpfusion")


def test_an_older_file_is_read_and_says_nothing_of_distributions() -> None:
    kept = RESULTS / "h200-article.json"
    found = results.load(kept)
    assert found.environment.distributions == {}
    assert all(row.distributions == {} for row in found.rows)


def test_every_environment_of_ours_has_the_field() -> None:
    found = machine.collect(detect("cpu"), {"b": None, "a": "1"})
    assert list(found.distributions.items()) == [("a", "1"), ("b", None)]


@pytest.mark.parametrize("target", ["fused", "liger", f"{__file__}:anything", str(PLUGIN), "msgspec.json:encode"])
def test_whatever_is_validated_has_a_version(target: str) -> None:
    found = provenance.of_target(target)
    assert found
    assert all(there is None or there for there in found.values())
    if target.startswith("msgspec"):
        assert found == {"msgspec": metadata.version("msgspec")}


# ---- choices ---------------------------------------------------------------------------------------------------------


def refusal(versions: dict[str, str | None]) -> str | None:
    """What `auto` says of the recorded choice, had it been measured here with these versions."""
    kept = results.load_choice(RESULTS / "h200-choose-article" / "choice.json")
    here = msgspec.structs.replace(detect("cpu"), interpreted=False)
    then = msgspec.structs.replace(kept.holds, device=here.name, capability=here.capability, versions=versions)
    return Auto(msgspec.structs.replace(kept, holds=then)).unsupported(kept.spec, here)


def test_a_choice_of_before_that_names_too_little_is_refused_with_the_names() -> None:
    here = conditions.conditions(detect("cpu"), ["fused", "quack"]).versions
    found = refusal({name: there for name, there in here.items() if name not in ("nvidia-cutlass-dsl", "torch")})
    assert found is not None
    assert "it does not say which nvidia-cutlass-dsl, torch it was measured with" in found


@pytest.mark.parametrize(("name", "there"), [("tabulate", "0.0.1"), ("no-such-thing", "1.2")])
def test_a_choice_holds_for_every_distribution_that_it_names(name: str, there: str) -> None:
    found = refusal({**conditions.conditions(detect("cpu"), ["fused", "quack"]).versions, name: there})
    assert found is not None
    assert f"{name} {there} there, {provenance.version(name) or 'not installed'} here" in found


def test_a_choice_names_what_was_imported_for_the_chosen_backends_alone() -> None:
    made = Row(backend="eager", status="ok", distributions={"tabulate": metadata.version("tabulate"), "o/n": "1"})
    other = Row(backend="compile", status="ok", distributions={"msgspec": metadata.version("msgspec")})
    found = provenance.of_choice([made, other, made], ["eager"])
    assert found == {"tabulate"}
