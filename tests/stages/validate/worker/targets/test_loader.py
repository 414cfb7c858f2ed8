"""What a text may name as a target, however it is wrapped, and what is said of what it cannot be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from support.targets_made import verdict_of, written

from mlpfusion.cli.main import main
from mlpfusion.stages.validate.judge import examine as examine_judge
from mlpfusion.storage.hub_tree import build_hub_tree
from mlpfusion.testing import name_of

if TYPE_CHECKING:
    from pathlib import Path


# ---- directories of the Hub ------------------------------------------------------------------------------------------

KERNEL = """
def geglu(gate, up):
    return F.gelu(gate, approximate="tanh") * up

def annotated(g: torch.Tensor, u: "torch.Tensor", activation: str):
    return F.gelu(g, approximate="tanh") * u

def pad_to(n, multiple):
    return -(-n // multiple) * multiple

def rounded(rows: int, to: int) -> int:
    return -(-rows // to) * to

def launch(x: torch.Tensor, out: torch.Tensor, rows: int, width: int):
    return None

def _hidden(gate, up):
    return gate * up
"""


def hub(folder: Path, init: str, name: str) -> str:
    """A Hub kernel directory with KERNEL as a module `ops` and this `__init__`; another name for each."""
    written(folder, KERNEL, f"{name}/torch-ext/{name}/ops.py")
    written(folder, init, f"{name}/torch-ext/{name}/__init__.py")
    return str(build_hub_tree(folder / f"{name}-built", package=folder / name / "torch-ext" / name))


STAR = "from .ops import *\nfrom torch.nn.functional import cosine_similarity\n"
TREES = {
    "its_own": (STAR, ["geglu", "annotated"]),
    "public": (STAR + "from .ops import _hidden\n__all__ = ['geglu', 'pad_to', '_hidden']\n", ["geglu"]),
    "layered": ("from . import layers\nfrom .ops import geglu\n", ["geglu", "layers.Act"]),
}


@pytest.mark.parametrize("name", TREES)
def test_a_hub_kernel_is_its_kernels_without_their_helpers(
    bench: examine_judge.Bench, tmp_path: Path, name: str
) -> None:
    init, expected = TREES[name]
    layer = "class Act(nn.Module):\n    def forward(self, gate, up):\n        return gate * up\n"
    written(tmp_path, layer, f"{name}/torch-ext/{name}/layers.py")
    directory = hub(tmp_path, init, name)
    orders = examine_judge.expand(bench, [directory], None, time_limit_s=900)
    assert [order.target.rpartition(":")[2] for order in orders] == expected
    assert verdict_of(bench, orders[0].target, only=("elementwise",), dtypes=("float32",)).word == "valid"


# ---- callables of every kind -----------------------------------------------------------------------------------------

CALLABLES = """
class Act(nn.Module):
    def forward(self, gate, up):
        return F.gelu(gate, approximate="tanh") * up

instance = Act()

class Geglu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        return F.gelu(gate, approximate="tanh") * up

class Apart(torch.autograd.Function):
    @staticmethod
    def forward(gate, up):
        return F.gelu(gate, approximate="tanh") * up

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

@torch.library.custom_op("mlpfusion_loading::geglu", mutates_args=())
def operator(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.gelu(gate, approximate="tanh") * up

def star(*tensors):
    return operator(*tensors)

def decorated(function):
    def inner(*args, **kwargs):
        return function(*args, **kwargs)
    return inner

@decorated
def wrapped(gate, up):
    return operator(gate, up)

class Whole(nn.Module):
    def __init__(self, hidden_size, intermediate_size, bias=True):
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, intermediate_size, bias=bias)
        self.up_proj = nn.Linear(hidden_size, intermediate_size, bias=bias)
        self.down_proj = nn.Linear(intermediate_size, hidden_size, bias=bias)

    def forward(self, x):
        return self.down_proj(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x))

class Without(Whole):
    def __init__(self, hidden_size, intermediate_size):
        super().__init__(hidden_size, intermediate_size, bias=False)

whole = Without(64, 128)

def ok(gate, up):
    return operator(gate, up)
"""


@pytest.mark.parametrize("name", ["instance", "Geglu.apply", "Apart.apply", "operator", "ok"])
def test_an_act_mul_may_be_any_callable(bench: examine_judge.Bench, tmp_path: Path, name: str) -> None:
    verdict = verdict_of(bench, f"{written(tmp_path, CALLABLES)}:{name}", only=("elementwise",), dtypes=("float32",))
    assert (verdict.word, verdict.kind) == ("valid", "act_mul"), verdict.headline


def test_a_module_class_without_biases_is_a_target(bench: examine_judge.Bench, tmp_path: Path) -> None:
    verdict = verdict_of(bench, f"{written(tmp_path, CALLABLES)}:Without", only=("mlp-values",), dtypes=("float32",))
    assert (verdict.word, verdict.kind) == ("valid", "mlp"), verdict.headline


def test_a_custom_operator_without_a_backward_is_forward_only(bench: examine_judge.Bench, tmp_path: Path) -> None:
    verdict = verdict_of(
        bench, f"{written(tmp_path, CALLABLES)}:operator", only=("elementwise", "differentiable"), dtypes=("float32",)
    )
    assert verdict.word == "valid"
    assert verdict.headline == "every check passed; forward only"
    said = next(each for each in verdict.checks if each.name == "differentiable")
    assert said.sentence.startswith("forward only: its backward raises ")
    assert "no autograd formula was registered" in said.sentence


class Mine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return gate * up


def test_the_name_of_an_apply_is_that_of_its_class() -> None:
    assert name_of(Mine.apply).endswith(":Mine.apply")
    assert name_of(Mine.apply).rpartition(":")[0] == name_of(Mine).rpartition(":")[0]


# ---- what is no target, or not for these checks ----------------------------------------------------------------------

UNREAD = "cannot be read; wrap it as a function: def f(gate, up): return "
USAGE = [
    ("{mine}:star", "runs", UNREAD + "star(gate, up)"),
    ("{mine}:wrapped", "runs", UNREAD + "wrapped(gate, up)"),
    ("torch:mul", "runs", UNREAD + "mul(gate, up)"),
    ("{mine}:whole", "runs", "is a Without whose forward takes (x); name its class"),
    (
        "{mine}:Whole",
        "runs",
        "has parameters that are not set: gate_proj.bias, up_proj.bias, down_proj.bias; build it without biases, or "
        "validate a function (x, wg, wu, wd)",
    ),
    ("{mine}:ok:x", "runs", ":ok:x' must be FILE.py:NAME or MODULE:NAME, and '"),
    ("{mine}:ok", "mlp-values", "check 'mlp-values' is for MLPs; {mine}:ok is an act·mul"),
    ("{mine}:ok", "function,tf32", "check 'tf32' is for MLPs; {mine}:ok is an act·mul"),
    ("{mine}:Without", "layouts,elementwise", "check 'elementwise' is for act·muls; {mine}:Without is an MLP"),
]


@pytest.mark.usefixtures("bench")
@pytest.mark.parametrize(("target", "only", "words"), USAGE, ids=[f"{target} {only}" for target, only, _ in USAGE])
def test_a_wrong_use_is_code_2_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str, only: str, words: str
) -> None:
    mine = written(tmp_path, CALLABLES)
    assert main(["validate", target.format(mine=mine), "--device", "cpu", "--against", "none", "--only", only]) == 2
    said = capsys.readouterr().err
    assert words.format(mine=mine) in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("only", "headline"),
    [
        ("runs", "it runs; none of the deciding checks was requested"),
        ("store", "none of the requested checks is for float32"),
    ],
)
def test_nothing_judged_is_not_valid(bench: examine_judge.Bench, tmp_path: Path, only: str, headline: str) -> None:
    verdict = verdict_of(bench, f"{written(tmp_path, CALLABLES)}:ok", only=(only,), dtypes=("float32",))
    assert (verdict.word, verdict.headline) == ("not decidable here", headline)
