"""Finds the file of a loose backend again by the name that a result has of it, which is without its folders."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mlpfusion.environment import provenance
from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NAME: Final = re.compile(r"(?P<file>[^\n]*\.py)(?P<what>:\w+)(?P<number> \(\d+\))?")
_MOST: Final = 10_000  # folders that are looked into
_SHOWN: Final = 3  # files that a message names


def found(name: str, digest: str | None, folders: Sequence[Path]) -> str:
    """`kernels/mine.py:Mine` for the `mine.py:Mine` of a result; a name that has folders, or is of no file, stays.

    It is looked for in these folders and below them: the file with the digest that the result recorded, as of
    `provenance.digest`, else the one in the working folder, else the only one of that name.

    Raises:
        UsageError: no file there is it, or several may be.
    """
    named = _NAME.fullmatch(name)
    if named is None or len(Path(named["file"]).parts) > 1:
        return name
    file, is_numbered = Path(named["file"]), named["number"] is not None
    there = list(dict.fromkeys(path for folder in folders for path in _files(folder, file.name)))
    same = [path for path in there if digest is not None and provenance.digest([path]) == digest]
    if not is_numbered and file.is_file() and (not same or file.resolve() in same):
        return name
    wanted = same or ([] if is_numbered else there)
    if not wanted:
        raise UsageError(f"backend {name!r}: no file {file.name!r} of it is in this folder or below; run it above one")
    if len(wanted) > 1 and not same:  # equal contents under one name are one backend
        shown = ", ".join(map(str, map(_shown, wanted[:_SHOWN])))
        raise UsageError(f"backend {name!r} may be any of {shown}; none has the contents that were measured")
    return f"{_shown(wanted[0])}{named['what']}"


def _files(folder: Path, name: str) -> Iterator[Path]:
    """The files of a name in a folder and below, but for hidden folders."""
    for number, (place, inner, files) in enumerate(os.walk(folder)):
        inner[:] = sorted(each for each in inner if not each.startswith((".", "__")))
        if name in files:
            yield Path(place, name).resolve()
        if number >= _MOST:
            return


def _shown(path: Path) -> Path:
    """A path as seen from the working folder, if it is below that."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
