"""The checks of a whole MLP, each by a fault of its own."""

from __future__ import annotations

from support import checked

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
