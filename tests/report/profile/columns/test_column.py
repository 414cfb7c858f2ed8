"""A column of plain numbers: scaled as text, in the record's unit for programs, absent where there is none."""

from __future__ import annotations

import pytest
from support.profiles_made import EAGER

from mlpfusion.report.profile.columns.column import number


@pytest.mark.parametrize(("value", "text"), [(151e6, "151"), (1.5e6, "1.50"), (0.0, "0"), (None, "–")])
def test_a_number_is_shown_in_the_unit_of_its_heading(value: float | None, text: str) -> None:
    column = number("bytes", "MB", "memory", lambda row: value, "what it means", scale=1e6, of=("bytes",))
    assert column.text(EAGER) == text
    assert column.data(EAGER) == {"bytes": value}
    assert (column.key, column.head, column.group, column.of) == ("bytes", "MB", "memory", ("bytes",))
    assert column.right
    assert not column.disturbed
