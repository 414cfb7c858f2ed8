"""The word of a verdict and the sentence that decides it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from support.checks_made import checked

from mlpfusion.records.validation import Verdict
from mlpfusion.stages.validate import channel
from mlpfusion.stages.validate.judge import exam, examine

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


RACED = [exam.passed("right after 90 timed calls"), exam.failed("after 90 timed calls 3 are wrong", (8192, 3072))]


@pytest.mark.parametrize("races", [[], RACED[:1], RACED, RACED[::-1]])
def test_what_a_race_shows_of_the_values_decides(races: list[exam.Found]) -> None:
    nobody: Any = None
    judged = exam.Exam(
        *("mine.py:f", "gelu_tanh", LOADED, nobody, nobody),
        dtypes=("float32",),
        asked=exam.Asked(against=("eager", "inductor")),
        seed=5,
        device="cuda",
    )
    judged.after_timing.extend(races)
    verdict = Verdict(
        target="mine.py:f",
        kind="act_mul",
        activation="gelu_tanh",
        word="valid",
        headline="every check passed",
        checks=tuple(RIGHT),
    )
    found = examine._rejudged(verdict, judged)
    assert found.checks[: len(RIGHT)] == tuple(RIGHT)
    told = found.checks[len(RIGHT) :]
    assert [each.name for each in told] == ["after-timing"] * bool(races)
    is_wrong = RACED[1] in races
    assert found.word == ("not valid" if is_wrong else "valid")
    assert found.headline == ("after-timing: after 90 timed calls 3 are wrong" if is_wrong else "every check passed")
    assert all(each.repro.endswith("--against eager,inductor --seed 5") for each in told)
    assert all(each.shape == ((8192, 3072) if is_wrong else None) for each in told)
