"""An exam: shapes in its words, and those of a quick one."""

from __future__ import annotations

from typing import Any

import pytest

from mlpfusion.errors import UsageError
from mlpfusion.stages.validate import channel
from mlpfusion.stages.validate.judge.checks import basic, gradients, values
from mlpfusion.stages.validate.judge.checks import shapes as judged
from mlpfusion.stages.validate.judge.checks.memory import written
from mlpfusion.stages.validate.judge.exam import Asked, Exam, kind_of, shape_text


def test_shapes_are_written_as_they_are_typed() -> None:
    from mlpfusion.cli.validate import shape

    for each in ((), (0,), (7, 127), (1, 2, 3)):
        assert shape(shape_text(each)) == each
    for bad in ("", "7x", "x7", "-1", "7X8", "a"):
        with pytest.raises(UsageError, match="--shapes"):
            shape(bad)


def exam(*, quick: bool) -> Exam:
    loaded = channel.Loaded(kind="act_mul", described="a function")
    nobody: Any = None
    asked = Asked(quick=quick)
    return Exam("t", "silu", loaded, nobody, nobody, dtypes=("float32",), asked=asked, seed=0, device="cpu")


SETS = {
    "written": written.WRITTEN["act_mul"],
    "positions": basic.PLACED,
    "elementwise": (*judged.SMALL, *judged.WIDTHS),
    "store": values.BIASED["act_mul"],
    "backward": (*gradients.SHAPES, *gradients.LARGE),
}


@pytest.mark.parametrize("name", SETS)
def test_a_quick_exam_has_one_shape_of_each_kind_and_says_which_it_has_not(name: str) -> None:
    shapes = SETS[name]
    assert exam(quick=False).some(shapes) == shapes
    quick = exam(quick=True)
    kept = quick.some(shapes)
    assert 1 < len(kept) < len(shapes)
    assert len({kind_of(shape) for shape in kept}) == len(kept)
    assert {kind_of(shape) for shape in kept} == {kind_of(shape) for shape in shapes}
    assert [shape for shape in shapes if shape in kept] == list(kept)
    assert set(quick.left_out) == {shape_text(shape) for shape in shapes if shape not in kept}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ((7, 127), (33, 97), True),
        ((7, 127), (7, 128), False),
        ((7, 127), (889,), False),
        ((1,), (1031,), False),
        ((1, 65537), (256, 256), True),
        ((), (1,), False),
        ((0,), (1,), False),
    ],
)
def test_kinds_of_shapes(one: tuple[int, ...], other: tuple[int, ...], same: bool) -> None:
    assert (kind_of(one) == kind_of(other)) is same
