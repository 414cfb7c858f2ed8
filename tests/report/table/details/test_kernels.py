"""The kernels of each row."""

from __future__ import annotations

from support.profiles_made import GELU
from support.races_made import failed, race

from mlpfusion.report.table.details.detail import table
from mlpfusion.report.table.details.kernels import KERNELS


def test_every_kernel_has_a_line_and_its_whole_name_for_programs() -> None:
    (found,) = table(KERNELS, [race({"fused": 0.5}, extra=(failed(),))])
    assert [line.data["number"] for line in found.lines] == [1, 2, 3, 4, 5] * 2
    assert found.lines[1].data["kernel"] == GELU
    assert len(found.lines[1].cells[3].text) < len(GELU)
    assert found.lines[0].cells[-1].text == "61.80 [61.50–62.20]"


def test_rows_without_kernels_make_no_table() -> None:
    assert table(KERNELS, [race({}, rows={"eager": {"kernels": ()}})]) == []
