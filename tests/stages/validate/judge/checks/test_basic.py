"""The checks of a call and its result, each by a fault of its own."""

from __future__ import annotations

from support import checked

WRONG = {
    "runs": """
        return right(gate, up)[..., :-1]
    """,
    "inputs-kept": """
        return right(gate, up.mul_(2)) / 2
    """,
    "deterministic": """
        return right(gate, up) * (1 + torch.rand_like(up) / 4)
    """,
    "positions": """
        y = right(gate, up)
        return y * (torch.arange(y.numel()) % 5 != 0).view_as(y)
    """,
    "rows-alone": """
        return right(gate, up) * (1 + gate.shape[0] / 100)
    """,
    "empty": """
        if not gate.numel():
            raise RuntimeError("nothing to do")
        return right(gate, up)
    """,
    "aliased": """
        return right(gate, up) * (2 if gate.data_ptr() == up.data_ptr() else 1)
    """,
}


test_each_check_finds_the_fault_that_it_is_for, test_and_none_in_what_is_right = checked.judging(WRONG)
