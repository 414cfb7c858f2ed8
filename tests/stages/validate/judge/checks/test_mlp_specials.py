"""One nan or inf in an operand of an MLP: what hides it, and what spreads it, is named with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from support import exams_made
from torch import Tensor
from torch.nn import functional

from mlpfusion.spec import DTYPES
from mlpfusion.stages.validate.channel import Loaded, Raised
from mlpfusion.stages.validate.judge.checks import mlp_specials
from mlpfusion.stages.validate.judge.worker_handle import RaisedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.judge.exam import Found

LOADED = Loaded(kind="mlp", described="a function")


def eager(x: Tensor, wg: Tensor, wu: Tensor, wd: Tensor) -> Tensor:
    gate, up = functional.linear(x, wg), functional.linear(x, wu)
    return functional.linear(functional.gelu(gate, approximate="tanh") * up, wd)


def judged(function: Callable[..., Tensor], dtype: Dtype = "float32", peer: Callable[..., Tensor] = eager) -> Found:
    exam = exams_made.exam(LOADED, function, peer, dtypes=(dtype,))
    return mlp_specials.specials(exam, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_eager_itself_passes_in_every_place(dtype: Dtype) -> None:
    found = judged(eager, dtype)
    assert found.status == "pass"
    assert found.sentence.endswith("(8 of 8 places taken)")


def hides(x: Tensor, wg: Tensor, wu: Tensor, wd: Tensor) -> Tensor:
    return eager(x, wg, wu, wd).nan_to_num(0.0, 0.0, 0.0)


def spreads(x: Tensor, wg: Tensor, wu: Tensor, wd: Tensor) -> Tensor:
    """A row that is not finite makes the next one so too, as a tile does that is multiplied by 0 and added."""
    y = eager(x, wg, wu, wd)
    return y + 0.0 * y.roll(1, 0)


def shifts(x: Tensor, wg: Tensor, wu: Tensor, wd: Tensor) -> Tensor:
    """Right without anything strange; else wrong where it does not reach."""
    y = eager(x, wg, wu, wd)
    return y if bool(y.isfinite().all()) else y + 100.0


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (hides, "where x has one nan, 64 of 512 results are finite that depend on it, the first at (3, 0): 0"),
        (
            spreads,
            "where x has one nan, 64 of 512 results are wrong that do not depend on it, the first at (4, 0): nan",
        ),
        (shifts, "where x has one nan, 448 of 512 results are wrong that do not depend on it, the first at (0, 0): "),
    ],
)
def test_what_is_wrong_is_counted_and_placed(function: Callable[..., Tensor], words: str) -> None:
    found = judged(function)
    assert found.status == "fail"
    assert found.sentence.startswith(words)
    assert found.shape == mlp_specials.ROWS


@pytest.mark.parametrize("name", ["x", "wg", "wu", "wd"])
def test_an_operand_that_is_cleaned_is_named(name: str) -> None:
    def cleans(**given: Tensor) -> Tensor:
        return eager(**given | {name: given[name].nan_to_num(0.0, 0.0, 0.0)})

    found = judged(lambda x, wg, wu, wd: cleans(x=x, wg=wg, wu=wu, wd=wd))
    assert found.status == "fail"
    assert found.sentence.startswith(f"where {name} has one nan, ")


def test_an_infinity_that_is_clamped_is_a_fault_though_nan_comes_through() -> None:
    found = judged(lambda *each: eager(*each).nan_to_num(torch.nan, 1.0, -1.0))
    assert found.status == "fail"
    assert found.sentence.startswith("where wg has one inf, ")
    assert "results are finite that depend on it" in found.sentence


def test_what_eager_hides_too_is_excused() -> None:
    assert judged(hides, peer=hides).status == "pass"


def test_another_shape_is_a_fault() -> None:
    found = judged(lambda *each: eager(*each)[:, :-1])
    assert (found.status, found.sentence) == ("fail", "returns shape (8, 63) for (8, 64)")


def refusing(error: Raised) -> Callable[..., Tensor]:
    """Eager, but it refuses an x that is not finite."""

    def call(x: Tensor, *weights: Tensor) -> Tensor:
        if not bool(x.isfinite().all()):
            raise RaisedError(error)
        return eager(x, *weights)

    return call


def test_a_refused_place_is_not_counted() -> None:
    found = judged(refusing(Raised(why="refused", exception="ValueError", text="x is not finite")))
    assert found.status == "pass"
    assert found.sentence.endswith("(6 of 8 places taken)")


def test_what_is_no_refusal_is_raised() -> None:
    with pytest.raises(RaisedError, match="out of memory"):
        judged(refusing(Raised(why="memory", exception="MemoryError", text="out of memory")))


def test_strange_values_stand_in_every_operand() -> None:
    places = {(case.name, str(case.value)) for case in mlp_specials.CASES}
    assert places == {(name, value) for name in ("x", "wg", "wu", "wd") for value in ("nan", "inf")}
    exam = exams_made.exam(LOADED)
    shapes = {name: tensor.shape for name, tensor in exam.operands("float32", mlp_specials.ROWS, "").items()}
    assert all(torch.empty(shapes[name])[mlp_specials.AT].dim() == 0 for name in exam.names)
