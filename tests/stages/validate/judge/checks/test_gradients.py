"""The checks of a backward, each by a fault of its own."""

from __future__ import annotations

from support import checked

WRONG = {
    "differentiable": """
        return right(gate, up).detach()
    """,
    "backward": """
        return right(gate.detach() + (gate - gate.detach()) * 1.5, up)
    """,
    "partial": """
        return right(gate.detach() if not up.requires_grad else gate, up)
    """,
}


test_each_check_finds_the_fault_that_it_is_for, test_and_none_in_what_is_right = checked.judging(WRONG)
