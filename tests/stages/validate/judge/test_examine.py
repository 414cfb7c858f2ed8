"""The word of a verdict and the sentence that decides it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from support.checks_made import checked

from mlpfusion.stages.validate import channel
from mlpfusion.stages.validate.judge import examine

if TYPE_CHECKING:
    from mlpfusion.records.validation import Checked

RIGHT = [checked("runs", "pass"), checked("elementwise", "pass")]
LOADED = channel.Loaded(kind="act_mul", described="a function")


@pytest.mark.parametrize(
    ("checks", "word", "headline"),
    [
        ([*RIGHT, checked("backward", "pass")], "valid", "every check passed"),
        ([*RIGHT, checked("backward", "not decidable here")], "not decidable here", "backward: of backward"),
        ([*RIGHT, checked("differentiable", "reported")], "valid", "every check passed; forward only"),
        (
            [*RIGHT, checked("differentiable", "reported"), checked("differentiable", "pass")],
            "not decidable here",
            "differentiable",
        ),
        ([checked("runs", "pass"), checked("elementwise", "not decidable here")], "not decidable here", "elementwise"),
        ([checked("elementwise", "fail"), checked("backward", "fail")], "not valid", "elementwise: of elementwise"),
        (
            [*RIGHT, checked("backward", "pass"), checked("saved-kept", "reported", hazard=True)],
            "valid with hazards",
            "saved-kept: of saved-kept",
        ),
        ([checked("runs", "reported"), checked("runs", "reported")], "not decidable here", "no dtype can be judged"),
        ([checked("elementwise", "fail"), checked("saved-kept", "reported", hazard=True)], "not valid", "elementwise"),
    ],
)
def test_the_word_of_a_verdict(checks: list[Checked], word: str, headline: str) -> None:
    found = examine.conclude(checks, LOADED, only=None)
    assert found[0] == word
    assert found[1].startswith(headline)


NARROW = ("store",)
IN_FLOAT32 = [msgspec.structs.replace(checked("runs", "pass"), dtype="float32")]


@pytest.mark.parametrize(
    ("checks", "only", "word", "headline"),
    [
        (IN_FLOAT32, ("runs",), "not decidable here", "it runs; none of the deciding checks was requested"),
        (IN_FLOAT32, NARROW, "not decidable here", "none of the requested checks is for float32"),
        (IN_FLOAT32, ("tf32",), "not decidable here", "none of the requested checks is for a function"),
        ([*IN_FLOAT32, checked("store", "not decidable here")], NARROW, "not decidable here", "store: of store"),
        ([*IN_FLOAT32, checked("store", "pass")], NARROW, "valid", "every check passed"),
        ([checked("runs", "fail")], ("runs",), "not valid", "runs: of runs"),
        ([checked("runs", "reported")], NARROW, "not decidable here", "no dtype can be judged"),
    ],
)
def test_the_word_where_a_few_checks_were_asked_for(
    checks: list[Checked], only: tuple[str, ...], word: str, headline: str
) -> None:
    assert examine.conclude(checks, LOADED, only=only)[0] == word
    assert examine.conclude(checks, LOADED, only=only)[1].startswith(headline)
