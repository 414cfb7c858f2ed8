"""Which failures follow from an earlier one, and which stand for themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from support.checks_made import checked

from mlpfusion.stages.validate.judge.checks import registry
from mlpfusion.stages.validate.judge.consequences import FOLLOWING, told

if TYPE_CHECKING:
    from mlpfusion.records.validation import Checked


def at(dtype: str, name: str, status: str = "fail", *, hazard: bool = False) -> Checked:
    return msgspec.structs.replace(checked(name, status, hazard=hazard), dtype=dtype)  # type: ignore[arg-type]


@pytest.mark.parametrize("cause", FOLLOWING)
def test_what_takes_a_check_for_granted_follows_from_it_and_nothing_else_does(cause: str) -> None:
    names = [check.name for check in registry.ALL]
    later = names[names.index(cause) + 1 :]
    found = told([at("float32", name) for name in (cause, *later)])
    follow = {each.name for each in found if each.follows == cause}
    assert follow == FOLLOWING[cause].intersection(later)
    assert found[0].follows is None


def test_every_name_is_that_of_a_check() -> None:
    names = {check.name for check in registry.ALL}
    assert names.issuperset(FOLLOWING)
    assert names.issuperset(set().union(*FOLLOWING.values()))


def test_only_an_earlier_failure_in_the_same_dtype_is_a_cause() -> None:
    assert told([at("float32", "elementwise"), at("float32", "function")])[0].follows is None
    other = [at("float32", "function"), at("bfloat16", "function", "pass"), at("bfloat16", "elementwise")]
    assert told(other)[2].follows is None
    # Where it was not asked in that dtype, it is one.
    assert told([at("float32", "constants"), at("bfloat16", "elementwise")])[1].follows == "constants"


def test_what_is_right_follows_from_nothing_and_a_hazard_may() -> None:
    found = told([at("float32", "backward"), at("float32", "autocast", "pass")])
    assert found[1].follows is None
    hazard = at("float32", "double-backward", "reported", hazard=True)
    assert told([at("float32", "backward"), hazard])[1].follows == "backward"


def test_the_first_cause_is_told() -> None:
    checks = [at("float32", name) for name in ("written", "function", "backward", "autocast")]
    assert [each.follows for each in told(checks)] == [None, *["written"] * 3]
