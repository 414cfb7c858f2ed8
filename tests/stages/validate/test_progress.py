"""What a step of a validation says."""

from __future__ import annotations

from mlpfusion.stages.validate.progress import Step


def test_a_step_begins_and_is_over() -> None:
    step = Step("t.py:f", "function float32", 3, 30)
    assert step.line == "t.py:f: function float32 (3 of 30)"
    assert step._replace(found="pass").line == "t.py:f: function float32 (3 of 30): pass"
