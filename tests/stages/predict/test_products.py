"""Products of a card are predicted from its table: right on a smooth card, and within the bounds that hold of all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import products_made
from support.products_made import PEAKS, SIDES, true_us

from mlpfusion.records.prediction import MeasuredProduct
from mlpfusion.stages.predict.products import Products, machine_error, never_falling, roofline_us, weighted_nearest
from mlpfusion.stages.predict.table import Table, own_rows

TABLE = products_made.made()
PRODUCTS = Products(PEAKS, TABLE)
sizes = st.integers(1, 20_000)


def roofline(m: int, n: int, k: int) -> float:
    seconds = max(2 * m * n * k / PEAKS.flops_16bit, 2 * (m * n + n * k + m * k) / PEAKS.bandwidth)
    return seconds * 1e6


def mine(*rows: tuple[int, int, int, float]) -> Table:
    return own_rows(
        "a card", "mine.csv", [MeasuredProduct(m=m, n=n, k=k, us=us, source="mine.csv") for m, n, k, us in rows]
    )


# ---- what a table gives ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(1, 512, 512), (256, 3072, 768), (8192, 768, 3072), (8192, 16384, 16384)])
def test_a_product_of_the_table_is_what_was_measured_with_the_spread_of_collections(
    shape: tuple[int, int, int],
) -> None:
    found = PRODUCTS.estimate(*shape)
    assert found.us == pytest.approx(true_us(*shape), rel=1e-6)
    assert found.own == 0
    assert found.common == pytest.approx(np.hypot(TABLE.spread, machine_error(shape[0])))
    assert (found.nearest[0].m, found.nearest[0].n, found.nearest[0].k) == shape
    assert not found.extrapolated


@pytest.mark.parametrize("held", [(512, 1536), (768, 3072), (3072, 768), (4096, 4096), (16384, 2048)])
def test_products_that_are_left_out_are_met_and_lie_in_the_interval(held: tuple[int, int]) -> None:
    out = (TABLE.shapes[:, 1] == held[0]) & (TABLE.shapes[:, 2] == held[1])
    rest = Products(PEAKS, Table(TABLE.card, "", TABLE.shapes[~out], TABLE.us[~out], TABLE.spread))
    for m in (1, 17, 100, 256, 3000, 8192):
        found, true = rest.estimate(m, *held), true_us(m, *held)
        assert found.us == pytest.approx(true, rel=0.07), m
        assert abs(np.log(found.us / true)) <= found.error, m


def test_the_errors_of_the_table_are_those_of_leaving_each_pair_out() -> None:
    found = PRODUCTS.residuals()
    column = next(i for i, pair in enumerate(PRODUCTS.pairs.tolist()) if pair == [3072, 768])
    out = (TABLE.shapes[:, 1] == 3072) & (TABLE.shapes[:, 2] == 768)
    rest = Products(PEAKS, Table(TABLE.card, "", TABLE.shapes[~out], TABLE.us[~out], TABLE.spread))
    row = PRODUCTS.knots.tolist().index(8192)
    assert np.exp(found[row, column]) == pytest.approx(rest.estimate(8192, 3072, 768).us / true_us(8192, 3072, 768))


@pytest.mark.parametrize("shape", [(64, 40_000, 1024), (64, 1024, 100), (100_000, 1024, 1024)])
def test_outside_the_table_it_says_so_and_is_near_still(shape: tuple[int, int, int]) -> None:
    found = PRODUCTS.estimate(*shape)
    assert found.extrapolated
    assert found.us == pytest.approx(true_us(*shape), rel=0.5)


def test_one_step_outside_the_table_the_error_is_twice_that_of_one_step_inside() -> None:
    inside, outside = PRODUCTS.estimate(64, SIDES[-1] - 1, 1024), PRODUCTS.estimate(64, SIDES[-1] + 1, 1024)
    assert (inside.extrapolated, outside.extrapolated) == (False, True)
    assert inside.own > 0
    assert outside.own == pytest.approx(2 * inside.own)


# ---- what holds of every product -------------------------------------------------------------------------------------


@given(sizes, sizes, sizes, sizes)
def test_more_rows_never_take_less_and_no_product_beats_the_roofline(m: int, more: int, n: int, k: int) -> None:
    fewer, many = sorted((m, more))
    first, second = PRODUCTS.estimate(fewer, n, k), PRODUCTS.estimate(many, n, k)
    assert first.us <= second.us * (1 + 1e-9)
    for rows, found in ((fewer, first), (many, second)):
        assert found.us >= found.least_us * (1 - 1e-9)
        assert found.least_us == pytest.approx(roofline(rows, n, k))
        assert found.error > 0


def test_measured_times_that_fall_with_more_rows_or_beat_the_roofline_are_not_believed() -> None:
    us = TABLE.us.copy()
    us[(TABLE.shapes[:, 0] == 512)] /= 30  # faster than fewer rows, and than the card can be
    wild = Products(PEAKS, Table(TABLE.card, "", TABLE.shapes, us, 0.03))
    times = [wild.estimate(m, 3072, 3072).us for m in (256, 300, 512, 700, 1024)]
    assert times == sorted(times)
    assert wild.estimate(512, 3072, 3072).us >= roofline(512, 3072, 3072)


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=30))
def test_pooled_times_never_fall_and_keep_their_product(times: list[float]) -> None:
    found = never_falling(np.array(times))
    assert (np.diff(found) >= -1e-9 * found[1:]).all()
    assert np.log(found).sum() == pytest.approx(np.log(times).sum(), abs=1e-6)
    assert never_falling(np.sort(times)) == pytest.approx(np.sort(times))


def test_the_nearest_weigh_by_distance_and_what_was_not_measured_is_passed_over() -> None:
    values = np.array([[1.0, 5.0, np.nan, 9.0], [np.nan, np.nan, np.nan, np.nan]])
    found = weighted_nearest(values, np.array([1.0, 2.0, 0.0, np.inf]))
    assert found[0] == pytest.approx((1 * 1.0 + 0.25 * 5.0) / 1.25)
    assert np.isnan(found[1])


def test_the_roofline_is_the_longer_of_operations_and_bytes() -> None:
    shapes = np.array([(1, 4096, 4096), (8192, 4096, 4096)], dtype=float)
    assert roofline_us(shapes, PEAKS) == pytest.approx([roofline(1, 4096, 4096), roofline(8192, 4096, 4096)])


# ---- a user's own rows -----------------------------------------------------------------------------------------------


def test_an_own_row_is_taken_as_it_is_and_moves_what_is_near_it_but_not_what_is_far() -> None:
    slow = true_us(300, 5000, 5000) * 1.5
    found = Products(PEAKS, TABLE, mine((300, 5000, 5000, slow)))
    assert found.estimate(300, 5000, 5000).us == pytest.approx(slow, rel=1e-6)
    assert found.estimate(300, 5000, 5000).nearest[0].source == "mine.csv"
    assert found.estimate(310, 5010, 5000).us == pytest.approx(1.5 * PRODUCTS.estimate(310, 5010, 5000).us, rel=0.05)
    far = (300, 512, 16384)
    assert found.estimate(*far).us == pytest.approx(PRODUCTS.estimate(*far).us, rel=0.01)


def test_without_a_table_own_rows_correct_the_rule_in_its_place() -> None:
    def scaled(shapes: np.ndarray) -> np.ndarray:
        return roofline_us(shapes, PEAKS) / 0.5

    found = Products(PEAKS, None, mine((1024, 3072, 768, 100.0)), scaled, lambda m: 0.3)
    assert found.estimate(1024, 3072, 768).us == pytest.approx(100.0)
    near = found.estimate(2048, 3072, 768)
    assert near.us == pytest.approx(200.0, rel=0.1)
    assert near.extrapolated
    assert (near.own, near.common) == (0.3, 0.0)


def test_a_card_without_table_and_rule_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="neither a table nor a rule"):
        Products(PEAKS, None)


def test_a_table_with_holes_is_read() -> None:
    keep = np.arange(len(TABLE)) % 7 != 0
    holes = Products(PEAKS, Table(TABLE.card, "", TABLE.shapes[keep], TABLE.us[keep], 0.03))
    for m in (1, 200, 8192):
        for n in SIDES[::3]:
            assert holes.estimate(m, n, 2048).us == pytest.approx(true_us(m, n, 2048), rel=0.1)
