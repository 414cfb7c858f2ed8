"""The Hub tree: it validates, loads through `kernels`, really replaces layers, shares nothing with the pip copy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import mlpfusion_kernels
import pytest
import torch
from kernels._rust import Build, Metadata
from support.paths import ROOT
from torch import nn

from kernels import (  # type: ignore[attr-defined]  # which mypy takes for the folder of tests
    LocalLayerRepository,
    Mode,
    get_local_kernel,
    kernelize,
    use_kernel_forward_from_hub,
    use_kernel_mapping,
)
from mlpfusion.storage import hub_tree
from mlpfusion.storage.hub_tree import VARIANTS, build_hub_tree, installed_package

SOURCE = ROOT / "kernels"
LAYERS = {layer.__name__: activation for activation, layer in mlpfusion_kernels.layers.LAYERS.items()}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_hub_tree(tmp_path_factory.mktemp("hub"))


@use_kernel_forward_from_hub("GatedMLP")
class MLP(nn.Module):
    """A model's MLP whose own forward is wrong on purpose: a swap shows in the values too."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(6, 8, bias=False)
        self.up_proj = nn.Linear(6, 8, bias=False)
        self.down_proj = nn.Linear(8, 6, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 0


def wrong_copy(directory: Path) -> Path:
    """The package with its ReLU doubled."""
    copy = directory / hub_tree.PACKAGE
    shutil.copytree(installed_package(), copy, ignore=shutil.ignore_patterns("__pycache__"))
    device_code = copy / "activations.py"
    right = device_code.read_text()
    wrong = right.replace("a = tl.where(g <= 0, 0.0, g)", "a = tl.where(g <= 0, 0.0, 2 * g)")
    assert wrong != right
    device_code.write_text(wrong)
    return copy


def test_the_source_tree_is_valid_and_agrees_with_the_build_step() -> None:
    build = Build.open(SOURCE)
    assert {str(backend).lower() for backend in build.general.backends} == {"cpu", "cuda", "rocm", "xpu"}
    text = (SOURCE / "build.toml").read_text()
    for line in (f'name = "{hub_tree.NAME}"', f"version = {hub_tree.VERSION}", f'license = "{hub_tree.LICENSE}"'):
        assert line in text
    assert not (SOURCE / "__init__.py").exists(), "it would hide Hugging Face's `kernels` from imports"


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_variant_has_metadata_that_kernels_accepts(tmp_path: Path, variant: str) -> None:
    build_hub_tree(tmp_path, variants=[variant])
    directory = tmp_path / "build" / variant
    metadata = Metadata.read_from_file(directory / "metadata.json")
    assert str(metadata.backend.backend_type).lower() == VARIANTS[variant]
    assert metadata.name.python_name == hub_tree.PACKAGE
    assert metadata.python_depends == []
    copied = {path.relative_to(directory) for path in directory.rglob("*.py")}
    assert copied == {path.relative_to(installed_package()) for path in installed_package().rglob("*.py")}


def test_it_loads_and_computes(tree: Path) -> None:
    loaded = get_local_kernel(tree)
    assert sorted(loaded.__all__) == sorted(mlpfusion_kernels.__all__)
    gate, up = torch.randn(3, 5), torch.randn(3, 5)
    for activation in loaded.ACTIVATIONS:
        assert torch.equal(loaded.act_mul(gate, up, activation), mlpfusion_kernels.act_mul(gate, up, activation))
        x, *weights = torch.randn(3, 16), torch.randn(32, 16), torch.randn(32, 16), torch.randn(16, 32)
        ys = [copy.gated_mlp(x, copy.Weights(*weights), activation) for copy in (loaded, mlpfusion_kernels)]
        assert torch.equal(*ys)


def test_ids_follow_the_contents(tmp_path: Path) -> None:
    def built_id(name: str, package: Path | None = None, variant: str = "torch-cpu") -> str:
        build_hub_tree(tmp_path / name, package=package, variants=[variant])
        text = (tmp_path / name / "build" / variant / "metadata.json").read_text()
        return str(json.loads(text)["id"])

    wrong = wrong_copy(tmp_path)
    assert built_id("a") == built_id("b")
    assert built_id("a") != built_id("c", wrong)
    assert built_id("a") != built_id("a", variant="torch-cuda")
    assert built_id("a").isidentifier()


def test_building_again_replaces_other_contents_and_nothing_else(tmp_path: Path) -> None:
    wrong = wrong_copy(tmp_path)
    target = build_hub_tree(tmp_path / "tree") / "build" / "torch-universal"
    stamp = target.stat().st_ino
    build_hub_tree(tmp_path / "tree")
    assert target.stat().st_ino == stamp
    build_hub_tree(tmp_path / "tree", package=wrong)
    assert "2 * g" in (target / "activations.py").read_text()
    assert [path.name for path in target.parent.iterdir()] == ["torch-universal"]


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown variant 'torch-tpu'; known: torch-universal, torch-cpu"):
        build_hub_tree(tmp_path, variants=["torch-tpu"])
    with pytest.raises(FileNotFoundError, match="no Python package"):
        build_hub_tree(tmp_path, package=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert hub_tree.main([str(tmp_path), "--variant", "torch-cpu", "--variant", "torch-cuda"]) == 0
    printed = capsys.readouterr().out.split()
    assert [Path(line).name for line in printed] == ["torch-cpu", "torch-cuda"]
    assert all((Path(line) / "metadata.json").is_file() for line in printed)
    with pytest.raises(SystemExit, match="2"):
        hub_tree.main([str(tmp_path), "--package", str(tmp_path / "missing")])


def test_the_build_step_needs_no_torch(tmp_path: Path) -> None:
    build = f"from mlpfusion.storage.hub_tree import main; main([{str(tmp_path)!r}])"
    code = f"import sys; {build}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], env=environment(), check=True, capture_output=True)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("mode", [Mode.INFERENCE, Mode.TRAINING, Mode.TRAINING | Mode.TORCH_COMPILE])
def test_kernelize_really_replaces_the_forward(tree: Path, layer: str, mode: Mode) -> None:
    own = MLP()
    x = torch.randn(4, 6, requires_grad=True)
    with use_kernel_mapping({"GatedMLP": {"cpu": LocalLayerRepository(tree, layer_name=layer)}}, inherit_mapping=False):
        swapped = kernelize(own, mode=mode, device="cpu", use_fallback=False)
    assert swapped is own
    assert own.forward.__func__ is not MLP.forward  # type: ignore[attr-defined]
    assert own.forward.__func__.__qualname__ == f"{layer}.forward"  # type: ignore[attr-defined]
    gate, up = own.gate_proj(x), own.up_proj(x)
    want = own.down_proj(mlpfusion_kernels.act_mul_reference(gate, up, LAYERS[layer]))
    y = own(x)
    torch.testing.assert_close(y, want)
    got_grads, want_grads = (torch.autograd.grad(out.sum(), [x, *own.parameters()]) for out in (y, want))
    for got, wanted in zip(got_grads, want_grads, strict=True):
        torch.testing.assert_close(got, wanted)


# `kernels benchmark` runs where the build of PyTorch could, CUDA say, whether there is a card or not.
BENCHMARK = """
import sys
import torch
from kernels.cli import main
if not torch.cuda.is_available():
    torch.version.cuda = torch.version.hip = None
sys.exit(main())
"""


@pytest.mark.full  # all its workloads in an interpreter
def test_the_source_trees_benchmark_runs(tree: Path, tmp_path: Path) -> None:
    shutil.copytree(tree / "build", tmp_path / "build")
    shutil.copytree(SOURCE / "benchmarks", tmp_path / "benchmarks")
    output = tmp_path / "result.json"
    command = [sys.executable, "-c", BENCHMARK, "benchmark"]
    run = subprocess.run(
        [*command, str(tmp_path), "--iterations", "2", "--warmup", "0", "--output", str(output)],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    results = json.loads(output.read_text())["results"]
    assert len(results) == 3
    assert all(result["verified"] for result in results)


# Each case in a process of its own, as a fork of one that has imported what takes long and no copy yet.
TWO_COPIES = """
import importlib
import json
import os
import sys
from pathlib import Path
import torch
import triton.language
from kernels import get_local_kernel

def values(tree, order, first_on_path):
    sys.path[:0] = first_on_path
    loaders = {"pip": lambda: importlib.import_module("mlpfusion_kernels"), "hub": lambda: get_local_kernel(Path(tree))}
    copies = {name: loaders[name]() for name in order}
    gate = torch.tensor([3.0], requires_grad=True)
    up = torch.tensor([1.0])
    for copy in (copies["pip"], copies["hub"]):
        eager = copy.act_mul(gate, up, "relu")
        compiled = torch.compile(lambda g, u: copy.act_mul(g, u, "relu"), fullgraph=True, backend="aot_eager")(gate, up)
        (slope,) = torch.autograd.grad(compiled, gate)
        yield from (eager.item(), compiled.item(), slope.item())
        x, weights = torch.full((1, 16), 3.0), copy.Weights(torch.eye(16), torch.eye(16), torch.eye(16))
        eager = copy.gated_mlp(x, weights, "relu")
        compiled = torch.compile(lambda x: copy.gated_mlp(x, weights, "relu"), fullgraph=True, backend="aot_eager")(x)
        yield from (eager[0, 0].item(), compiled[0, 0].item())

# Imports the compiler. Without a gradient: no fork may go on with threads of autograd's that another process began.
torch.compile(lambda x: x + 1, backend="aot_eager")(torch.ones(1))
assert "mlpfusion_kernels" not in sys.modules
for case in json.load(sys.stdin):
    if not (child := os.fork()):
        print(json.dumps(list(values(*case))), flush=True)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"failed: {case}")
"""
ORDERS = (("pip", "hub"), ("hub", "pip"))


@pytest.fixture(scope="module")
def two_copies(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, tuple[str, str]], list[float]]:
    """What both copies compute, the pip copy's values first: by which of them is wrong, and the order of loading."""
    folder = tmp_path_factory.mktemp("two")
    bad = wrong_copy(folder / "wrong")
    places = {"pip": (str(tree), [str(bad.parent)]), "hub": (str(build_hub_tree(folder / "tree", package=bad)), [])}
    cases = [(wrong, order) for wrong in places for order in ORDERS]
    run = subprocess.run(
        [sys.executable, "-c", TWO_COPIES],
        input=json.dumps([(places[wrong][0], order, places[wrong][1]) for wrong, order in cases]),
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return dict(zip(cases, map(json.loads, run.stdout.splitlines()), strict=True))


@pytest.mark.full  # four processes that compile: twenty seconds
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("wrong", ["pip", "hub"])
def test_a_wrong_copy_leaves_the_other_copy_right(
    wrong: str, order: tuple[str, str], two_copies: dict[tuple[str, tuple[str, str]], list[float]]
) -> None:
    """torch.library overwrites an operator of the same name for every caller, without a word."""
    right_values, wrong_values = [3.0, 3.0, 1.0, 9.0, 9.0], [6.0, 6.0, 1.0, 18.0, 18.0]
    want = [*right_values, *wrong_values] if wrong == "hub" else [*wrong_values, *right_values]
    assert two_copies[wrong, order] == want


def environment() -> dict[str, str]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {**os.environ, "PYTHONPATH": path, "TRITON_INTERPRET": "1"}
