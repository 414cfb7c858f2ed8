"""The file format under a trace: exact times, ids, and what is no JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.trace.read.chrome import nanoseconds

if TYPE_CHECKING:
    from decimal import Decimal


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1000),
        ("0", 0),
        ("1.5", 1500),
        ("4964198388798.555", 4964198388798555),
        ("1700000000000000.001", 1700000000000000001),
        ('"12.25"', 12250),
        ("1.2345", 1235),
        ("0.29999999999999999", 300),
        ("1.5e3", 1500000),
        ("-2.5", -2500),
        ("null", None),
        ("NaN", None),
        ("1e400", None),
        ("true", None),
        ("", None),
        ('"soon"', None),
        ("9" * 40, None),
    ],
)
def test_times_are_exact(text: str, expected: int | None) -> None:
    assert nanoseconds(text.encode()) == expected


@given(st.integers(0, 10**18))
def test_every_time_in_nanoseconds_survives(value: int) -> None:
    assert nanoseconds(f"{value // 1000}.{value % 1000:03d}".encode()) == value


@given(st.decimals(allow_nan=True, allow_infinity=True))
def test_any_number_is_a_time_or_none(value: Decimal) -> None:
    found = nanoseconds(str(value).encode())
    assert found is None or abs(found) < 2**63
