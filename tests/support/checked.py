"""Puts one check of the validator to targets that a test writes."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from mlpfusion.stages.validate.judge import examine
from mlpfusion.stages.validate.judge.exam import Asked

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.records.validation import Verdict

HEAD = """
import torch
from torch.nn.functional import gelu, linear

def right(gate, up):
    return gelu(gate, approximate="tanh") * up

def right_mlp(x, wg, wu, wd):
    return linear(right(linear(x, wg), linear(x, wu)), wd)

"""


def by(bench: examine.Bench, folder: Path, check: str, body: str, operands: str = "gate, up") -> Verdict:
    """The verdict of one check on a function of these operands with this body."""
    path = folder / "target.py"
    body = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    path.write_text(f"{HEAD}kept = []\ndef target({operands}):\n{body}\n", encoding="utf-8")
    return examine.examine(
        bench,
        examine.Order(f"{path}:target", "gelu_tanh"),
        Asked(only=(check,)),
        seed=examine.new_seed(),
        sources=lambda name, text: None,
        tell=lambda name, text: None,
    )
