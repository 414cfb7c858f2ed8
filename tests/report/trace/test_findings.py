"""report.trace.findings: their cost beside the name, long texts wrapped, and what is small in one line together."""

from __future__ import annotations

import pytest

from mlpfusion.records.trace import Finding
from mlpfusion.report.trace.findings import findings_text


def finding(name: str, share: float, text: str = "seen") -> Finding:
    return Finding(id=name, seen=text, means="so it is", do="this", cost_us=1000 * share, share=share)


def test_none_is_no_text() -> None:
    assert findings_text([], github=False) == ""


@pytest.mark.parametrize("github", [False, True])
def test_small_ones_are_one_line_together(github: bool) -> None:
    found = [finding("large", 0.5), finding("tiny", 0.009), finding("tinier", 0.001)]
    text = findings_text(found, github=github)
    assert "below 1% of a call each: tiny (9.00 µs), tinier (1.00 µs)" in text.replace("&lt;", "<")
    assert text.count("this") == 1


@pytest.mark.parametrize("length", [10, 200, 2000])
def test_long_texts_are_wrapped_below_their_beginning(length: int) -> None:
    lines = findings_text([finding("one", 0.5, "word " * (length // 5))], github=False).splitlines()
    assert max(map(len, lines)) <= 160
    assert sum(line.count("word") for line in lines) == length // 5
    assert all(line.startswith("  ") for line in lines[2:])
