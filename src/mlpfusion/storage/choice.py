"""Reads and writes choice files: JSON with a schema number, refused where the choice does not hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from mlpfusion.errors import UsageError
from mlpfusion.records import invariants
from mlpfusion.records.choice import SCHEMA, Choice, Plan
from mlpfusion.storage import files, schema

if TYPE_CHECKING:
    import os

CHOICE: Final = "choice"
PLAN: Final = "choice plan"
_MOST_BYTES: Final = 2**24
_Kept = TypeVar("_Kept", Choice, Plan)


def encode(record: Choice | Plan) -> str:
    """The JSON text of a choice or a plan: the same text for equal records."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1).decode() + "\n"


def save(choice: Choice, path: Path) -> None:
    """Write a choice; errors are as of `files.write_whole`."""
    files.write_whole(f"{CHOICE} file", path, encode(choice).encode())


def save_plan(plan: Plan, path: Path) -> None:
    """Write a plan; errors are as of `files.write_whole`."""
    files.write_whole(PLAN, path, encode(plan).encode())


def load(path: str | os.PathLike[str]) -> Choice:
    """The choice in a file. Whether it holds here is another question: `conditions.differences` has the answer.

    Raises:
        UsageError: there is no such file, or it is no choice of this schema, or a damaged one.
    """
    return _load(f"{CHOICE} file", path, CHOICE, Choice)


def load_plan(path: Path) -> Plan:
    """The plan in a file; errors are as of `load`."""
    return _load(PLAN, path, PLAN, Plan)


def check_file(path: Path) -> Path:
    """`path` if a choice can be written there, else a `UsageError`; there may be one already, of any schema."""
    return _check(f"{CHOICE} file", path, CHOICE)


def check_plan(path: Path) -> Path:
    """`path` if a plan can be written there, else a `UsageError`; there may be one already, of any schema."""
    return _check(PLAN, path, PLAN)


def _check(what: str, path: Path, kind: str) -> Path:
    target = files.check_file(what, path)
    if target.exists() and target.stat().st_size:
        head = schema.read(files.read_whole(what, path, _MOST_BYTES), f"{what} {str(path)!r}")
        if head.kind != kind:
            raise UsageError(f"{what} {str(path)!r} holds a {schema.quoted(head.kind)}; valid here: {kind!r}")
    return path


def _load(what: str, path: str | os.PathLike[str], kind: str, record: type[_Kept]) -> _Kept:
    data = files.read_whole(what, Path(path), _MOST_BYTES)
    shown = f"{what} {str(path)!r}"
    schema.check(schema.read(data, shown), shown, kind=kind, newest=SCHEMA)
    try:
        found = msgspec.json.decode(data, type=record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{shown} is damaged: {error}") from None
    for wrong in invariants.broken(found):
        raise UsageError(f"{shown} is damaged: {wrong}")
    return found
