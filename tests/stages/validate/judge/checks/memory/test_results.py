"""The check that a result is the caller's to keep, by faults in some kinds of call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import checked
from support.targets_made import verdict_of

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.stages.validate.judge.examine import Bench

WRONG = {
    "results-kept": """
        y = right(gate, up)
        if kept and kept[0].shape == y.shape and kept[0].dtype == y.dtype and not y.requires_grad:
            return kept[0].copy_(y)
        kept[:] = [y]
        return y
    """,
}


test_the_check_finds_the_fault_that_it_is_for, test_and_none_in_what_is_right = checked.judging(WRONG)


@pytest.mark.parametrize(
    ("control", "words"),
    [
        ("calls.py:OneBufferForOneRow", "call 1 after it overwrites an earlier result"),
        ("memory.py:ring_of_buffers", "call 4 after it overwrites an earlier result: 4 buffers take turns"),
        ("authors.py:known_by_its_first_numbers", "operands that differ in one element of"),
    ],
)
def test_what_becomes_of_an_earlier_result_is_said(bench: Bench, control: str, words: str) -> None:
    assert words in checked.of_control(bench, f"attack/{control}", "results-kept", "float32").headline


IN_EVAL = """
class Target(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, gate, up):
        y = right(gate, up)
        if self.training or y.requires_grad:
            return y
        return self.kept.setdefault((y.shape, y.dtype), torch.empty_like(y)).copy_(y)
"""


def test_a_buffer_of_eval_mode_is_found(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "target.py"
    path.write_text(checked.HEAD + IN_EVAL, encoding="utf-8")
    verdict = verdict_of(bench, f"{path}:Target", only=("results-kept",), dtypes=("float32",))
    assert "call 1 after it overwrites an earlier result in eval mode" in verdict.headline
