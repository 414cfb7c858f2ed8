"""A backend's error relative to eager's, and the seconds until it had run once."""

from __future__ import annotations

import msgspec
import pytest
from support.column_cells import data, texts
from support.profiles_made import COMPILE, LIGER

from mlpfusion.report.profile.columns.qualification import of_qualification


def test_errors_are_relative_to_those_of_eager() -> None:
    assert texts(of_qualification(), COMPILE) == {"error": "0.980 / 1.10", "setup_s": "<0.001 s + 0.250 s"}
    assert data(of_qualification(), COMPILE) == {
        "max_error": 0.0098,
        "rms_error": 0.0011,
        "eager_max_error": 0.01,
        "eager_rms_error": 0.001,
        "bind_s": 0.0004,
        "first_call_s": 0.25,
    }


@pytest.mark.parametrize(
    ("error", "eager", "text"), [(None, 0.1, "nan or inf"), (0.0, 0.0, "0"), (0.1, 0.0, "1.00e-01 over 0")]
)
def test_what_is_no_ratio_is_said(error: float | None, eager: float, text: str) -> None:
    accuracy = msgspec.structs.replace(COMPILE.accuracy, max_error=error, eager_max_error=eager)
    row = msgspec.structs.replace(COMPILE, accuracy=accuracy)
    assert texts(of_qualification(), row)["error"] == f"{text} / 1.10"


def test_a_row_without_figures_has_none() -> None:
    assert set(texts(of_qualification(), LIGER).values()) == {"–"}
    assert set(data(of_qualification(), LIGER).values()) == {None}
