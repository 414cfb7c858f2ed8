"""The errors of each row."""

from __future__ import annotations

from msgspec.structs import replace
from support import profiles_made as made
from support.races_made import race

from mlpfusion.report.table.details.detail import table
from mlpfusion.report.table.details.errors import ERRORS


def test_errors_stand_beside_eager_s_with_the_limit() -> None:
    (found,) = table(ERRORS, [race({}, extra=(made.COMPILE,))])
    line = dict(zip((column.key for column in found.columns), found.lines[-1].cells, strict=True))
    assert (line["ratio"].text, line["limit"].text) == ("1.10", "2.00")
    assert found.lines[-1].data["max_error"] == made.COMPILE.accuracy.max_error


def test_what_is_no_number_says_so_and_is_none_for_programs() -> None:
    broken = replace(made.COMPILE, accuracy=replace(made.COMPILE.accuracy, max_error=None))
    (found,) = table(ERRORS, [race({}, extra=(broken,))])
    assert [cell.text for cell in found.lines[-1].cells][1] == "nan or inf"
    assert found.lines[-1].data["max_error"] is found.lines[-1].data["ratio"] is None
