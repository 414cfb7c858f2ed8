"""The shapes of an act·mul: every power of two among the widths, every scale among the small ones."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from support import exams_made

from mlpfusion.spec import DTYPES
from mlpfusion.stages.validate.channel import Loaded
from mlpfusion.stages.validate.judge.checks import shapes

if TYPE_CHECKING:
    from mlpfusion.device import DeviceKind
    from mlpfusion.spec import Dtype

LOADED = Loaded(kind="act_mul", described="a function")
INTERPRETED = Loaded(kind="act_mul", described="a function", kernels=1, interpreted=True)


def largest_power(n: int) -> int:
    return n & -n


@pytest.mark.parametrize(("of", "powers"), [(shapes.NARROW, range(1, 9)), (shapes.WIDE, range(1, 14))])
def test_each_power_of_two_is_the_largest_that_divides_some_width(
    of: tuple[tuple[int, int], ...], powers: range
) -> None:
    widths = [columns for _, columns in of]
    assert [largest_power(width) for width in widths] == [1 << k for k in powers]
    assert all(width > largest_power(width) for width in widths)  # none is a power itself


@pytest.mark.parametrize("multiple", [8, 16, 32, 64])
def test_rows_grow_and_shrink_among_those_of_one_plan(multiple: int) -> None:
    pairs = [(a, b) for (a, _), (b, _) in itertools.pairwise(shapes.TURNS) if -(-a // multiple) == -(-b // multiple)]
    assert any(a < b for a, b in pairs)
    assert len({columns for _, columns in shapes.TURNS}) == 1
    rows = [rows for rows, _ in shapes.TURNS]
    assert rows[-1] < max(rows)


def test_small_shapes_take_the_scales_in_turn() -> None:
    known = (*shapes.SMALL, *shapes.WIDTHS, *shapes.USUAL)
    assert len(set(known)) == len(known)
    firsts = [shapes.scales(shape)[0] for shape in known]
    assert firsts == [shapes.SCALES[index % 3] for index in range(len(known))]
    assert all(sorted(shapes.scales(shape)) == sorted(shapes.SCALES) for shape in known)


def test_a_shape_that_a_user_asks_for_has_every_scale_in_order() -> None:
    assert shapes.scales((5, 5)) == shapes.SCALES


def test_every_shape_is_judged_once_and_the_large_ones_at_every_scale() -> None:
    found = shapes.cases(exams_made.exam(LOADED))
    assert len({shape for shape, _ in found}) == len(found)
    judged = dict(found)
    assert all(judged[shape] == shapes.SCALES for shape in shapes.LARGE)
    assert all(len(judged[shape]) == 1 for shape in (*shapes.SMALL, *shapes.WIDTHS, *shapes.USUAL, shapes.ROWS))


@pytest.mark.parametrize(
    ("device", "loaded", "rows"),
    [
        ("cpu", LOADED, shapes.ROWS_TRAINED),
        ("cpu", INTERPRETED, shapes.ROWS_INTERPRETED),
        ("cuda", LOADED, shapes.ROWS),
    ],
)
def test_gradients_have_as_many_rows_as_are_judged_in_time(
    device: DeviceKind, loaded: Loaded, rows: tuple[int, int]
) -> None:
    assert shapes.rows_trained(exams_made.exam(loaded, device=device)) == rows


def test_what_only_a_gpu_runs_in_time_is_judged_there_alone() -> None:
    on_cpu = shapes.cases(exams_made.exam(LOADED))
    on_gpu = shapes.cases(exams_made.exam(LOADED, device="cuda"))
    assert on_gpu[: len(on_cpu)] == on_cpu
    assert on_gpu[len(on_cpu) :] == [(shapes.LARGE_ON_GPU, shapes.SCALES), shapes.LARGEST_ON_GPU]


@pytest.mark.parametrize(
    ("loaded", "rows"),
    [
        (LOADED, shapes.ROWS),
        (INTERPRETED, shapes.ROWS_INTERPRETED),
        (Loaded(kind="act_mul", described="a function", interpreted=True), shapes.ROWS),  # it has no kernels
        (Loaded(kind="act_mul", described="a function", kernels=1), shapes.ROWS),
    ],
)
def test_an_interpreted_kernel_gets_fewer_rows(loaded: Loaded, rows: tuple[int, int]) -> None:
    exam = exams_made.exam(loaded)
    assert shapes.rows(exam) == rows
    assert {shapes.ROWS, shapes.ROWS_INTERPRETED} & {shape for shape, _ in shapes.cases(exam)} == {rows}


def test_so_does_one_that_was_seen_when_it_was_launched() -> None:
    exam = exams_made.exam(Loaded(kind="act_mul", described="a function", interpreted=True))
    exam.launches = 1
    assert shapes.rows(exam) == shapes.ROWS_INTERPRETED


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("of", shapes.RANGES)
def test_all_gates_and_ups_are_within_the_range_and_reach_its_end(of: shapes.Range, dtype: Dtype) -> None:
    given = of.of(exams_made.exam(LOADED), dtype, (64, 64))
    for name in ("gate", "up"):
        size = given[name].double().abs()
        assert of.low <= float(size.min())
        assert 0.9 * of.high < float(size.max()) < of.high
    assert {int(sign) for sign in given["gate"].sign().unique()} - {0} == set(of.signs)
    assert str(of.high)[:2].rstrip(".") in of.said


@pytest.mark.parametrize("loaded", [LOADED, INTERPRETED])
def test_there_is_an_odd_number_of_tiles_of_rows_where_there_is_one_of_columns(loaded: Loaded) -> None:
    exam = exams_made.exam(loaded)
    tiled = shapes.tiled(exam)
    assert set(tiled) <= {shape for shape, _ in shapes.cases(exam)}
    for shape in tiled:
        for size, largest in zip(shape, (128, 1024), strict=True):
            tiles = [-(-size // (1 << k)) for k in range(4, largest.bit_length())]
            assert all(count > 1 and count % 2 for count in tiles)
        assert shape[1] % 8 == 0  # for those that take only whole vectors
