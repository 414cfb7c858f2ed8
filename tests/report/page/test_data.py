"""The numbers that the page's script works with."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import profiles_made as made
from support import rings
from support.reported import source

from mlpfusion.report.page import cases, data

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=rings.examples(60), deadline=None)
@given(JSON | st.sampled_from(["</script>", "<!--", "]]>", "&lt;"]))
def test_it_stays_within_its_element_and_reads_as_it_was(value) -> None:
    text = data.script_json(value)
    assert not set("<>&") & set(text)
    assert text.isascii()
    assert json.loads(text) == value


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_no_number_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        data.script_json(number)


def test_rows_of_two_figures_stand_once_and_all_else_is_as_it_was() -> None:
    rows, others = [{"a": "x", "b": 1 / 3}, {"b": 2, "a": "y"}], [{"a": None, "b": "x"}, {"c": True}]
    specs = [
        {"wide": {"data": {"values": rows}, "layer": [{"data": {"values": others}}], "width": 9}},
        {"narrow": {"data": {"values": list(rows)}, "data2": {"values": [1]}, "layer": ({"data": {"name": "x"}},)}},
    ]
    assert data.hoisted(specs) == {
        "specs": [
            {"wide": {"data": {"values": 0}, "layer": [{"data": {"values": 1}}], "width": 9}},
            {"narrow": {"data": {"values": 0}, "data2": {"values": [1]}, "layer": [{"data": {"name": "x"}}]}},
        ],
        "tables": [
            {"fields": [("a", "b"), ("b", "a")], "rows": [[0, "x", 0.3333333], [1, 2, "y"]]},
            {"fields": [("a", "b"), ("c",)], "rows": [[0, None, "x"], [1, True]]},
        ],
    }


def test_times_and_ratios_are_those_of_the_file() -> None:
    eager, fast = made.timed("eager", 100.0), made.timed("fast", 50.0)
    found = data.numbers(cases.cases([source(made.profile(eager, fast, made.HUB))]), "event_us")
    (case,) = found["cases"]
    assert found["backends"] == ["eager", "fast", "hub"]
    assert case["event_us"]["times"] == {"eager": [100.0, 100.0, 100.0], "fast": [50.0, 50.0, 50.0]}
    assert case["event_us"]["pairs"] == {"0,1": [2.0, 2.0, 2.0]}


def test_what_is_not_valid_has_no_number() -> None:
    found = data.numbers(cases.cases([source(made.profile(made.HUB, made.TRITON))]), "event_us")
    assert (found["clocks"], found["cases"]) == ((), [{"tokens": "8192", "mode": "inference"}])
