"""Values as they are typed, and messages of one line."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion import limits
from mlpfusion.cli import text
from mlpfusion.errors import UsageError


@given(st.integers(limits.SIZE.least, limits.SIZE.most))
def test_a_size_is_plain_decimal_digits(number: int) -> None:
    assert text.size("--batch", str(number)) == number
    with pytest.raises(UsageError, match=r"^--batch must be an integer from 1 to \d+, got '-"):
        text.size("--batch", f"-{number}")


@pytest.mark.parametrize("typed", ["", " 1", "1.0", "1e3", "0x1", "٣", "1_000", "0", "one", "9" * 40])
def test_what_is_no_size(typed: str) -> None:
    with pytest.raises(UsageError, match=r"^--seq must be an integer from"):
        text.size("--seq", typed)


def test_an_option_that_is_not_given_has_no_size() -> None:
    assert text.size("--seq", None) is None


@pytest.mark.parametrize(("typed", "found"), [("1", 1.0), ("0.5", 0.5), ("1e2", 100.0)])
def test_seconds(typed: str, found: float) -> None:
    assert text.seconds("--time-limit", typed) == found


@pytest.mark.parametrize("typed", ["", "nan", "inf", "-1", "0", "1s", "1e99"])
def test_what_is_no_number_of_seconds(typed: str) -> None:
    with pytest.raises(UsageError, match=r"^--time-limit must be"):
        text.seconds("--time-limit", typed)


@pytest.mark.parametrize(("typed", "names"), [("a", ["a"]), ("a,b", ["a", "b"]), (" a , b ", ["a", "b"])])
def test_names_with_commas(typed: str, names: list[str]) -> None:
    assert text.names_in("--backends", typed) == names


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("", "--backends '' has an empty name"),
        ("a,", "--backends 'a,' has an empty name"),
        ("a,,b", "has an empty name; give names separated by single commas"),
        ("a,b,a", "--backends names 'a' twice"),
        ("a, a", "--backends names 'a' twice"),
    ],
)
def test_names_that_are_none_or_come_twice(typed: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        text.names_in("--backends", typed)
    assert said in str(caught.value)


def test_a_path_is_not_empty_and_not_stdin() -> None:
    assert text.path_in("--out", "a/b") == Path("a/b")
    assert text.path_in("--out", "./-") == Path("-")
    for typed in ("", "a\0b"):
        with pytest.raises(UsageError, match=r"^--out needs a path, got "):
            text.path_in("--out", typed)
    with pytest.raises(UsageError, match=r"a file of that name is './-'$"):
        text.path_in("--out", "-")
    with pytest.raises(UsageError, match=r"--format json prints JSON$"):
        text.path_in("--json", "-")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("prof", "unknown command 'prof'; did you mean profile? valid: profile, table, trace"),
        ("tabel", "unknown command 'tabel'; did you mean table or trace? valid: profile, table, trace"),
        ("tra", "unknown command 'tra'; did you mean trace? valid: profile, table, trace"),
        ("xyz", "unknown command 'xyz'; valid: profile, table, trace"),
        ("t", "unknown command 't'; valid: profile, table, trace"),
    ],
)
def test_an_unknown_name_is_answered_with_near_and_valid_ones(name: str, said: str) -> None:
    assert text.unknown("command", name, ["profile", "table", "trace"]) == said


def test_a_complaint_is_one_line_on_stderr_and_gives_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert text.complain("it is\n  wrong") == text.FAILED
    assert text.complain("bad", text.USAGE) == text.USAGE
    assert capsys.readouterr() == ("", "mlpfusion: it is wrong\nmlpfusion: bad\n")


LONG = "x" * 40_000


@pytest.mark.parametrize(
    "message",
    [
        f"unknown row {LONG!r}; valid: a, b",
        f"unknown row {LONG.replace('x', 'x y')!r}; valid: a, b",
        f"{LONG} is none of eager's rows",
        f"'a.json' is damaged: Invalid enum value {LONG!r} - at `$.rows[0].{LONG}`",
        "unknown row 'a'; valid: " + ", ".join(f"row{number}" for number in range(20_000)),
        '"' + "it's " * 9000 + '" is no name',
    ],
)
def test_a_complaint_quotes_briefly(message: str, capsys: pytest.CaptureFixture[str]) -> None:
    text.complain(message)
    line = capsys.readouterr().err
    assert len(line) < 4100
    assert not any(len(word) > 200 for word in line.split())
    assert max(map(len, re.findall("x[xy …]*x", line)), default=0) <= 200
    assert line.startswith(f"mlpfusion: {message[:60]}")


def test_a_short_complaint_is_left_alone() -> None:
    path = "/a" * 90
    line = f"'{path}' and \"it's\" are eager's; the control's row 'b' is `$.c`: {'word ' * 60}".strip()
    assert text.quoting_briefly(line) == line


def test_what_is_said_goes_to_one_stream_and_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    text.say("a\x1b[2Jb")
    text.say("c\rd", sys.stderr)
    assert capsys.readouterr() == ("a�[2Jb\n", "c�d\n")
