"""What is almost a target gets one line with a wrapper, and that wrapper is a target."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from support import rings
from support.targets_made import verdict_of, written

from mlpfusion.errors import UsageError
from mlpfusion.stages.validate import hints
from mlpfusion.stages.validate.judge import examine as examine_judge

if TYPE_CHECKING:
    from pathlib import Path

NEARLY = """
def act(gate, up):
    return F.gelu(gate, approximate="tanh") * up

def packed(x):
    return act(*x.chunk(2, dim=-1))

def out_first(out, gate, up):
    out.copy_(act(gate, up))

def out_last(gate, up, output):
    output.copy_(act(gate, up))

def packed_out_first(out, x):
    out.copy_(packed(x))

def by_name(*, gate, up):
    return act(gate, up)

def half_by_name(gate, *, up):
    return act(gate, up)

def mlp(x, w1, w2, w3):
    return F.linear(act(F.linear(x, w1), F.linear(x, w2)), w3)

def mlp_by_name(*, hidden, gate_weight, up_weight, down_weight):
    return mlp(hidden, gate_weight, up_weight, down_weight)

def mlp_out_first(out, x, w1, w2, w3):
    out.copy_(mlp(x, w1, w2, w3))

def turned(x, w1, w2, w3):
    return act(x @ w1, x @ w2) @ w3

class Joint(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate_up_proj = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, hidden_states):
        gate, up = self.gate_up_proj(hidden_states).chunk(2, dim=-1)
        return self.down_proj(act(gate, up))
"""
MISTAKES = {
    "packed": "takes one operand, gate and up side by side [M, 2H]",
    "out_first": "writes into its parameter 'out'",
    "out_last": "writes into its parameter 'output'",
    "packed_out_first": "writes into its parameter 'out'",
    "by_name": "takes gate, up by name alone",
    "half_by_name": "takes up by name alone",
    "mlp_by_name": "takes hidden, gate_weight, up_weight, down_weight by name alone",
    "mlp_out_first": "writes into its parameter 'out'",
    "turned": "has its weights the other way round than wg, wu [H, D] and wd [D, H]",
    "Joint": "has gate and up in one layer, gate_up_proj",
}


def said(bench: examine_judge.Bench, target: str) -> str:
    """The refusal of a target, or its headline where it runs only to refuse its operands."""
    try:
        examine_judge.expand(bench, [target], None, time_limit_s=900)
    except UsageError as error:
        return str(error)
    return verdict_of(bench, target, only=("runs",), dtypes=("float32",)).headline


@pytest.mark.parametrize("name", rings.first_of_each(MISTAKES, lambda name: name.partition("_")[0] == "mlp"))
def test_the_mistake_is_named_and_the_wrapper_is_a_target(
    bench: examine_judge.Bench, tmp_path: Path, name: str
) -> None:
    line = said(bench, written(tmp_path, NEARLY) + f":{name}")
    assert MISTAKES[name] in line
    assert "\n" not in line
    wrapper = re.search(r"def wrapped\(.*?\): (?:(?!, with layer = ).)*", line)
    assert wrapper is not None
    text = f"{NEARLY}\n{wrapper[0]}\n"
    if name == "Joint":
        text += "import types\nlayer = Joint(types.SimpleNamespace(hidden_size=1, intermediate_size=1))\n"
    checks = ("elementwise", "mlp-values")
    verdict = verdict_of(bench, written(tmp_path, text, "again.py") + ":wrapped", only=checks, dtypes=("float32",))
    assert verdict.word == "valid", verdict.headline


SCRIPTS = {
    "arguments": "import argparse\nargparse.ArgumentParser().parse_args()\n",
    "needed": "import argparse\np = argparse.ArgumentParser()\np.add_argument('size')\np.parse_args()\n",
    "ends": "sys.exit(0)\n",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_that_ends_where_it_is_imported_is_named(
    bench: examine_judge.Bench, tmp_path: Path, name: str
) -> None:
    path = written(tmp_path, SCRIPTS[name] + "\ndef good(gate, up):\n    return gate * up\n", f"{name}.py")
    assert 'if __name__ == "__main__":' in said(bench, f"{path}:good")


@pytest.mark.parametrize(
    ("operands", "keywords"),
    [
        (["gate", "up"], []),
        (["x", "wg", "wu", "wd"], []),
        (["gate", "up", "n"], []),
        (["a", "b", "c", "d", "e"], []),
        (["gate", "up"], ["block"]),
        ([], []),
    ],
)
def test_what_is_a_target_or_nothing_like_one_gets_no_hint(operands: list[str], keywords: list[str]) -> None:
    assert hints.of_operands("f", operands, keywords) is None


@pytest.mark.parametrize("layers", [[], ["w1", "w2", "w3"], ["fc1", "fc2"], ["gate_up_proj"]])
def test_other_modules_get_none_either(layers: list[str]) -> None:
    assert hints.of_module("M", layers) is None


@pytest.mark.parametrize("text", ["needs a GPU", "ValueError: not for float32", ""])
def test_nor_do_other_refusals(text: str) -> None:
    assert hints.of_refusal("f", text) is None
