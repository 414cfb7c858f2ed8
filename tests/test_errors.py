"""Errors have one line that a user can act on, and carry what is needed."""

from __future__ import annotations

import pytest

from mlpfusion import errors

KINDS = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_is_one_of_ours_and_in_the_list_of_them(kind: type[Exception]) -> None:
    assert issubclass(kind, errors.MlpfusionError)
    assert errors.__doc__ is not None
    assert kind.__name__ in errors.__doc__


def test_a_wrong_value_is_a_value_error_too() -> None:
    assert issubclass(errors.UnknownBackendError, errors.UsageError)
    assert issubclass(errors.UsageError, ValueError)


def test_what_errors_carry() -> None:
    absent = errors.BackendUnavailableError("liger", "no GPU")
    assert (str(absent), absent.backend, absent.reason) == ("backend 'liger' is unavailable: no GPU", "liger", "no GPU")
    assert errors.NothingSwappedError("nothing", (1,)).refused == (1,)
    assert errors.UnsavedError("full", result := object()).result is result


@pytest.mark.parametrize(
    ("text", "line"), [("a\nb", "a"), ("\n\n  a  \nb", "a"), ("", "ValueError"), (" \n\t", "ValueError")]
)
def test_the_first_line_that_is_not_empty(text: str, line: str) -> None:
    assert errors.first_line(ValueError(text)) == line
