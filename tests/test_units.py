"""units: the digits that a number is printed with."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion import units


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (212.1312, 211.48, 213.02, "212.1 [211.5–213.0]"),
        (2772.4, 2755.0, 2790.0, "2772 [2755–2790]"),
        (4.1734, 4.166, 4.181, "4.173 [4.166–4.181]"),
        (100.0, 100.0, 100.0, "100 [100–100]"),
        (5.0, 1.0, 90.0, "5.0 [1.0–90.0]"),
        (85346.0, 77135.0, 90825.0, "85000 [77000–91000]"),
        (15.0, 12.0, 12000.0, "15 [12–12000]"),
        (15.0, 0.4, 12000.0, "15.00 [0.40–12000.00]"),
        (0.0004, 0.0004, 0.9, "0.00040 [0.00040–0.90000]"),
        (0.0, 0.0, 0.0, "0 [0–0]"),
        (0.0, 0.0, 250.0, "0 [0–250]"),
    ],
)
def test_the_spread_decides_the_digits_and_the_smallest_keeps_two(
    value: float, low: float, high: float, text: str
) -> None:
    assert units.with_spread(value, low, high) == text


def test_a_ratio_keeps_two_decimals_at_least() -> None:
    assert units.ratio(1.3, 1.1, 9.0) == "1.30x [1.10–9.00]"
    assert units.ratio(0.94312, 0.9401, 0.9462) == "0.943x [0.940–0.946]"
    assert units.ratio(0.003, 0.002, 40.0) == "0.0030x [0.0020–40.0000]"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (4e-7, "<0.000001"),
        (0.00123, "0.00123"),
        (0.5, "0.500"),
        (12.34, "12.3"),
        (1234.5, "1234"),
        (-12.34, "-12.3"),
    ],
)
def test_plain_numbers_have_three_digits_and_no_exponent(value: float, text: str) -> None:
    assert units.plain(value) == text


def test_units_say_what_they_count() -> None:
    assert units.megabytes(354_400_000) == "354 MB"
    assert units.mebibytes(50 * 2**20) == "50.0 MiB"
    assert units.mebibytes(80 * 2**30) == "80.0 GiB"
    assert units.gigabytes_per_second(3.35e12) == "3350 GB/s"
    assert units.teraflops(989e12) == "989 TFLOP/s"
    assert units.microseconds(89.4) == "89.4 µs"
    assert units.seconds(12.34) == "12.3 s"
    assert units.seconds(0.00005) == "<0.001 s"
    assert units.times(2.311) == "2.31x"


@given(st.floats(1e-5, 1e9), st.floats(0, 1), st.floats(0, 1))
def test_what_is_printed_is_within_the_spread_of_what_was_measured(value: float, below: float, above: float) -> None:
    low, high = value * (1 - below), value * (1 + above)
    printed = float(units.with_spread(value, low, high).split(" ")[0])
    # three decimals at most, else a tenth of the spread's leading digit
    assert math.isclose(printed, value, rel_tol=0.006, abs_tol=max(0.0006, 0.051 * (high - low)))


@given(st.lists(st.floats(1e-6, 1e12), min_size=3, max_size=3))
def test_no_real_time_is_printed_as_zero(times: list[float]) -> None:
    low, value, high = sorted(times)
    for text in (units.with_spread(value, low, high), units.ratio(value, low, high)):
        printed = [float(number) for number in re.findall(r"[\d.]+", text)]
        assert printed == pytest.approx([value, low, high], rel=0.06)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=3, max_size=3))
def test_no_number_in_a_file_is_too_much(numbers: list[float]) -> None:
    assert units.with_spread(*numbers)
    assert units.plain(numbers[0])
