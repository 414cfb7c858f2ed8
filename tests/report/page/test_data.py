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
