"""Gathers the result files that a page is made of, each with its bytes, which the page carries."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.errors import UsageError
from mlpfusion.storage import files, inputs, results

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlpfusion.storage.results import Result

_MOST_BYTES: Final = 2**28
_START: Final = 4096
_SCHEMA: Final = re.compile(rb'"schema"\s*:\s*(\d+)')


class Source(NamedTuple):
    """A result file: its name without the folders above it, what it holds, its bytes on disk and their SHA-256.

    `schema` is the one that it was written in.
    """

    name: str
    path: Path
    result: Result
    data: bytes
    digest: str
    schema: int


def gather(given: Sequence[str]) -> tuple[Source, ...]:
    """The files of ours among `given`, files or folders; names are unique, the order is the one given.

    Raises:
        UsageError: there is no such file, it is none of ours or damaged, a folder holds none, or one comes twice.
    """
    found: list[Source] = []
    by_digest: dict[str, Path] = {}
    for text in given:
        for name, path, result in _opened(text):
            data = files.read_whole(results.RESULT, path, _MOST_BYTES)
            digest = hashlib.sha256(data).hexdigest()
            if digest in by_digest:
                other = by_digest[digest]
                same = "is given twice" if files.is_same(path, other) else f"holds the same bytes as {str(other)!r}"
                raise UsageError(f"{str(path)!r} {same}; name each file once")
            by_digest[digest] = path
            found.append(Source(name, path, result, data, digest, _schema(data)))
    return _renamed(found)


def _opened(text: str) -> Iterator[tuple[str, Path, Result]]:
    if inputs.is_stdin(text):
        raise UsageError("stdin has no file that a report could carry; name one")
    path = Path(text)
    if text and path.is_dir():
        for name, result in results.load_folder(path):
            yield f"{path.resolve().name}/{name}", path / name, result
    else:
        yield path.name, path, results.load_any(path)


def _schema(data: bytes) -> int:
    """The schema at the top of a file that has been read, which what is older is brought up from."""
    found = _SCHEMA.search(inputs.start(data, _START))
    return int(found[1]) if found is not None else 0


def _renamed(found: Sequence[Source]) -> tuple[Source, ...]:
    """The sources by their names in the one folder that was given, a number after a name that comes again."""
    tops = {each.name.split("/")[0] for each in found}
    if len(tops) == 1 and all("/" in each.name for each in found):
        found = [each._replace(name=each.name.partition("/")[2]) for each in found]
    seen: dict[str, int] = {}
    named = []
    for each in found:
        seen[each.name] = seen.get(each.name, 0) + 1
        count = seen[each.name]
        named.append(each if count == 1 else each._replace(name=f"{each.name} ({count})"))
    return tuple(named)
