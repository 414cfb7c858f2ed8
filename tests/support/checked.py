"""Puts one check of the validator to targets that a test writes."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import pytest

from mlpfusion.spec import DTYPES
from mlpfusion.stages.validate.judge import self_test
from support import rings
from support.targets_made import verdict_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from mlpfusion.records.validation import Verdict
    from mlpfusion.stages.validate.judge.examine import Bench

HEAD = """
import torch
from torch.nn.functional import gelu, linear

def right(gate, up):
    return gelu(gate, approximate="tanh") * up

def right_mlp(x, wg, wu, wd):
    return linear(right(linear(x, wg), linear(x, wu)), wd)

"""


def by(bench: Bench, folder: Path, check: str, body: str, operands: str = "gate, up", **asked: Any) -> Verdict:
    """The verdict of one check on a function of these operands with this body, and what else is asked."""
    path = folder / "target.py"
    body = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    path.write_text(f"{HEAD}kept = []\ndef target({operands}):\n{body}\n", encoding="utf-8")
    return verdict_of(bench, f"{path}:target", only=(check,), **asked)


def of_control(bench: Bench, control: str, check: str, *dtypes: str, **asked: Any) -> Verdict:
    """The verdict of one check on a control that ships, named as in the table of controls, and what else is asked."""
    return verdict_of(bench, f"{self_test.folder() / control}", only=(check,), dtypes=dtypes or None, **asked)


def judging(
    wrong: Mapping[str, str],
    *,
    right: str = "return right(gate, up)",
    operands: str = "gate, up",
    statuses: Collection[str] = ("pass",),
) -> tuple[Callable[..., None], Callable[..., None]]:
    """Two tests of checks: each finds the fault of its body in `wrong`, and what is right gets one of `statuses`.

    The first ring judges what is right in float32 alone.
    """

    @pytest.mark.parametrize("check", wrong)
    def finds_the_fault(bench: Bench, tmp_path: Path, check: str) -> None:
        verdict = by(bench, tmp_path, check, wrong[check], operands, until_failure=True)
        assert verdict.word != "valid"
        assert check in verdict.headline

    @pytest.mark.parametrize("check", wrong)
    def finds_none(bench: Bench, tmp_path: Path, check: str) -> None:
        asked = {"dtypes": DTYPES[-1:]} if rings.is_first() else {}
        verdict = by(bench, tmp_path, check, right, operands, **asked)
        found = {one.status for one in verdict.checks if one.name == check}
        assert found
        assert found <= set(statuses)

    return finds_the_fault, finds_none
