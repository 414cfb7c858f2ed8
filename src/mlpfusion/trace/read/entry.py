"""One entry of a trace's traceEvents, decoded strictly, or as far as it goes."""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

import msgspec

from mlpfusion.trace.read.chrome import integer

Id: TypeAlias = int | float | str | None
NO_TIME: Final = msgspec.Raw(b"")


class Args(msgspec.Struct, gc=False, frozen=True):
    """The arguments of an entry that are read."""

    correlation: Id = 0
    dims: msgspec.Raw = msgspec.field(name="Input Dims", default=NO_TIME)
    types: msgspec.Raw = msgspec.field(name="Input type", default=NO_TIME)
    # Of a collective.
    collective: msgspec.Raw = msgspec.field(name="Collective name", default=NO_TIME)
    dtype: msgspec.Raw = NO_TIME
    sent: msgspec.Raw = msgspec.field(name="In msg nelems", default=NO_TIME)
    received: msgspec.Raw = msgspec.field(name="Out msg nelems", default=NO_TIME)
    group_size: msgspec.Raw = msgspec.field(name="Group size", default=NO_TIME)
    group: msgspec.Raw = msgspec.field(name="Process Group Name", default=NO_TIME)
    sequence: msgspec.Raw = msgspec.field(name="Seq", default=NO_TIME)


class Entry(msgspec.Struct, gc=False):
    """The fields of an entry that are read."""

    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: Id = None
    tid: Id = None
    id: Id = None
    ts: msgspec.Raw = NO_TIME
    dur: msgspec.Raw = NO_TIME
    args: Args | None = Args()


_ONE: Final = msgspec.json.Decoder(Entry)


def decode_alone(raw: bytes | msgspec.Raw) -> Entry | None:
    """The entry in `raw`, without its fields of a wrong type; None if it is no object or no JSON."""
    try:
        return _ONE.decode(raw)
    except msgspec.ValidationError:
        pass  # a field of another type: the others may still do
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    try:
        fields = msgspec.json.decode(raw, type=Any)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    args = fields.get("args")
    args = args if isinstance(args, dict) else {}
    return Entry(
        ph=_text(fields.get("ph")),
        cat=_text(fields.get("cat")),
        name=_text(fields.get("name")),
        pid=integer(fields.get("pid")),
        tid=integer(fields.get("tid")),
        id=integer(fields.get("id")),
        ts=_time_text(fields.get("ts")),
        dur=_time_text(fields.get("dur")),
        args=Args(correlation=integer(args.get("correlation"))),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _time_text(value: object) -> msgspec.Raw:
    return msgspec.Raw(str(value).encode()) if isinstance(value, (int, float, str)) else NO_TIME


# Longer pieces are no single damaged event.
_REPAIRABLE_BYTES: Final = 64 * 1024
_STRING_OR_NAN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|(?P<nan>[-+]?\b(?:NaN|nan|Infinity|inf)\b)', re.DOTALL)
# A string ends at the quote that a separator follows, whatever quotes and backslashes are in it.
_LOOSE_STRING: Final = re.compile(r'"(?P<text>.{0,1024}?)"(?=\s*(?:,\s*["\[{\d-]|:|\}|\]))', re.DOTALL)
_ESCAPE: Final = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}|(?P<bad>))')
_PAIR_OR_SURROGATE: Final = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_BARE_QUOTE: Final = re.compile(r'\\(.)|"', re.DOTALL)


def repaired(piece: bytes) -> Entry | None:
    """The entry of a piece that has bad bytes, bad escapes, raw control characters, stray quotes or NaN, else None.

    Bad bytes become U+FFFD, NaN and Infinity null.
    """
    if len(piece) > _REPAIRABLE_BYTES:
        return None
    text = piece.decode("utf-8", errors="replace")
    for attempt in (
        _STRING_OR_NAN.sub(lambda match: "null" if match["nan"] else _escaped(match[0][1:-1]), text),
        _LOOSE_STRING.sub(lambda match: _escaped(_requoted(match["text"])), text),
    ):
        found = decode_alone(attempt.encode("utf-8", errors="replace"))
        if found is not None and found.ph:
            return found
    return None


def _escaped(inside: str) -> str:
    """A JSON string of what stood between two quotes."""
    inside = _ESCAPE.sub(lambda match: "\\\\" if match["bad"] is not None else match[0], inside)
    inside = _PAIR_OR_SURROGATE.sub(lambda match: "\\ufffd" if match["lone"] else match[0], inside)
    return '"' + _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", inside) + '"'


def _requoted(inside: str) -> str:
    r"""Bare quotes escaped, and a last backslash that is no escape doubled."""
    inside = _BARE_QUOTE.sub(lambda match: match[0] if match[1] is not None else '\\"', inside)
    ending = len(inside) - len(inside.rstrip("\\"))
    return inside + "\\" * (ending % 2)
