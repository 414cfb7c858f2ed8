"""Tables of what rows have several of."""

from __future__ import annotations

import pytest
from support.races_made import failed, race

from mlpfusion.report.table.details.detail import table
from mlpfusion.report.table.details.errors import ERRORS
from mlpfusion.report.table.details.kernels import KERNELS
from mlpfusion.report.table.details.values import VALUES


@pytest.mark.parametrize("detail", [ERRORS, KERNELS, VALUES], ids=lambda each: each.title)
def test_rows_without_any_make_no_table(detail) -> None:
    assert table(detail, [race({}, rows={"eager": {"kernels": (), "accuracy": None, "traffic": None}})]) == []


def test_races_are_told_apart_and_a_failed_row_has_no_line() -> None:
    (found,) = table(KERNELS, [race({"fused": 0.5}, 16, extra=(failed(),)), race({"fused": 0.5}, 64)])
    assert [column.key for column in found.columns][:2] == ["tokens", "backend"]
    assert {(line.data["tokens"], line.data["backend"]) for line in found.lines} == {
        (tokens, name) for tokens in (16, 64) for name in ("eager", "fused")
    }
