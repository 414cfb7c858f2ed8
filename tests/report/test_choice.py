"""A choice as text, Markdown, CSV and JSON: ranges, winners, and why the others lost."""

from __future__ import annotations

import csv
import io
import json

import pytest
import torch
from msgspec.structs import replace
from support.choices_made import a_choice, around, part, point_of, row

from mlpfusion.errors import UsageError
from mlpfusion.report import choice as report

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the choice without a GPU")


def test_reports_say_it_in_four_formats():
    made = a_choice(part("eager", 1, 8), part("compile", 9))
    text = report.render(made)
    for said in ("1 to 8", "9 and more", "130", "0.769x", "slower with no more kernels or bytes", "16x32-gelu_tanh"):
        assert said in text
    markdown = report.render(made, "github")
    assert "| inference |" in markdown
    assert "**Ranges**" in markdown
    assert json.loads(report.render(made, "json"))["kind"] == "choice"
    lines = list(csv.DictReader(io.StringIO(report.render(made, "csv"))))
    assert [(line["backend"], line["chosen"], line["verdict"]) for line in lines] == [
        ("eager", "True", "won"),
        ("compile", "False", "slower"),
    ]
    with pytest.raises(UsageError, match="unknown format 'html'"):
        report.render(made, "html")


pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the choice without a GPU")


def test_what_others_took_of_the_host_is_kept_and_said_of_its_point():
    def beside(name, us, share):
        made = row(name, around(us))
        return replace(made, clocks=replace(made.clocks, neighbours=share))

    quiet, busy = point_of(beside("eager", 2, None)), point_of(beside("eager", 2, 0.1), beside("fused", 1, 0.4))
    assert (quiet.neighbours, busy.neighbours) == (None, 0.4)
    text = report.render(replace(a_choice(part("eager", 1, 8)), points=(quiet, busy)))
    assert text.count("background load was") == 1
    assert "note: inference, 16 tokens: background load was 40% of the CPU" in text
