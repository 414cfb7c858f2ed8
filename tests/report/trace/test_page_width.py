"""report.trace.page: no line of a text is longer than 200 characters, whatever names a trace has."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings
from support.timeline import Timeline

from mlpfusion.report import diff
from mlpfusion.report.trace.page import render
from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.diff.calls import diff as differ
from mlpfusion.trace.findings.host import findings

WORDS = [
    "a",
    "::",
    "<",
    ">",
    "(",
    ")",
    ", ",
    " ",
    "_",
    "x" * 90,
    "triton_poi_fused_",
    "void ",
    "é",
    "\n",
    "|",
    "`",
    "–",
]
NAMES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=60).map("".join)


def trace(names: list[str], calls: int, kernels: int) -> Any:
    """Calls whose kernels, operators, annotations and API calls bear names of a kind that nobody expects."""
    made = Timeline()
    for call in range(calls):
        start = 10_000 * (call + 1)
        made.call(start, 9000, names[0])
        for number in range(kernels):
            name = names[number % len(names)]
            at = start + 10 + 20 * number
            made.op(names[-1 - number % len(names)], at, 15).launch(f"{name}{number % 50}", at + 3, at + 9, 5)
            made.device(f"orphan {name}", at + 14, 2, 10**6 + number, stream=number % 60)
    return made


def longest(text: str) -> int:
    return max(map(len, text.splitlines()), default=0)


@settings(max_examples=rings.examples(25), deadline=None)
@given(st.lists(NAMES, min_size=1, max_size=8), st.integers(1, 3), st.sampled_from([1, 5, 41, 120]), st.booleans())
def test_no_line_of_a_page_or_a_difference_is_too_long(
    names: list[str], calls: int, kernels: int, everything: bool
) -> None:
    found = read(trace(names, calls, kernels).text().encode())
    other = read(trace(names[::-1], calls, kernels + 1).text().encode())
    assert longest(render([(found, findings(found))], everything=everything)) <= 200
    assert longest(diff.render(differ(found, other, labels=("a" * 400, "b b")), everything=everything)) <= 200


@pytest.mark.parametrize("length", [1, 63, 64, 65, 1000, 20_000])
def test_one_word_is_cut_or_folded(length: int) -> None:
    document = json.loads(trace(["n" * length], 2, 3).text())
    document["deviceProperties"] = [{"id": 0, "name": "NVIDIA " + "x" * 50}]
    found = read(json.dumps(document).encode())
    assert longest(render([(found, findings(found))])) <= 200
