"""A line for each sample."""

from __future__ import annotations

import csv
import io

import pytest
from msgspec.structs import replace
from support.comparisons_made import clock
from support.paths import RESULTS
from support.races_made import profile, source

from mlpfusion.errors import UsageError
from mlpfusion.report.table.formats.long import render
from mlpfusion.stages.tabulate.races import of_sources
from mlpfusion.stages.tabulate.sources import read


def lines(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_sample_has_its_process_and_round() -> None:
    made = profile({"fused": 0.5}, rounds=3, processes=2)
    found = lines(render(of_sources([source(made)])))
    assert [(each["backend"], each["process"], each["round"]) for each in found] == [
        (name, str(process), str(number)) for name in ("eager", "fused") for process in (0, 1) for number in (0, 1, 2)
    ]
    times = [float(each["us"]) for each in found if each["backend"] == "fused"]
    assert tuple(times) == made.rows[1].clocks.event_us.samples  # type: ignore[union-attr]


def test_a_dropped_round_is_empty() -> None:
    made = profile({"fused": 0.5}, rounds=3, processes=1)
    row = made.rows[1]
    assert row.clocks is not None
    kept = clock([(1.0, None, 3.0)])
    rows = (made.rows[0], replace(row, clocks=replace(row.clocks, event_us=kept)))
    found = lines(render(of_sources([source(replace(made, rows=rows))])))
    assert [each["us"] for each in found if each["backend"] == "fused"] == ["1.0", "", "3.0"]


def test_a_choice_has_no_samples() -> None:
    with pytest.raises(UsageError, match="--long shows samples, and no row has any"):
        render(of_sources(read([str(RESULTS / "h200-choose-article" / "choice.json")])))
