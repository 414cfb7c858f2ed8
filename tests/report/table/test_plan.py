"""The plan of a choice as a table."""

from __future__ import annotations

import csv
import io

import pytest
from support.paths import RESULTS

from mlpfusion.errors import UsageError
from mlpfusion.report.table import plan
from mlpfusion.storage import results

FOUND = results.load_plan(RESULTS / "h200-choose-gemma-2b" / "plan.json")


def test_it_says_what_rows_are_measured_with() -> None:
    text = plan.render(FOUND)
    facts = dict(line.split(maxsplit=1) for line in text.splitlines()[2:])
    assert facts["hidden_size"] == str(FOUND.spec.hidden_size)
    assert facts["rounds"] == str(FOUND.rounds)
    assert facts["device"] == FOUND.holds.device
    assert facts["torch"] == FOUND.holds.versions["torch"]
    assert list(csv.reader(io.StringIO(plan.render(FOUND, "csv"))))[1] == ["kind", "choice plan"]
    assert plan.render(FOUND, "github").startswith("| fact")
    assert plan.render(FOUND, "json") == results.encode(FOUND)


def test_an_unknown_format() -> None:
    with pytest.raises(UsageError, match="unknown format 'pdf'"):
        plan.render(FOUND, "pdf")
