"""Columns of clocks: a median with its percentiles, and ratios to eager by one clock."""

from __future__ import annotations

import msgspec
import pytest
from support.profiles_made import COMPILE, EAGER, LIGER, clock

from mlpfusion.records.clocks import Clocks
from mlpfusion.report.profile.columns.clocks import CLOCKS, clock_of, has_spread, of_clock, speedup_vs_eager


@pytest.mark.parametrize("name", CLOCKS)
def test_a_median_is_shown_with_its_percentiles_or_not_at_all(name: str) -> None:
    column = of_clock(name, "µs", "speed", "time")  # type: ignore[arg-type]
    for made, text in ((clock(242.61), "242.6 [241.9–243.4]"), (clock(242.61, n=5, p20=None, p80=None), "–")):
        row = msgspec.structs.replace(EAGER, clocks=Clocks(**{name: made}))
        assert column.text(row) == text
        assert column.data(row)[name] == 242.61  # programs see n beside it
        assert column.data(row)[f"{name}_n"] == made.n
    assert column.text(LIGER) == "–"
    assert set(column.data(LIGER).values()) == {None}


def test_the_host_s_load_disturbs_every_clock_but_that_of_the_trace() -> None:
    assert {name for name in CLOCKS if not of_clock(name, "µs", "speed", "time").disturbed} == {"kernel_us"}


def test_a_speedup_is_by_the_clock_that_was_asked_for() -> None:
    column = speedup_vs_eager("event_us")
    assert column.text(EAGER) == "baseline"
    assert column.text(COMPILE) == "1.060x [1.057–1.064]"
    assert column.data(COMPILE)["speedup_vs_eager_clock"] == "event_us"
    other = speedup_vs_eager("wall_us")
    assert other.text(COMPILE) == other.text(EAGER) == "–"  # neither was read
    assert other.data(COMPILE)["speedup_vs_eager_clock"] is None


def test_what_has_a_spread() -> None:
    assert has_spread(clock(1.0))
    assert not has_spread(clock(1.0, n=5, p20=None, p80=None))
    assert EAGER.bound is not None
    assert has_spread(EAGER.bound)
    assert not has_spread(msgspec.structs.replace(EAGER.bound, host_p80_us=None))
    assert clock_of(EAGER, "graph_us") is None
