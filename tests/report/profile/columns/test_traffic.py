"""Traffic of a call: round-trips or their lower bound, bytes by source, rates of the trace."""

from __future__ import annotations

import msgspec
import pytest
from support.column_cells import data, texts
from support.profiles_made import EAGER, LIGER

from mlpfusion.report.profile.columns.traffic import of_traffic


def test_a_row_that_was_observed_in_part_has_a_lower_bound() -> None:
    assert EAGER.traffic is not None
    for changes, text in (
        ({"round_trips": 3}, "3"),
        ({"round_trips_at_least": 2}, "unknown, ≥ 2"),
        ({}, "–"),
    ):
        row = msgspec.structs.replace(EAGER, traffic=msgspec.structs.replace(EAGER.traffic, **changes))
        assert texts(of_traffic(), row)["round_trips"] == text


def test_bytes_are_megabytes_by_source_and_rates_are_of_the_trace() -> None:
    traffic = msgspec.structs.replace(EAGER.traffic, limit_us=119.0)
    row = msgspec.structs.replace(EAGER, traffic=traffic)
    found = texts(of_traffic(), row)
    assert found["hbm_bytes"] == "39.0 / 455 / –"
    assert found["of_roofline"] == "50%"
    assert found["bandwidth"].startswith("1912 [")
    values = data(of_traffic(), row)
    assert values["gigabytes_per_second"] == pytest.approx(455e6 / 238e-6 / 1e9)
    assert (values["gigabytes_per_second_of"], values["roofline_us"]) == ("derived", 119.0)


def test_a_row_without_figures_has_none() -> None:
    assert set(texts(of_traffic(), LIGER).values()) == {"–"}
    assert set(data(of_traffic(), LIGER).values()) == {None}
