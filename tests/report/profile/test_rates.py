"""Rates of a call in a trace: bytes per second, and the fraction of the roofline."""

from __future__ import annotations

import msgspec
import pytest
from support.profiles_made import EAGER, clock, profile

from mlpfusion.records.clocks import Clocks
from mlpfusion.report.profile import rates
from mlpfusion.report.profile.table import render


@pytest.mark.parametrize("field", ["median", "p20", "p80"])
def test_a_time_of_nothing_has_no_rate(field: str) -> None:
    row = msgspec.structs.replace(EAGER, clocks=Clocks(kernel_us=msgspec.structs.replace(clock(238.0), **{field: 0.0})))
    found = rates.gigabytes_per_second(row)
    assert found is None or None in found
    for fmt in ("text", "github", "csv"):
        render(profile(row), fmt, ["bandwidth", "of_roofline"])
