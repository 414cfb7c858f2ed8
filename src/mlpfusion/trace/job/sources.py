"""Lists the files that the arguments of a verb name: files, archives, directories and patterns."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.errors import UsageError
from mlpfusion.storage.inputs import STDIN
from mlpfusion.trace.read.source import TRACE_NAMES, file_of, path_and_member

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_PATTERN: Final = re.compile(r"[*?\[]")


class Sources(NamedTuple):
    """What is to be read, each for `source.texts`; `one_job` says that a directory or a pattern named them together."""

    names: tuple[str, ...]
    one_job: bool = False


def sources(arguments: Sequence[str]) -> Sources:
    """The files that the arguments name, those of a directory or a pattern in the order of the numbers in their names.

    A directory stands for the traces in it, or where it has none, for those in the directories in it.

    Raises:
        UsageError: a directory has no trace, a pattern matches nothing, or a file is given twice.
    """
    found: list[str] = []
    given: dict[str, str] = {}
    together = False
    for argument in arguments:
        named, is_group = _named(argument)
        together = together or is_group
        for name in named:
            real = name if name == STDIN else _real(name)
            if real in given:
                both = "" if given[real] == argument else f", by {given[real]!r} and {argument!r}"
                if name == STDIN:
                    raise UsageError("stdin can be read only once, and - is given twice")
                raise UsageError(f"trace {name!r} is given twice{both}; give it once")
            given[real] = argument
        found += named
    return Sources(tuple(found), together)


def is_group(argument: str) -> bool:
    """Whether an argument names several files: a directory, or a pattern that is no file's name."""
    return argument != STDIN and (_is_directory(argument) or _is_pattern(argument))


def _named(argument: str) -> tuple[list[str], bool]:
    if argument == STDIN or not is_group(argument):
        return [argument], False
    if _is_directory(argument):
        return _in_directory(argument), True
    matches = sorted(glob.glob(argument, recursive=True), key=_natural)
    files = [name for name in matches if os.path.isfile(name)]
    listed = _traces(files) or files
    listed += [name for match in matches if os.path.isdir(match) for name in _traces(_files(match))]
    if not listed:
        raise UsageError(
            f"no file matches {argument!r}" if not matches else f"no trace is in what {argument!r} matches"
        )
    return list(dict.fromkeys(listed)), True


def _in_directory(name: str) -> list[str]:
    try:
        files = _files(name)
        found = _traces(files)
        if not found:
            below = sorted((path.path for path in os.scandir(name) if path.is_dir()), key=_natural)
            found = [each for folder in below for each in _traces(_files(folder))]
    except OSError as error:
        raise UsageError(f"directory {name!r} cannot be read: {error.strerror or error}") from error
    if found:
        return found
    if not files and not below:
        raise UsageError(f"directory {name!r} has no trace: it is empty")
    ends = ", ".join(TRACE_NAMES[:-1]) + f" or {TRACE_NAMES[-1]}"
    raise UsageError(f"directory {name!r} has no trace: no file in it, or in a directory in it, ends in {ends}")


def _files(folder: str) -> list[str]:
    """The files of a folder, links to nowhere included: they are said where they are opened."""
    with os.scandir(folder) as entries:
        found = [entry.path for entry in entries if entry.is_file() or not os.path.exists(entry.path)]
    return sorted(found, key=_natural)


def _traces(names: Iterable[str]) -> list[str]:
    """Those whose names end as a trace's do, a file with several names once."""
    found: dict[str, str] = {}
    for name in names:
        if name.lower().endswith(TRACE_NAMES) and not os.path.basename(name).startswith("."):
            found.setdefault(_real(name), name)
    return list(found.values())


def _natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """`rank2` before `rank10`."""
    parts = re.split(r"([0-9]{1,18})", name)
    return tuple((at % 2 == 1, int(part) if at % 2 else 0, part) for at, part in enumerate(parts))


def _real(name: str) -> str:
    """One text for each file, and for each member of an archive."""
    try:
        path, member = path_and_member(name)
        return os.path.realpath(path) + (f":{member}" if member is not None else "")
    except (OSError, ValueError):
        return name


def _is_directory(name: str) -> bool:
    try:
        return Path(name).is_dir() and bool(name)
    except (OSError, ValueError):
        return False


def _is_pattern(name: str) -> bool:
    try:
        return "\0" not in name and _PATTERN.search(name) is not None and not os.path.lexists(file_of(name))
    except (OSError, ValueError):
        return False
