"""What does not fit together in a record is named with its place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.choices_made import a_choice
from support.comparisons_made import raced
from support.paths import RESULTS
from support.profiles_made import EAGER, clock, kernel, profile, ratio
from support.recorded_profiles import RECORDED, profiles_in

from mlpfusion.records.clocks import Clocks
from mlpfusion.records.profile import Traffic
from mlpfusion.records.traffic import Ceilings, CopyRate, Intermediate, ProductRate, Step
from mlpfusion.stages.compare import self_test
from mlpfusion.storage import results
from mlpfusion.storage.invariants import broken

PRODUCT = ProductRate(m=1, n=1, k=1, flops_per_second=1.0, samples=1)
STEP = Step(op="mm", source="operator", read_bytes=1, write_bytes=1)
VALUE = Intermediate(role="gate", bytes=1, moved_bytes=2, written_by="a", read_by=("b",))


def copies(*sizes: int) -> Ceilings:
    found = tuple(CopyRate(bytes=size, bytes_per_second=1.0, n=20) for size in sizes)
    return Ceilings(dtype="bfloat16", copies=found, products=(PRODUCT,))


def of_step(**changes: object) -> Any:
    traffic = Traffic(minimum_bytes=1, steps=(STEP, replace(STEP, **changes)), intermediates=(VALUE,))
    return replace(EAGER, traffic=traffic)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (clock(10.0, p20=11.0), "p20 11.0 is above median 10.0 - at `$`"),
        (clock(10.0, p80=9.0), "median 10.0 is above p80 9.0 - at `$`"),
        (clock(10.0, p20=11.0, p80=10.5), "p20 11.0 is above median 10.0 - at `$`"),
        (replace(ratio(1.0), low=1.1), "low 1.1 is above median 1.0 - at `$`"),
        (replace(ratio(1.0), high=0.9), "median 1.0 is above high 0.9 - at `$`"),
        (replace(kernel("k", "other", 5.0), p80_us=1.0), "time_us 5.0 is above p80_us 1.0 - at `$`"),
        (profile(EAGER, EAGER), "there are two rows 'eager' - at `$`"),
        (copies(8, 4), "copies are not in the order of their sizes: [8, 4] - at `$`"),
        (copies(4, 4), "copies are not in the order of their sizes: [4, 4] - at `$`"),
        (
            replace(EAGER, launches=replace(EAGER.launches, kernels=6)),
            "6 where its row names 5 - at `$.launches.kernels`",
        ),
        (of_step(kernels=(0, 7)), "7 where its row has 5 kernels - at `$.traffic.steps[1].kernels`"),
        (of_step(values_read=(1,)), "1 where its row has 1 intermediates - at `$.traffic.steps[1].values_read`"),
        (of_step(values_written=(9,)), "9 where its row has 1 intermediates - at `$.traffic.steps[1].values_written`"),
        (replace(a_choice(), points=()), "there is no point in it - at `$`"),
        (replace(a_choice(), points=a_choice().points * 2), "there are two points 'inference 16' - at `$`"),
    ],
)
def test_what_is_broken_is_said(record: Any, said: str) -> None:
    assert next(broken(record)) == said


@pytest.mark.parametrize("field", ["chosen", "winner", "runner_up", "tied"])
def test_a_point_names_its_own_contenders_alone(field: str) -> None:
    made = a_choice()
    point = replace(made.points[0], **{field: ("nobody",) if field == "tied" else "nobody"})
    assert list(broken(replace(made, points=(point,)))) == ["'nobody' is none of its contenders - at `$.points[0]`"]


def test_it_is_found_however_deep_it_lies() -> None:
    row = replace(EAGER, clocks=Clocks(event_us=clock(10.0, ratio_to_eager=replace(ratio(1.0), low=2.0))))
    place = "$.rows[1].clocks.event_us.ratio_to_eager"
    assert list(broken(profile(replace(EAGER, backend="a"), row))) == [f"low 2.0 is above median 1.0 - at `{place}`"]


@given(st.floats(1e-3, 1e6))
def test_equal_figures_are_in_order_whatever_interpolation_rounds(value: float) -> None:
    assert list(broken(clock(value, p20=value * (1 + 1e-12), p80=value * (1 - 1e-12)))) == []


def test_percentiles_that_are_absent_break_nothing() -> None:
    assert list(broken(clock(10.0, p20=None, p80=None))) == []
    assert list(broken(clock(10.0, p20=None, p80=9.0))) == ["median 10.0 is above p80 9.0 - at `$`"]


def test_what_was_recorded_is_whole() -> None:
    found = [each for path in RECORDED for each in profiles_in(path)]
    found += [results.load_choice(path) for path in RESULTS.glob("*/choice.json")]
    assert len(found) > 10
    assert [said for each in found for said in broken(each)] == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"backend": "other"}, "there is no row 'other' - at `$.itself[0].backend`"),
        ({"processes": 6}, "6 processes where 5 raced - at `$.itself[0].processes`"),
        ({"alarms": 11}, "11 false alarms in 10 splits - at `$.itself[0].alarms`"),
    ],
)
def test_a_comparison_with_itself_is_of_what_is_there(change: dict[str, Any], said: str) -> None:
    made = raced({"triton": 0.9})
    first, *rest = self_test.of_profile(made)
    assert list(broken(replace(made, itself=(first, *rest)))) == []
    changed = replace(made, itself=(replace(first, **change), *rest))
    assert any(said in each for each in broken(changed))
