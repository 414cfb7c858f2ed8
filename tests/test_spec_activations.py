"""The table of activations: whatever is kept by an activation's name is there for each, and nothing else lists them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import mlpfusion_kernels
import msgspec
import pytest
import torch
from mlpfusion_kernels.layers import LAYERS
from support.paths import ROOT

from mlpfusion import reference
from mlpfusion.backends import eager, liger_shared, quack
from mlpfusion.cli import text
from mlpfusion.device import detect
from mlpfusion.records.tuning import Question
from mlpfusion.spec import ACTIVATION_ALIASES, ACTIVATIONS, TABLE, MLPSpec, parse_activation

if TYPE_CHECKING:
    from mlpfusion.spec import ActivationRow

EACH = pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
# The places that an activation has, and those that know third parties' names.
OURS = {
    "src/mlpfusion/spec.py",
    "src/mlpfusion/reference.py",
    "src/mlpfusion/backends/eager.py",
    "kernels/torch-ext/mlpfusion_kernels/activations.py",
}
THEIRS = {"src/mlpfusion/backends/liger_shared.py", "src/mlpfusion/backends/quack.py"}
# Operators of PyTorch and fields of Hugging Face configs have the same names.
FOREIGN = (
    "src/mlpfusion/trace/names",
    "src/mlpfusion/models",
    "src/mlpfusion/stages/validate/worker/functions.py",
)


def test_what_is_kept_by_name_is_there_for_each_activation() -> None:
    for kept in (reference.FORMULAS, eager.FUNCTIONS, LAYERS):
        assert tuple(kept) == ACTIVATIONS
    assert mlpfusion_kernels.ACTIVATIONS == ACTIVATIONS
    assert text.ACTIVATIONS.split("|") == list(ACTIVATIONS)
    for some in (liger_shared.LAYERS, quack.ACTIVATIONS):
        assert set(some) < set(ACTIVATIONS)


def test_no_file_but_those_of_the_table_lists_activations() -> None:
    for path in [*ROOT.glob("src/**/*.py"), *ROOT.glob("kernels/torch-ext/**/*.py")]:
        place = path.relative_to(ROOT).as_posix()
        if place in OURS | THEIRS or place.startswith(FOREIGN):
            continue
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        named = {node.value for node in nodes if isinstance(node, ast.Constant) and node.value in ACTIVATIONS}
        assert len(named) <= 1, (place, named)


def test_a_name_means_one_activation() -> None:
    for alias, name in ACTIVATION_ALIASES.items():
        assert parse_activation(alias) == name
        assert alias == name or alias not in ACTIVATIONS
    listed = [name for row in TABLE for name in {row.name, row.hidden_act, *row.aliases}]
    assert len(listed) == len(set(listed))


@EACH
def test_every_name_of_transformers_makes_this_function(row: ActivationRow) -> None:
    made = pytest.importorskip("transformers.activations").ACT2FN
    assert row.hidden_act in made
    g = torch.linspace(-30, 30, 4001, dtype=torch.float64)
    for name in (row.hidden_act, *row.aliases):
        if name in made:
            torch.testing.assert_close(made[name](g), reference.activate(g, row.name), rtol=1e-9, atol=1e-11)


@EACH
def test_what_pytorch_runs_is_the_formula(row: ActivationRow) -> None:
    g = torch.linspace(-30, 30, 4001, dtype=torch.float64, requires_grad=True)
    mine, right = eager.activation_function(row.name)(g), reference.activate(g, row.name)
    torch.testing.assert_close(mine, right, rtol=1e-9, atol=1e-11)
    slopes = (torch.autograd.grad(each.sum(), g)[0] for each in (mine, right))
    torch.testing.assert_close(*slopes, rtol=1e-9, atol=1e-11)


@EACH
def test_as_many_derivatives_are_continuous_at_0_as_the_table_says(row: ActivationRow) -> None:
    below, above = (torch.tensor(sign * 1e-9, dtype=torch.float64, requires_grad=True) for sign in (-1, 1))
    values = [reference.activate(g, row.name) for g in (below, above)]
    for order in range(1, 4):
        jumps = bool(abs(values[0] - values[1]) > 1e-6)
        assert jumps == (order > row.smoothness + 1)
        if jumps:
            break
        values = [
            torch.autograd.grad(value, g, create_graph=True, materialize_grads=True)[0]
            for value, g in zip(values, (below, above), strict=True)
        ]


@EACH
def test_records_take_each_activation_and_no_other(row: ActivationRow) -> None:
    spec = MLPSpec(hidden_size=8, intermediate_size=8, activation=row.name)
    assert msgspec.json.decode(msgspec.json.encode(spec), type=MLPSpec) == spec
    fields = dict.fromkeys(("hidden_size", "intermediate_size", "tokens"), 16)
    question = {"direction": "forward", "dtype": "bfloat16", "activation": row.name, **fields}
    assert msgspec.convert(question, Question).activation == row.name
    with pytest.raises(msgspec.ValidationError, match="activation"):
        msgspec.convert(question | {"activation": "tanh"}, Question)


@EACH
def test_a_third_party_that_has_none_refuses_it_by_name(row: ActivationRow) -> None:
    spec = MLPSpec(hidden_size=64, intermediate_size=64, activation=row.name)
    for reason, known in (
        (liger_shared.beyond_liger(spec, detect("cpu"), tiles_wide_rows=False), liger_shared.LAYERS),
        (quack._beyond_quack(spec), quack.ACTIVATIONS),
    ):
        assert (reason is None) == (row.name in known)
        assert reason is None or (f"{row.name}; valid: {', '.join(known)}" in reason)
