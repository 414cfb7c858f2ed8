"""The check of what lies around operands: what is read there and used, and what is written there, in each dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import checked

from mlpfusion.spec import DTYPES

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.records.validation import Verdict
    from mlpfusion.stages.validate.judge.examine import Bench

OUTSIDE = {
    "reads_behind": "reads behind the end of up and uses it: 1 of 889 elements of the result",
    "reads_before": "reads before the start of up and uses it: 1 of 889 elements of the result",
    "writes_behind_gate": "writes into the memory around gate",
    "backward_reads_behind_dy": "reads behind the end of dy and uses it: 1 of 889 elements of the gradient of gate",
    "backward_reads_before_gate": "reads before the start of gate and uses it: 1 of 889 elements of the gradient of",
    "backward_writes_behind_dy": "writes into the memory around dy when it trains",
    "overruns_a_copy": "writes outside a tensor that it has made: 1 element behind its end",
    "backward_overruns_a_product": "writes outside a tensor that it has made when it trains: 1 element behind its end",
    "mlp_rows_too_long": "reads behind the end of x and uses it: 1 of 320 elements of the result",
}
INSIDE = ("masked_with_0", "masked_with_7", "read_and_dropped", "copy_with_room")


def told(verdict: Verdict, name: str) -> list[tuple[str, str]]:
    return [(check.status, check.sentence) for check in verdict.checks if check.name == name]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fault", OUTSIDE)
def test_what_is_used_or_changed_outside_an_operand_is_named(bench: Bench, fault: str, dtype: str) -> None:
    [(status, sentence)] = told(checked.of_control(bench, f"outside.py:{fault}", "guards", dtype), "guards")
    assert status == "fail"
    assert OUTSIDE[fault] in sentence


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("right", INSIDE)
def test_a_mask_or_a_where_makes_a_read_right(bench: Bench, right: str, dtype: str) -> None:
    [(status, _)] = told(checked.of_control(bench, f"outside.py:{right}", "guards", dtype), "guards")
    assert status == "pass"


@pytest.mark.parametrize(
    "body",
    [
        "return right(gate, up) * (1 + torch.rand(()))",  # which `deterministic` is for
        "kept.append(right(gate, up)); return kept[0] if kept[0].shape == gate.shape else kept[-1]",
    ],
    ids=["another each time", "kept"],
)
def test_a_result_that_changes_by_itself_is_not_said_to_be_read_outside(
    bench: Bench, tmp_path: Path, body: str
) -> None:
    verdict = checked.by(bench, tmp_path, "guards", body, dtypes=("float32",))
    assert [status for status, _ in told(verdict, "guards")] == ["pass"]


def test_a_target_that_refuses_to_run_where_operators_are_watched_is_not_refused_a_verdict(
    bench: Bench, tmp_path: Path
) -> None:
    body = "assert not torch._C._len_torch_dispatch_stack()\nreturn right(gate, up)"
    verdict = checked.by(bench, tmp_path, "guards", body, dtypes=("float32",))
    [check] = [check for check in verdict.checks if check.name == "guards"]
    assert (verdict.word, check.refused) == ("valid", ())


def test_what_is_before_a_result_is_written_is_told_with_it(bench: Bench) -> None:
    [(status, sentence)] = told(checked.of_control(bench, "outside.py:writes_before", "written", "float16"), "written")
    assert (status, sentence) == ("fail", "writes outside its result: 1 element before its start is written")


def test_a_write_beside_the_rows_of_a_part_is_one_of_layouts(bench: Bench) -> None:
    verdict = checked.of_control(bench, "outside.py:padding_cleared", "layouts", "bfloat16")
    [(status, sentence)] = told(verdict, "layouts")
    assert status == "fail"
    assert sentence.startswith("writes into the memory beside gate where gate and up is half of a packed tensor")
