"""Gathers the result files that a page is made of, each with its bytes, which the page carries."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.errors import UsageError
from mlpfusion.records.profile import Profile
from mlpfusion.stages.compare import self_test
from mlpfusion.stages.tabulate.sources import Source as Read
from mlpfusion.storage import files, gathered, inputs, results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.storage.results import Result

_MOST_BYTES: Final = 2**28
_START: Final = 4096
_SCHEMA: Final = re.compile(rb'"schema"\s*:\s*(\d+)')


class Source(NamedTuple):
    """A result file: its name without the folders above it, what it holds, its bytes on disk and their SHA-256.

    `schema` is the one that it was written in, `given` what named it: its path, or the folder that it is in.
    """

    name: str
    path: Path
    result: Result
    data: bytes
    digest: str
    schema: int
    given: str = ""

    @property
    def read(self) -> Read:
        """The same file as `mlpfusion table` has it."""
        return Read(self.name, str(self.path), self.digest, self.result)


def gather(given: Sequence[str]) -> tuple[Source, ...]:
    """The files of ours among `given`, files or folders; names are unique, the order is the one given.

    Raises:
        UsageError: there is no such file, it is none of ours or damaged, a folder holds none, or one comes twice.
    """
    if any(map(inputs.is_stdin, given)):
        raise UsageError("stdin has no file that a report could carry; name one")
    if "" in given:  # an unset variable of a shell, which would be taken for this folder
        raise UsageError("a result needs a path, got ''")
    found: list[Source] = []
    by_digest: dict[str, str] = {}
    for path, record, within in gathered.gather(given):
        if isinstance(record, Profile):
            self_test.check(record, path)
        data = files.read_whole(results.RESULT, Path(path), _MOST_BYTES)
        digest = hashlib.sha256(data).hexdigest()
        if digest in by_digest:
            raise UsageError(f"{path!r} holds the same bytes as {by_digest[digest]!r}; name each file once")
        by_digest[digest] = path
        folder = Path(within)
        name = f"{folder.resolve().name}/{Path(path).relative_to(folder)}" if path != within else folder.name
        found.append(Source(name, Path(path), record, data, digest, _schema(data), within))
    return _renamed(found)


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
