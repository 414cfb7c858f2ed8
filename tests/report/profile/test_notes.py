"""Notes and reasons below a table: of the rows and columns that are shown."""

from __future__ import annotations

import pytest
from support.profiles_made import EAGER, LIGER, profile

from mlpfusion.report.profile.table import render


@pytest.mark.parametrize(
    ("column", "noted"),
    [
        ("graph_us", {"graph_us: not measured: capture is off (eager, compile)"}),
        ("wall_us", {"wall_us: not measured: not raced (eager)"}),
        ("saved_bytes", {"saved_for_backward_bytes: not measured: inference keeps nothing (eager, compile)"}),
        ("peak_bytes", set()),
        ("kernels", set()),
    ],
)
def test_notes_are_of_the_columns_shown(column: str, noted: set[str]) -> None:
    last = render(profile(), "text", [column]).rstrip("\n").split("\n\n")[-1].splitlines()
    reasons = {line for line in last if line.startswith(("liger:", "hub:", "triton:"))}
    assert len(reasons) == 3
    assert {*last} - reasons == noted


def test_rows_without_a_reason_and_columns_without_a_note_end_in_the_table() -> None:
    text = render(profile(EAGER), "text", ["kernels"])
    assert text.rstrip("\n").splitlines()[-1].split() == ["eager", "5"]
    assert LIGER.reason not in text
