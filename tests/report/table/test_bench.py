"""What a script of `bench/` wrote, as tables: nothing is lost in CSV and JSON, and nothing steers a terminal."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings

from mlpfusion.errors import UsageError
from mlpfusion.records.bench import Bench
from mlpfusion.report.table import bench

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = (
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | NAMES
)
TREES = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=20
)


def made(**content: Any) -> Bench:
    return Bench(schema=1, kind="fused", content=content)


@given(st.dictionaries(NAMES, TREES, max_size=4))
@settings(max_examples=rings.examples(50))
def test_any_content_is_shown(content: dict[str, Any]) -> None:
    found = made() if not content else Bench(schema=1, kind="fused", content=content)
    for fmt in ("text", "github"):
        assert "\x1b" not in bench.render(found, fmt)
    assert json.loads(bench.render(found, "json")) == {"schema": 1, "kind": "fused", **content}
    list(csv.reader(io.StringIO(bench.render(found, "csv"))))


def test_entries_of_one_shape_are_one_table() -> None:
    text = bench.render(
        made(rows=[{"key": "a", "us": 1.5}, {"key": "b", "us": 20.0}], host={"x": {"us": 3}, "y": {"us": 4}})
    )
    assert [line.split() for line in text.splitlines() if line.startswith(("rows", "host"))] == [
        ["rows", "/", "a", "a", "1.50"],
        ["rows", "/", "b", "b", "20.0"],
        ["host", "/", "x", "3"],
        ["host", "/", "y", "4"],
    ]


def test_what_is_left_out_is_counted_and_in_csv() -> None:
    found = made(rows=[{"us": number} for number in range(100)], many={f"v{n}": [0] * 9 for n in range(9)})
    text = bench.render(found)
    assert "60 more rows: --format csv has all values" in text
    assert "9 values" in text
    assert len(bench.render(found, "csv").splitlines()) == 1 + 100 + 9
    tables = made(**{f"t{number}": {f"f{number}": 1} for number in range(50)})
    assert "10 more tables" in bench.render(tables)


def test_an_unknown_format() -> None:
    with pytest.raises(UsageError, match="unknown format 'latex'"):
        bench.render(made(), "latex")
