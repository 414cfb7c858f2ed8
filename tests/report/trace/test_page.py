"""report.trace.page: a reading in each format, and a format that is none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from support import pages
from support.pages import page

from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from mlpfusion.records.trace import Reading

eager = pages.eager  # a fixture


def test_a_format_that_is_none(eager: Reading) -> None:
    with pytest.raises(UsageError, match="unknown format 'xml'; valid: text, github, csv, json"):
        page(eager, "xml")


def test_lines_of_csv_are_the_kernels_of_a_call(eager: Reading) -> None:
    lines = page(eager, "csv").splitlines()
    assert len(lines) == 1 + len(eager.analysis.kernels)
    assert lines[0].startswith("source,device,call")


def test_json_has_everything(eager: Reading) -> None:
    (trace,) = json.loads(page(eager, "json"))["traces"]
    assert [kernel["name"] for kernel in trace["analysis"]["kernels"]] == [
        kernel.name for kernel in eager.analysis.kernels
    ]
    assert trace["findings"] == []
