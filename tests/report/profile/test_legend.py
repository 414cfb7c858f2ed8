"""The legend explains the columns that are shown, and fits the page."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace
from support.comparisons_made import raced
from support.profiles_made import profile
from support.recorded_profiles import RECORDED, profiles_in

from mlpfusion.report.profile.columns.every import all_columns
from mlpfusion.report.profile.table import render
from mlpfusion.stages.compare import self_test

TERMS = {
    "event_us": {"event_us", "speedup_vs_eager"},  # eager's ratio is by this clock
    "kernel_us": {"kernel_us", "bandwidth", "of_roofline"},
    "speedup": {"speedup_vs_eager"},
    "trace": {"first_launch_us", "dynamo_us", "compiled_graph_us"},
    "HBM": {"hbm_bytes", "bandwidth", "round_trips"},
    "error": {"error"},
}


@pytest.mark.parametrize("column", all_columns(), ids=lambda column: column.key)
@pytest.mark.parametrize("fmt", ["text", "github"])
def test_the_legend_explains_the_columns_shown_and_no_other(fmt: str, column: Any) -> None:
    head = render(profile(), fmt, [column.key]).split("\n\n")[0]
    labels = {re.split(r"\*\*: | {2,}| ", line.removeprefix("- **"))[0] for line in head.splitlines()}
    for term, columns in TERMS.items():
        assert (term in labels) == (column.key in columns), term


@pytest.mark.parametrize("fmt", ["text"])
def test_the_legend_fits_too(fmt: str) -> None:
    for path in RECORDED:
        for each in profiles_in(path):
            head = render(each, fmt).split("\n\n")[0]
            assert max(map(len, head.splitlines())) <= 120


def test_what_the_processes_say_of_each_other_is_told() -> None:
    made = raced({"triton": 0.9, "fused": 0.7})
    assert "A/A" not in render(made)
    text = " ".join(render(replace(made, itself=self_test.of_profile(made))).split())
    assert "half of them against the others by graph_us: 0 of 20 splits get a verdict" in text
