"""Reads an input file of a verb, plain or gzip, or stdin."""

from __future__ import annotations

import contextlib
import shutil
import sys
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.storage import files

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

STDIN: Final = "-"
_GZIP: Final = b"\x1f\x8b"


def is_stdin(name: str | os.PathLike[str]) -> bool:
    """Whether a name stands for stdin; a file of that name is `./-`."""
    return str(name) == STDIN


def split_row(text: str) -> tuple[str, str]:
    """The file and the row that `FILE:row` names; the row of a text without a colon is "".

    Names of rows may have colons (`./mine.py:Mine`), and so may paths: the longest path that is there is taken, and
    where none is, what stands before the last colon.
    """
    parts = text.split(":")
    splits = [(":".join(parts[:at]), ":".join(parts[at:])) for at in range(len(parts) - 1, 0, -1)]
    there = (split for split in splits if all(split) and (is_stdin(split[0]) or Path(split[0]).exists()))
    return next(there, splits[0] if splits else (text, ""))


def stdin() -> IO[bytes]:
    """The bytes of stdin.

    Raises:
        UsageError: stdin is a terminal.
    """
    stream = sys.stdin.buffer
    if stream.isatty():
        raise UsageError("stdin is a terminal; pipe a file into it, or name one")
    return stream


def read(what: str, name: str | os.PathLike[str], most_bytes: int) -> bytes:
    """The bytes of a file, or of stdin for `-`; what is gzip is decompressed.

    Raises:
        UsageError: there is no such file, it is damaged gzip, holds more than `most_bytes`, or stdin is empty.
    """
    return unpacked(what, name, raw(what, name, most_bytes), most_bytes)


def raw(what: str, name: str | os.PathLike[str], most_bytes: int) -> bytes:
    """The bytes of a file, or of stdin for `-`, as they are there. Errors are as of `read`."""
    if not is_stdin(name):
        return files.read_whole(what, Path(name), most_bytes)
    try:
        data = stdin().read(most_bytes + 1)
    except OSError as error:
        raise UsageError(f"stdin cannot be read: {error.strerror or error}") from None
    if not data:
        raise UsageError(f"stdin is empty; pipe a {what} into it, or name one")
    return data


def unpacked(what: str, name: str | os.PathLike[str], data: bytes, most_bytes: int) -> bytes:
    """What the bytes of a file hold: themselves, or what was compressed. Errors are as of `read`."""
    shown = "stdin" if is_stdin(name) else f"{what} {str(name)!r}"
    if data.startswith(_GZIP):
        data = _inflated(data, shown, most_bytes)
    if len(data) > most_bytes:
        raise UsageError(f"{shown} is larger than {most_bytes // 2**20} MiB; that is none of ours")
    return data


@contextlib.contextmanager
def on_disk(what: str, name: str | os.PathLike[str]) -> Iterator[Path]:
    """The path of a file; for `-` that of a copy of stdin, which goes at the end.

    Raises:
        UsageError: stdin is empty.
        MlpfusionError: it cannot be copied.
    """
    if not is_stdin(name):
        yield Path(name)
        return
    with files.scratch() as folder:
        path = folder / "stdin"
        try:
            with path.open("xb") as file:
                shutil.copyfileobj(stdin(), file)
        except OSError as error:
            raise MlpfusionError(f"stdin cannot be copied to a temporary file: {error.strerror or error}") from error
        if not path.stat().st_size:
            raise UsageError(f"stdin is empty; pipe a {what} into it, or name one")
        yield path


def start(data: bytes, size: int) -> bytes:
    """The first bytes of a file whose own first bytes are `data`, decompressed if they are gzip."""
    if not data.startswith(_GZIP):
        return data[:size]
    text = b""
    while data.startswith(_GZIP) and len(text) < size:
        member = zlib.decompressobj(wbits=31)
        try:
            text += member.decompress(data, size - len(text))
        except zlib.error:
            break
        data = member.unused_data
    return text


def _inflated(data: bytes, shown: str, most_bytes: int) -> bytes:
    """What all members of a gzip file hold, one byte more than allowed at most."""
    parts: list[bytes] = []
    left = most_bytes + 1
    while data and left > 0:
        member = zlib.decompressobj(wbits=31)
        try:
            part = member.decompress(data, left)
        except zlib.error as error:
            raise UsageError(f"{shown} is damaged gzip: {error}") from None
        parts.append(part)
        left -= len(part)
        if not member.eof and left > 0:
            raise UsageError(f"{shown} is damaged gzip: it is cut short")
        data = member.unused_data.lstrip(b"\0")  # padding is allowed between and after members
    return b"".join(parts)
