"""An accuracy's ratio to eager's error, its words and the limit that it is judged by."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.profiles_made import profile

from mlpfusion.records.clocks import Clock
from mlpfusion.records.profile import Accuracy, LaunchConfig, PreOpParts, PreOps, Profile

ERRORS = st.floats(1e-12, 1e3)


def accuracy(
    max_error: float | None, rms_error: float | None, eager: tuple[float, float] = (0.01, 0.001), elements: int = 10_000
) -> Accuracy:
    return Accuracy(
        max_error=max_error,
        rms_error=rms_error,
        eager_max_error=eager[0],
        eager_rms_error=eager[1],
        rows=1,
        elements=elements,
    )


@given(ERRORS, ERRORS, ERRORS, ERRORS)
def test_the_ratio_is_the_worse_of_both(most: float, rms: float, eager_most: float, eager_rms: float) -> None:
    found = accuracy(most, rms, (eager_most, eager_rms))
    assert found.ratio == max(most / eager_most, rms / eager_rms)
    assert not found.is_broken
    assert found.times("eager") == f"{found.ratio:.3g} times eager's error"


@pytest.mark.parametrize("errors", [(None, None), (None, 0.1), (0.1, None)])
def test_nan_and_infinity_are_no_ratio(errors: tuple[float | None, float | None]) -> None:
    found = accuracy(*errors)
    assert (found.ratio, found.is_broken) == (math.inf, True)
    assert found.times("eager") == "nan or inf where eager is finite"


def test_an_error_where_eager_has_none_is_no_ratio_and_none_is_none() -> None:
    found = accuracy(0.01, 0.0, (0.0, 0.0))
    assert (found.ratio, found.is_broken) == (math.inf, False)
    assert found.times("the original") == "an error where the original has none"
    assert accuracy(0.0, 0.0, (0.0, 0.0)).ratio == 0.0


@pytest.mark.parametrize(("elements", "limit"), [(1, 4.0), (9_999, 4.0), (10_000, 2.0), (10**9, 2.0)])
def test_few_elements_have_a_wider_limit(elements: int, limit: float) -> None:
    assert accuracy(0.01, 0.001, elements=elements).limit == limit


def test_a_profile_is_json_both_ways() -> None:
    assert msgspec.json.decode(msgspec.json.encode(profile()), type=Profile) == profile()


def test_what_was_not_measured_is_none_and_not_zero() -> None:
    assert {getattr(PreOps(n=1), name) for name in PreOpParts.__struct_fields__} == {None}


@pytest.mark.parametrize("changes", [{"median": 0.0}, {"median": -1.0}, {"n": 0}, {"l2": "hot"}, {"dropped": -1}])
def test_a_clock_that_cannot_be_is_refused_where_it_is_read(changes: dict[str, object]) -> None:
    good = {"n": 20, "median": 1.0, "p20": 0.9, "p80": 1.1, "l2": "cold"}
    assert msgspec.convert(good, Clock).median == 1.0
    with pytest.raises(msgspec.ValidationError, match=next(iter(changes))):
        msgspec.convert({**good, **changes}, Clock)


# ---- launches --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grid", "block", "registers", "text"),
    [
        ((24576, 1, 1), (128, 1, 1), 31, "24576 blocks of 128 threads, 31 registers"),
        ((2, 66, 1), (384, 1, 1), None, "2×66 blocks of 384 threads"),
        ((2, 1, 3), (16, 16, 1), 0, "2×1×3 blocks of 16×16 threads, 0 registers"),
        ((1, 1, 1), (1, 1, 1), None, "1 blocks of 1 threads"),
    ],
)
def test_a_launch_in_words(
    grid: tuple[int, int, int], block: tuple[int, int, int], registers: int | None, text: str
) -> None:
    assert str(LaunchConfig(grid=grid, block=block, registers=registers)) == text
