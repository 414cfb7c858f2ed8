"""Checks the kind and schema of one of our files before the rest is read."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from mlpfusion.errors import UsageError

_VERSION: Final = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9.]+)?")
_SHOWN: Final = 40  # characters of a value that a message quotes


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The top of a file as it is there: `kind` and `schema` say how to read it, `mlpfusion` which version wrote it."""

    schema: Any = None
    kind: Any = None
    mlpfusion: Any = None


def read(data: bytes, shown: str, what: str = "file") -> Head:
    """The head of a JSON file; messages call it `shown`, and `what` it should be.

    Raises:
        UsageError: it is no JSON, or no file of mlpfusion.
    """
    try:
        head = msgspec.json.decode(data, type=Head)
    except msgspec.ValidationError:
        head = Head()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{shown} is not JSON, or cut short: {error}") from None
    if not isinstance(head.kind, str) or head.schema is None:
        raise UsageError(f"{shown} is not a {what} of mlpfusion: no schema number and kind at its top")
    return head


def check(head: Head, shown: str, *, kind: str, newest: int) -> None:
    """Raise a UsageError unless the file is of this kind and of a schema from 1 to `newest`."""
    if head.kind != kind:
        raise UsageError(f"{shown} holds a {quoted(head.kind)}; valid here: {kind!r}")
    schema = head.schema
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise UsageError(f"{shown} is damaged: its schema is {quoted(schema)}; valid: 1 to {newest}")
    if schema > newest:
        raise UsageError(f"{shown} was {_newer(head, newest)}")


def quoted(value: object) -> str:
    """A value of a file as a message shows it."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _newer(head: Head, newest: int) -> str:
    """Which version to upgrade to: the one that wrote the file, if the file names one."""
    known = isinstance(head.mlpfusion, str) and len(head.mlpfusion) <= _SHOWN and _VERSION.fullmatch(head.mlpfusion)
    by = f"mlpfusion {head.mlpfusion}" if known else "a newer mlpfusion"
    wanted = f"'mlpfusion>={head.mlpfusion.split('+')[0]}'" if known else "mlpfusion"
    return f"written by {by} with schema {quoted(head.schema)}; this one reads up to {newest}: pip install -U {wanted}"
