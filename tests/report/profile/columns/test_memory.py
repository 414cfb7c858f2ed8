"""Memory of a call, in MB as text and in bytes for programs."""

from __future__ import annotations

from support.column_cells import data, texts
from support.profiles_made import EAGER, LIGER

from mlpfusion.report.profile.columns.memory import of_memory


def test_what_was_measured_is_shown_and_the_rest_absent() -> None:
    assert texts(of_memory(), EAGER) == {"peak_bytes": "151", "saved_bytes": "–"}
    assert data(of_memory(), EAGER) == {"peak_bytes": 151_000_000, "saved_bytes": None}
    assert texts(of_memory(), LIGER) == {"peak_bytes": "–", "saved_bytes": "–"}


def test_an_absent_figure_has_the_name_of_its_reason() -> None:
    assert [column.of for column in of_memory()] == [("peak_bytes",), ("saved_for_backward_bytes",)]
