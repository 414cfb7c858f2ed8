"""The checks of values, each by a fault of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import checked

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.stages.validate.judge.examine import Bench

WRONG = {
    "function": """
        return gelu(gate) * up
    """,
    "constants": """
        return gate * torch.sigmoid(1.6 * gate) * up
    """,
    "specials": """
        return right(gate, up).nan_to_num(0)
    """,
    "elementwise": """
        y = right(gate, up)
        return torch.where(up.abs() > 2, y * 1.1, y)
    """,
}


test_each_check_finds_the_fault_that_it_is_for, test_and_none_in_what_is_right = checked.judging(
    WRONG,
    statuses=("pass", "reported"),  # what eager makes of special values differs by the CPU, and is said
)


RANGED = {
    "gate.abs().max() < 0.5": "all gates are of a size from 0 to",
    "gate.abs().max() < 6": "all gates are of a size from 0 to",
    "gate.abs().min() > 4": "all gates are of a size from 8 to 64",
    "bool((gate < 0).all())": "all gates below 0 are of a size from 0 to 8",
    "bool((gate >= 0).all())": "all gates above 0 are of a size from 0 to 8",
}


@pytest.mark.parametrize("where", RANGED)
def test_a_path_for_gates_of_one_range_is_judged(bench: Bench, tmp_path: Path, where: str) -> None:
    body = f"return right(gate, up) * (1.01 if 66000 < gate.numel() < 67000 and {where} else 1)"
    verdict = checked.by(bench, tmp_path, "elementwise", body, dtypes=("float32",), quick=False)
    assert RANGED[where] in verdict.headline


DOUBLES = {
    "y = right(gate.float(), up.float()); return y.to(gate.dtype)": "y is off by",
    "return right(gate.float(), up.float()) if gate.dtype is torch.float64 else right(gate, up)": "a result in float32",
}


@pytest.mark.parametrize("body", DOUBLES)
def test_float64_that_is_computed_in_fewer_bits_is_a_hazard(bench: Bench, tmp_path: Path, body: str) -> None:
    verdict = checked.by(bench, tmp_path, "double", body)
    assert verdict.word == "valid with hazards"
    assert DOUBLES[body] in verdict.headline


@pytest.mark.parametrize(
    "body", ["return right(gate, up)", "assert gate.dtype != torch.float64; return right(gate, up)"]
)
def test_float64_may_be_refused_or_computed_as_such(bench: Bench, tmp_path: Path, body: str) -> None:
    assert checked.by(bench, tmp_path, "double", body).word == "valid"


def test_float64_is_not_looked_at_where_other_dtypes_are_requested(bench: Bench, tmp_path: Path) -> None:
    verdict = checked.by(bench, tmp_path, "double", next(iter(DOUBLES)), dtypes=("float32",))
    assert verdict.word == "not decidable here"


@pytest.mark.full  # all shapes, which the first ring leaves out
@pytest.mark.parametrize("control", ["grouped_tiles"])
def test_tiles_of_rows_and_columns_at_once_are_named(bench: Bench, control: str) -> None:
    verdict = checked.of_control(bench, f"pairs/kernels.py:{control}", "elementwise", "float32")
    assert "only where many rows have many columns, which are several tiles of both" in verdict.headline
    assert "never written" in verdict.headline
