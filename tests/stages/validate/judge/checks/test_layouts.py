"""The check of operands that are not contiguous, by a target that takes them for contiguous."""

from __future__ import annotations

from support import checked

WRONG = {
    "layouts": """
        up = up.detach() if not up.is_contiguous() else up
        return right(gate, up) * (1 if up.is_contiguous() and gate.is_contiguous() else 1.1)
    """,
}


test_each_check_finds_the_fault_that_it_is_for, test_and_none_in_what_is_right = checked.judging(WRONG)
