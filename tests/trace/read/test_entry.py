"""One entry of a trace: decoded strictly, or as far as it goes, or repaired."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.trace.read.entry import NO_TIME, Entry, decode_alone, repaired

WHOLE = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.5, "dur": 2, "args": {"correlation": 3}}


def times(entry: Entry) -> tuple[bytes, bytes]:
    return bytes(entry.ts), bytes(entry.dur)


def test_a_whole_entry_keeps_the_text_of_its_times() -> None:
    found = decode_alone(json.dumps(WHOLE).encode())
    assert found is not None
    assert (found.ph, found.cat, found.name, found.pid, found.tid) == ("X", "kernel", "k", 0, 7)
    assert times(found) == (b"1.5", b"2")
    assert found.args is not None
    assert found.args.correlation == 3


@pytest.mark.parametrize("field", WHOLE)
@pytest.mark.parametrize("wrong", [[1], {"a": 1}, None, True])
def test_a_field_of_a_wrong_type_costs_no_other(field: str, wrong: object) -> None:
    found = decode_alone(json.dumps({**WHOLE, field: wrong}).encode())
    assert found is not None
    for other, value in (("ph", "X"), ("name", "k"), ("cat", "kernel")):
        if other != field:
            assert getattr(found, other) == value


def test_ids_that_are_strings_are_numbers_where_a_field_is_wrong() -> None:
    found = decode_alone(json.dumps({**WHOLE, "name": 3, "tid": "7", "pid": "a"}).encode())
    assert found is not None
    assert (found.name, found.tid, found.pid) == ("", 7, None)


@pytest.mark.parametrize("text", [b"", b"[]", b"3", b'"a"', b"{", b"nonsense", b"[" * 5000])
def test_what_is_no_object_is_nothing(text: bytes) -> None:
    assert decode_alone(text) is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (b'{"ph": "X", "name": "a\\q"}', "a\\q"),  # no escape
        (b'{"ph": "X", "name": "C:\\dir\\new"}', "C:\\dir\new"),
        (b'{"ph": "X", "name": "a\tb"}', "a\tb"),  # a raw control character
        (b'{"ph": "X", "name": "a\xffb"}', "a\ufffdb"),  # no UTF-8
        (b'{"ph": "X", "name": "a\\ud800b"}', "a\ufffdb"),  # half a pair
        (b'{"ph": "X", "name": "say "hello" twice"}', 'say "hello" twice'),
        (b'{"ph": "X", "name": "k", "dur": NaN}', "k"),
        (b'{"ph": "X", "name": "k", "dur": -Infinity}', "k"),
    ],
)
def test_a_damaged_entry_is_repaired(text: bytes, name: str) -> None:
    found = repaired(text)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("text", [b"", b"{}", b'{"name": "k"}', b'{"ph": "X", "name": ', b"[1, 2]"])
def test_what_cannot_be_repaired_is_nothing(text: bytes) -> None:
    assert repaired(text) is None


def test_a_piece_that_is_too_long_is_no_single_event() -> None:
    assert repaired(b'{"ph": "X", "name": "' + b"a" * 70_000 + b'"}') is None


@given(st.binary(max_size=200))
def test_any_bytes_are_an_entry_or_none(data: bytes) -> None:
    for found in (decode_alone(data), repaired(data)):
        assert found is None or isinstance(found, Entry)


def test_an_entry_without_times_has_none() -> None:
    found = decode_alone(b'{"ph": "X"}')
    assert found is not None
    assert times(found) == (bytes(NO_TIME), bytes(NO_TIME))
