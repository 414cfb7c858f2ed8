"""The checks of a whole MLP, each by a fault of its own."""

from __future__ import annotations

import pytest
import torch
from support import checked

from mlpfusion.stages.validate.judge.checks import mlp
from mlpfusion.stages.validate.judge.checks.mlp_cases import Case
from mlpfusion.stages.validate.judge.exam import Sizes

WRONG = {
    "mlp-values": """
        return right_mlp(x, wg, wu, wd) * 1.1
    """,
    "mlp-specials": """
        return right_mlp(x.nan_to_num(0.0), wg, wu, wd)
    """,
    "mlp-gradients": """
        return right_mlp(x, wg.detach(), wu, wd) + 0 * wg.sum()
    """,
}


test_each_check_finds_the_fault_that_it_is_for, test_and_none_in_what_is_right = checked.judging(
    WRONG, right="return right_mlp(x, wg, wu, wd)", operands="x, wg, wu, wd"
)


@pytest.mark.parametrize(("theirs", "measured"), [(10, True), (5, True), (4, False), (0, False)])
def test_eager_s_error_is_a_measure_where_it_is_right_in_half_of_the_values(theirs: int, measured: bool) -> None:
    errors = mlp.Errors()
    errors.add(Case(Sizes(8, 16), (2,)), torch.ones(10), torch.ones(theirs))
    assert errors.has_measure is measured
