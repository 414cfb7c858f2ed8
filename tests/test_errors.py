"""Errors have one line that a user can act on, and carry what is needed; reasons show no path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("cannot open /home/me/secret/file.bin", "cannot open file.bin"),
        ("'/a/b/c.py', line 3", "'c.py', line 3"),
        ("/a/b:/c/d", "b:d"),
        ("a/b/c and ./a/b", "a/b/c and ./a/b"),
        ("see https://x.org/a/b, not /a/b", "see https://x.org/a/b, not b"),
        ("http://x.org:80/a", "http://x.org:80/a"),
        ("file:///home/me/x", "file://x"),
        ("3 GB/s", "3 GB/s"),
        ("/tmp", "/tmp"),
    ],
)
def test_absolute_paths_are_cut_to_their_last_part(text: str, left: str) -> None:
    assert errors.without_paths(text) == left


@given(st.lists(st.from_regex(r"[a-z]{1,8}", fullmatch=True), min_size=2, max_size=5))
def test_no_folder_of_a_path_is_left(parts: list[str]) -> None:
    found = errors.without_paths(f"cannot read /{'/'.join(parts)}")
    assert found == f"cannot read {parts[-1]}"
