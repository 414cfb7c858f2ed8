"""Opens a trace by name: a file, compressed or not, a member of an archive, or stdin."""

from __future__ import annotations

import io
import os
import queue
import re
import stat
import tarfile
import threading
import zipfile
import zlib
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple, TypeAlias

from mlpfusion import limits
from mlpfusion.errors import UsageError
from mlpfusion.storage import inputs

if TYPE_CHECKING:
    from collections.abc import Iterator

Source: TypeAlias = "str | Path | bytes"

MAX_BYTES: Final = 8 * 2**30
# Small enough to stay in the processor's cache while it is decoded: 512 KiB is 10 % faster than 4 MiB.
BLOCK: Final = 512 * 1024
# What the inflating thread makes at a time. It waits for the interpreter in between, so it should not do so often.
_INFLATED: Final = 4 * BLOCK
# How much compressed data is lost where they are damaged.
_CAREFUL: Final = 256
_GZIP: Final = b"\x1f\x8b"
_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")  # the latter of an empty one
_LAYERS: Final = 3
TRACE_NAMES: Final = (".json", ".json.gz", ".trace", ".trace.gz")
_SHOWN_MEMBERS: Final = 8
_READ_ERRORS: Final = (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError, RuntimeError)


class CutOffError(Exception):
    """Compressed data end too early or are damaged; what came before is good."""


class TooLargeError(UsageError):
    """A text is longer than it may be."""


class NoTraceError(UsageError):
    """A text is whole, and no trace of torch.profiler."""


class Text(NamedTuple):
    """The decompressed text of one file: what to call it, its parts in order, and whether an archive's listing gave it.

    Texts of one archive must be read one after the other.
    """

    label: str
    chunks: Iterator[bytes]
    listed: bool = False


def texts(source: Source, *, max_bytes: int = MAX_BYTES) -> Iterator[Text]:
    """Every text in `source`: a path, `archive:member`, - for stdin, or the bytes themselves.

    Raises:
        UsageError: it cannot be opened, is a directory, or is an archive without such a member; while reading, also
            when it holds more than `max_bytes`.
    """
    limits.whole("max_bytes", max_bytes, limits.BYTES)
    if isinstance(source, bytes):
        return _opened("the given bytes", io.BytesIO(source), None, max_bytes)
    if str(source) == "-":
        return _opened("stdin", inputs.stdin(), None, max_bytes)
    if not str(source):
        raise UsageError("a trace's name is empty: ''")
    path, member = path_and_member(str(source))
    if path.is_dir():
        raise UsageError(f"trace {str(source)!r} is a directory; name a file in it")
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:
        raise UsageError(f"trace {str(source)!r} cannot be read: {_reason(error)}") from error
    return _opened(str(source), file, member, max_bytes)


def whole_text(source: Source, *, max_bytes: int = MAX_BYTES) -> tuple[str, bytes]:
    """What the one text in `source` is called, and all of it.

    Raises:
        UsageError: as `texts`; there are several, or the text is empty or cut off.
    """
    found: tuple[str, bytes] | None = None
    for text in texts(source, max_bytes=max_bytes):
        if found is not None:
            raise UsageError(f"{found[0]!r} is not the only trace in its archive; name one as archive:member")
        try:
            found = text.label, b"".join(text.chunks).removeprefix(b"\xef\xbb\xbf")
        except CutOffError as error:
            raise UsageError(f"trace {text.label!r} is cut off: {error}") from error
        if not found[1].strip():
            raise UsageError(f"trace {text.label!r} is empty")
    assert found is not None, "at least one, or an error"
    return found


def file_of(source: str) -> Path:
    """The file in which `source` is: the archive of `archive:member`, else the path itself."""
    return path_and_member(source)[0]


def path_and_member(name: str) -> tuple[Path, str | None]:
    """The file and the member: `a.zip:b.json` is a member of a.zip unless there is a file of that name."""
    position = len(name)
    while not _exists(name[:position]) and (position := name.rfind(":", 0, position)) > 0:
        if _exists(name[:position]):
            return Path(name[:position]), name[position + 1 :]
    return Path(name), None


def _exists(name: str) -> bool:
    try:
        return os.path.exists(name)
    except ValueError:  # a null byte
        return False


def _reason(error: BaseException) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__


def _opened(label: str, file: IO[bytes], member: str | None, max_bytes: int) -> Iterator[Text]:
    with file:
        chunks = _plain(label, file)
        for _ in range(_LAYERS):
            first, chunks = _peeked(chunks)
            if first[:4] in _ZIP:
                yield from _zipped(
                    label, file if file.seekable() else _whole(label, chunks, max_bytes), member, max_bytes
                )
                return
            if first[257:262] == b"ustar":
                yield from _tarred(label, _capped(label, chunks, max_bytes), member, max_bytes)
                return
            if first[:2] != _GZIP:
                break
            chunks = _gunzipped(chunks)
        if member is not None:
            raise UsageError(f"{label!r} is no archive that could have members")
        yield Text(label, _capped(label, chunks, max_bytes))


def _plain(label: str, file: IO[bytes]) -> Iterator[bytes]:
    while True:
        try:
            chunk = file.read(BLOCK)
        except OSError as error:
            raise UsageError(f"trace {label!r} cannot be read: {_reason(error)}") from error
        if not chunk:
            return
        yield chunk


def _peeked(chunks: Iterator[bytes]) -> tuple[bytes, Iterator[bytes]]:
    """The first part, and all parts as if none had been taken."""
    try:
        first = next(chunks, b"")
    except CutOffError as error:
        return b"", _cut_off(error)
    return first, chain((first,) if first else (), chunks)


def _cut_off(error: CutOffError) -> Iterator[bytes]:
    yield from ()
    raise error


def _capped(label: str, chunks: Iterator[bytes], max_bytes: int) -> Iterator[bytes]:
    read = 0
    for chunk in chunks:
        read += len(chunk)
        if read > max_bytes:
            raise TooLargeError(f"trace {label!r} holds more than {max_bytes} bytes; allow more with max_bytes")
        yield chunk


def _whole(label: str, chunks: Iterator[bytes], max_bytes: int) -> IO[bytes]:
    return io.BytesIO(b"".join(_capped(label, chunks, max_bytes)))


def _gunzipped(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The decompressed parts, made by a separate thread: zlib releases the GIL while it works."""
    made: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=2)
    stopped = threading.Event()
    thread = threading.Thread(target=_fill, args=(made, _inflated(chunks), stopped), daemon=True)
    thread.start()
    try:
        while (part := made.get()) is not None:
            if isinstance(part, BaseException):
                raise part
            yield from (part[start : start + BLOCK] for start in range(0, len(part), BLOCK))
    finally:
        stopped.set()
        thread.join(timeout=1)


def _fill(made: queue.Queue[bytes | BaseException | None], parts: Iterator[bytes], stopped: threading.Event) -> None:
    part: bytes | BaseException | None = b""
    while part is not None and not isinstance(part, BaseException):
        try:
            part = next(parts, None)
        except Exception as error:
            part = error
        while not stopped.is_set():
            try:
                made.put(part, timeout=0.05)
                break
            except queue.Full:
                continue
        else:
            return


def _inflated(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Gzip members one after the other; zeros after the last one are padding."""
    engine = zlib.decompressobj(wbits=31)
    for chunk in chunks:
        waiting = chunk
        while waiting:
            if engine.eof:
                waiting = waiting.lstrip(b"\0")
                if not waiting:
                    break
                engine = zlib.decompressobj(wbits=31)
            before = engine.copy()
            try:
                part = engine.decompress(waiting, _INFLATED)
            except zlib.error as error:
                yield from _salvaged(before, waiting)
                raise CutOffError(f"its compressed data are damaged ({_reason(error)})") from error
            if part:
                yield part
            waiting = engine.unused_data if engine.eof else engine.unconsumed_tail
    if not engine.eof:
        raise CutOffError("its compressed data end early")


def _salvaged(engine: zlib._Decompress, damaged: bytes) -> Iterator[bytes]:
    """What can be had of a part before the place where it is damaged."""
    try:
        for start in range(0, len(damaged), _CAREFUL):
            yield engine.decompress(damaged[start : start + _CAREFUL])
    except zlib.error:
        return


def _zipped(label: str, file: IO[bytes], member: str | None, max_bytes: int) -> Iterator[Text]:
    try:
        archive = zipfile.ZipFile(file)
    except _READ_ERRORS as error:
        raise UsageError(f"archive {label!r} cannot be read: {_reason(error)}") from error
    with archive:
        files = {info.filename: info for info in archive.infolist() if not info.is_dir() and not _is_link(info)}
        for name in _wanted(label, list(files), member):
            if _leaves(name):
                yield _refused(label, name)
                continue
            try:
                opened = archive.open(files[name])
            except (*_READ_ERRORS, NotImplementedError) as error:
                raise UsageError(f"archive {label!r}: {name!r} cannot be read: {_reason(error)}") from error
            yield _member(label, name, opened, member, max_bytes)


def _tarred(label: str, chunks: Iterator[bytes], member: str | None, max_bytes: int) -> Iterator[Text]:
    """A tar is read forward, so a member is found only on the way."""
    seen: list[str] = []
    found = False
    try:
        with tarfile.open(fileobj=io.BufferedReader(_Stream(chunks), BLOCK), mode="r|") as archive:
            for info in archive:
                if not info.isfile():
                    continue
                seen.append(info.name)
                if _is_wanted(info.name, member) and _leaves(info.name):
                    found = True
                    yield _refused(label, info.name)
                    continue
                opened = archive.extractfile(info) if _is_wanted(info.name, member) else None
                if opened is not None:
                    found = True
                    yield _member(label, info.name, opened, member, max_bytes)
    except (*_READ_ERRORS, CutOffError) as error:
        raise UsageError(f"archive {label!r} cannot be read: {_reason(error)}") from error
    if not found:
        _wanted(label, seen, member)


def _member(label: str, name: str, opened: IO[bytes], member: str | None, max_bytes: int) -> Text:
    full = label if member is not None else f"{label}:{name}"
    first, chunks = _peeked(_guarded(opened))
    if first[:2] == _GZIP:
        chunks = _inflated(chunks)
    return Text(full, _capped(full, chunks, max_bytes), listed=member is None)


def _is_link(info: zipfile.ZipInfo) -> bool:
    return stat.S_ISLNK(info.external_attr >> 16)


def _leaves(name: str) -> bool:
    """Whether a member's name is a path out of the archive. None is ever unpacked, and none of ours has such a name."""
    return name.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", name) or re.match(r"[A-Za-z]:", name) is not None


def _refused(label: str, name: str) -> Text:
    return Text(
        f"{label}:{name}", _refusing(f"archive {label!r}: the member {name!r} is a path out of it"), listed=True
    )


def _refusing(reason: str) -> Iterator[bytes]:
    yield from ()
    raise UsageError(reason)


def _guarded(opened: IO[bytes]) -> Iterator[bytes]:
    while True:
        try:
            chunk = opened.read(BLOCK)
        except _READ_ERRORS as error:
            raise CutOffError(f"its archive is damaged ({_reason(error)})") from error
        if not chunk:
            return
        yield chunk


def _is_wanted(name: str, member: str | None) -> bool:
    return name == member if member is not None else name.lower().endswith(TRACE_NAMES)


def _wanted(label: str, names: list[str], member: str | None) -> list[str]:
    found = [name for name in names if _is_wanted(name, member)]
    if found:
        return found
    shown = ", ".join(repr(name) for name in names[:_SHOWN_MEMBERS]) + ", …" * (len(names) > _SHOWN_MEMBERS)
    what = f"member {member!r}" if member is not None else "member that ends in " + " or ".join(TRACE_NAMES)
    raise UsageError(f"archive {label!r} has no {what}; it has {shown or 'none at all'}")


class _Stream(io.RawIOBase):
    """Parts as a file that is read forward."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        taken = min(len(buffer), len(self._rest))
        buffer[:taken] = self._rest[:taken]
        self._rest = self._rest[taken:]
        return taken
