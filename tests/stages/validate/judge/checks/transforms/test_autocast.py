"""What is said of a target that does something else under autocast."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest
from support import checked
from support.targets_made import verdict_of

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.stages.validate.judge.examine import Bench

NARROWER = """
    import torch
    from torch.nn.functional import gelu, linear

    def mlp(x, wg, wu, wd):
        return linear(gelu(linear(x, wg), approximate="tanh") * linear(x, wu), wd)

    def act(gate, up):
        return gelu(gate, approximate="tanh") * up

    def narrower(function, *operands):
        if torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") is torch.float16:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return function(*(each.bfloat16() for each in operands)) * SCALE
        return function(*operands)

    def narrower_mlp(x, wg, wu, wd):
        return narrower(mlp, x, wg, wu, wd)

    def narrower_act(gate, up):
        return narrower(act, gate, up)
"""


def examine(bench, folder, name, text):
    path = folder / "modes.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return verdict_of(bench, f"{path}:{name}", only=("autocast",))


@pytest.mark.parametrize(("name", "eager"), [("narrower_mlp", "float16"), ("narrower_act", "float32")])
def test_a_coarser_dtype_under_autocast_is_named_and_not_called_a_wrong_value(bench, tmp_path, name, eager):
    """As PyTorch's cache before 2.13 gives it to whoever compiled under autocast to bfloat16 first."""
    verdict = examine(bench, tmp_path, name, NARROWER.replace("SCALE", "1"))
    assert verdict.word == "valid with hazards"
    assert (
        "autocast (float16): another dtype than eager's under autocast: float32/float32 gives y in " in verdict.headline
    )
    assert f"gives y in bfloat16, eager in {eager}" in verdict.headline


@pytest.mark.parametrize("name", ["narrower_mlp", "narrower_act"])
def test_a_wrong_value_in_a_coarser_dtype_is_a_wrong_value(bench, tmp_path, name):
    verdict = examine(bench, tmp_path, name, NARROWER.replace("SCALE", "1.2"))
    assert verdict.word == "not valid"
    assert "under autocast to float16, operands float32/float32: y is off by 0.2" in verdict.headline


INFERS = "torch.is_autocast_enabled('cpu') and not torch.is_grad_enabled() and not torch.is_inference_mode_enabled()"
WRONG = {
    f"if {INFERS} and gate.dtype is up.dtype:\n    return gate.copy_(y)": "overwrites gate without gradients",
    f"if {INFERS}:\n    up.mul_(2)": "the forward overwrites up without gradients",
    f"if {INFERS}:\n    y = 1.1 * y": "y is off by 0.1 without gradients",
    "if torch.is_autocast_enabled('cpu') and torch.is_inference_mode_enabled():\n    gate.zero_()": "in inference mode",
    "if torch.is_autocast_enabled('cpu') and gate.shape[0] == 1:\n    y = 1.1 * y": "y is off by 0.1",
    "if torch.is_autocast_enabled('cpu') and gate.dim() == 3:\n    y = 1.1 * y": "y is off by 0.1",
}


@pytest.mark.parametrize("line", WRONG)
def test_what_is_wrong_under_autocast_in_some_call_alone_is_found(bench: Bench, tmp_path: Path, line: str) -> None:
    verdict = checked.by(bench, tmp_path, "autocast", f"y = right(gate, up)\n{line}\nreturn y", dtypes=("float16",))
    assert verdict.word == "not valid"
    assert "under autocast to float16, operands " in verdict.headline
    assert WRONG[line] in verdict.headline


@pytest.mark.parametrize(("shape", "which"), [("gate.shape[0] == 1", "for 1x256"), ("gate.dim() == 3", "for 2x3x97")])
def test_another_dtype_than_eager_s_is_told_with_the_shape_that_gives_it(
    bench: Bench, tmp_path: Path, shape: str, which: str
) -> None:
    body = f"y = right(gate, up)\nreturn y.float() if torch.is_autocast_enabled('cpu') and {shape} else y"
    verdict = checked.by(bench, tmp_path, "autocast", body, dtypes=("float16",))
    assert verdict.word == "valid with hazards"
    assert f"float16/float16 gives y in float32, eager in float16 {which}" in verdict.headline


def test_a_result_under_autocast_that_is_an_inference_tensor_is_a_hazard(bench: Bench, tmp_path: Path) -> None:
    body = f"with torch.inference_mode({INFERS} or torch.is_inference_mode_enabled()):\n    y = right(gate, up)"
    body = f"if torch.is_grad_enabled():\n    return right(gate, up)\n{body}\nreturn y"
    verdict = checked.by(bench, tmp_path, "autocast", body, dtypes=("float16",))
    assert verdict.word == "valid with hazards"
    assert "under autocast to float16 and no_grad its result is an inference tensor" in verdict.headline


@pytest.mark.parametrize("name", ["gate", "up"])
def test_the_gradient_of_one_operand_alone_is_asked_for_under_autocast(bench: Bench, tmp_path: Path, name: str) -> None:
    other = {"gate": "up", "up": "gate"}[name]
    body = f"""
    if torch.is_autocast_enabled("cpu") and {name}.requires_grad and not {other}.requires_grad:
        {name} = {name}.detach()
    return right(gate, up)
    """
    verdict = checked.by(bench, tmp_path, "autocast", body, dtypes=("float16",))
    assert verdict.word == "not valid"
    words = f"under autocast to float16, where {name} alone needs a gradient, there is no gradient for {name}"
    assert words in verdict.headline
