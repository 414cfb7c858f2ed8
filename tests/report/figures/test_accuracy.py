"""Errors over eager's: what a logarithmic axis shows, and what it cannot."""

from __future__ import annotations

import msgspec
import pytest
from support.figures_made import figure, of
from support.profiles_made import COMPILE, EAGER, profile

from mlpfusion.records.profile import Accuracy


def with_errors(largest: float | None, rms: float | None, **changes):
    fields = {"eager_max_error": 0.01, "eager_rms_error": 0.001, "rows": 256, "elements": 65536, **changes}
    return msgspec.structs.replace(COMPILE, accuracy=Accuracy(max_error=largest, rms_error=rms, **fields))


def test_both_errors_and_the_limit_are_drawn() -> None:
    made = of("accuracy", profile(EAGER, with_errors(0.02, 0.0005)))
    told = dict(zip(made.columns, made.rows[0], strict=True))
    assert (told["max_error_over_eager"], told["rms_error_over_eager"], told["limit"]) == (2.0, 0.5, 2.0)
    assert [each["kind"] for each in made.spec["data"]["values"]] == ["largest error", "rms error", "limit"]


def test_the_limit_is_that_of_the_row() -> None:
    made = of("accuracy", profile(EAGER, with_errors(0.02, 0.0005, elements=200)))
    assert made.spec["data"]["values"][-1]["ratio"] == 4.0


@pytest.mark.parametrize(
    ("errors", "note"),
    [
        ((None, 0.001), "compile: nan or inf where eager is finite"),
        ((0.0, 0.0), "compile: no error at all"),
        ((0.0, 0.001), "compile: 1 times eager's error"),
    ],
    ids=["nan", "exact", "half"],
)
def test_what_no_axis_shows_is_said(errors, note: str) -> None:
    fine = msgspec.structs.replace(with_errors(0.01, 0.001), backend="liger")
    made = of("accuracy", profile(EAGER, with_errors(*errors), fine))
    assert made.notes == (note,)


def test_an_error_where_eager_has_none_is_said() -> None:
    fine = msgspec.structs.replace(with_errors(0.01, 0.001), backend="liger")
    made = of("accuracy", profile(EAGER, with_errors(0.1, 0.1, eager_max_error=0.0, eager_rms_error=0.0), fine))
    assert made.notes == ("compile: an error where eager has none",)


def test_eager_is_the_line_and_no_row() -> None:
    assert "eager" not in {row[0] for row in figure("accuracy", "h200-profile.json").rows}
