"""What a target is set against, when it is faster, and whether its values are right after that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mlpfusion.stages.validate import channel
from mlpfusion.stages.validate.judge import baselines
from mlpfusion.stages.validate.judge.exam import Asked, Exam, UndecidableError
from mlpfusion.stages.validate.layouts import ends

if TYPE_CHECKING:
    from mlpfusion.records.validation import Kind


def test_faster_needs_the_whole_interval_and_one_percent() -> None:
    def word(*ratios: float) -> str:
        mine: list[float | None] = list(ratios)
        return baselines.verdict_on(baselines.ratio_of(mine, [1.0] * len(ratios), "eager"))

    assert word(*[0.9] * 20) == "faster"
    assert word(*[1.1] * 20) == "slower"
    assert word(*[0.995] * 20) == "same within noise"  # within the band of 1%
    assert word(*[0.8, 1.2] * 10) == "same within noise"
    with pytest.raises(UndecidableError, match="3 rounds are too few"):
        word(0.9, 0.9, 0.9)


# ---- values after a race ---------------------------------------------------------------------------------------------


def exam(kind: Kind) -> Exam:
    loaded = channel.Loaded(kind=kind, described="a function")
    nobody: Any = None
    return Exam("t", "gelu_tanh", loaded, nobody, nobody, dtypes=("float32",), asked=Asked(), seed=0, device="cpu")


@pytest.mark.parametrize("kind", ["act_mul", "mlp"])
@pytest.mark.parametrize("wrong", [None, "timed", "fresh", "shape"])
def test_values_are_judged_again_after_a_race(kind: Kind, wrong: str | None) -> None:
    judged = exam(kind)
    given = judged.operands("float32", (100, 8) if kind == "act_mul" else (100,), "race")
    other = {name: given[name].flip(0) for name in (judged.names if kind == "act_mul" else judged.names[:1])}
    results = {
        name: ends(judged.reference(operands)["y"]).float()
        for name, operands in (("timed", given), ("fresh", given | other))
    }
    if wrong == "shape":
        results["timed"] = results["timed"][:-1]
    elif wrong is not None:
        results[wrong][-1] *= 2  # one row of all
    found = baselines.after_timing(judged, given, other, results, 2345)
    assert found.status == ("pass" if wrong is None else "fail")
    assert "after 2345 timed calls" in found.sentence
    what = {
        "timed": "the last timed result",
        "fresh": "a result on new values",
        "shape": "another shape",
        None: "right",
    }
    assert what[wrong] in found.sentence


def test_a_result_that_is_kept_from_an_earlier_call_is_wrong_on_new_values() -> None:
    judged = exam("act_mul")
    given = judged.operands("float32", (100, 8), "race")
    other = {name: given[name].flip(0) for name in judged.names}
    kept = ends(judged.reference(given)["y"]).float()
    found = baselines.after_timing(judged, given, other, {"timed": kept, "fresh": kept}, 2345)
    assert found.status == "fail"
    assert "a result on new values" in found.sentence
