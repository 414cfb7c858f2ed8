"""The page of one reading, and the reading of a recorded trace that tests change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlpfusion.report.trace.page import render
from mlpfusion.trace.analysis.summary import read
from support.paths import DATA

if TYPE_CHECKING:
    from mlpfusion.records.trace import Reading


@pytest.fixture(scope="module")
def eager() -> Reading:
    return read(DATA / "h200_eager.json.gz")


def page(reading: Reading, fmt: str = "text") -> str:
    return render([(reading, ())], fmt)
