"""The checks of values, each by a fault of its own."""

from __future__ import annotations

from support import checked

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
