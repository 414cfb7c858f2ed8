"""What a trace says is JSON both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from support.paths import DATA

from mlpfusion.records.trace import CallChoice, Difference, Finding
from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.diff.calls import diff
from mlpfusion.trace.findings.host import findings

if TYPE_CHECKING:
    from pathlib import Path


def both_ways(record: msgspec.Struct) -> msgspec.Struct:
    return msgspec.json.decode(msgspec.json.encode(record), type=type(record))


@pytest.mark.parametrize("path", sorted(DATA.glob("*.json.gz")), ids=lambda path: path.name)
def test_a_reading_and_its_findings(path: Path) -> None:
    reading = read(path)
    assert both_ways(reading) == reading
    for found in findings(reading):
        assert isinstance(found, Finding)
        assert both_ways(found) == found
        assert found.seen
        assert found.means
        assert found.do


def test_a_difference() -> None:
    eager, compiled = (read(DATA / f"h200_{name}.json.gz") for name in ("eager", "compile"))
    found = diff(eager, compiled)
    assert isinstance(found, Difference)
    assert both_ways(found) == found


def test_how_a_call_was_found_is_one_of_four() -> None:
    with pytest.raises(msgspec.ValidationError, match="guess"):
        msgspec.convert({"by": "guess", "name": None, "count": 1, "reason": ""}, CallChoice)
