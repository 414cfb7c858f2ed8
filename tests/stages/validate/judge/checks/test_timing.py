"""Values after hundreds of calls on the same operands, of the check and of a race."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support import checked

from mlpfusion.backends.eager import activation_function
from mlpfusion.stages.validate import channel
from mlpfusion.stages.validate.judge.checks import timing
from mlpfusion.stages.validate.judge.exam import Asked, Exam

if TYPE_CHECKING:
    from mlpfusion.records.validation import Kind
    from mlpfusion.spec import Activation
    from mlpfusion.stages.validate.channel import Facts, Tensors

WRONG = {
    "after-timing": """
        at = gate.data_ptr(), up.data_ptr()
        kept[:] = [each for each in kept if each == at]
        kept.append(at)
        return right(gate, up) * (1.5 if len(kept) > 60 else 1.0)
    """,
}

test_each_check_finds_the_fault_that_it_is_for, test_and_none_in_what_is_right = checked.judging(WRONG)


class Eager:
    """A worker of PyTorch's operators, which have errors of their own."""

    def __init__(self, activation: Activation) -> None:
        self.activation = activation

    def holds(self, *_: object) -> bool:
        return True

    def ask(self, probe: str, given: Tensors, **_: object) -> tuple[Tensors, Facts]:
        assert probe == "forward"
        return {"y": activation_function(self.activation)(given["gate"]) * given["up"]}, {}


def exam(kind: Kind, activation: Activation = "gelu_tanh") -> Exam:
    loaded = channel.Loaded(kind=kind, described="a function")
    nobody: Any = None
    eager: Any = Eager(activation)
    return Exam("t", activation, loaded, nobody, eager, dtypes=("float32",), asked=Asked(), seed=0, device="cpu")


@pytest.mark.parametrize("kind", ["act_mul", "mlp"])
@pytest.mark.parametrize("wrong", [None, "timed", "fresh", "shape"])
def test_values_are_judged_again_after_timing(kind: Kind, wrong: str | None) -> None:
    judged = exam(kind)
    given = judged.operands("float32", (100, 8) if kind == "act_mul" else (100,), "race")
    other = {name: given[name].flip(0) for name in timing.varied(judged)}
    results = {
        name: judged.reference(operands)["y"].float() for name, operands in (("timed", given), ("fresh", given | other))
    }
    if wrong == "shape":
        results["timed"] = results["timed"][:-1]
    elif wrong is not None:
        results[wrong][-1] *= 2  # one row of all
    found = timing.judged(judged, given, other, results, calls=2345, shape=(8192, 8))
    assert found.status == ("pass" if wrong is None else "fail")
    assert found.shape == (None if wrong is None else (8192, 8))
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
    kept = judged.reference(given)["y"].float()
    found = timing.judged(judged, given, other, {"timed": kept, "fresh": kept}, calls=2345, shape=(100, 8))
    assert found.status == "fail"
    assert "a result on new values" in found.sentence


@pytest.mark.values
def test_what_eager_gets_wrong_itself_is_excused_after_timing() -> None:
    judged = exam("act_mul", "quick_gelu")  # of three operators, each of which rounds to 16 bits
    given = judged.operands("bfloat16", (512, 512), "race", scale=10.0)
    other = {name: given[name].flip(0) for name in judged.names}
    asked = Eager("quick_gelu").ask
    results = {"timed": asked("forward", given)[0]["y"], "fresh": asked("forward", given | other)[0]["y"]}
    found = timing.judged(judged, given, other, results, calls=2345, shape=(512, 512))
    assert found.status == "pass"
    assert sum(each.excused for each in judged.excuses) > 0
