"""Reads the result files of a table, with the digest of each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mlpfusion.errors import UsageError
from mlpfusion.records.choice import Plan
from mlpfusion.records.profile import Profile
from mlpfusion.stages.compare import self_test
from mlpfusion.storage import contradictions, inputs, results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.storage.results import Result


class Source(NamedTuple):
    """One file: the end of its path by which it is known among the others, its path, SHA-256, and what is in it."""

    name: str
    path: str
    digest: str
    result: Result


def read(names: Sequence[str], *, cells: bool = False) -> tuple[Source, ...]:
    """Every file that is named, and those of each folder; `-` is stdin. With `cells` a study's file is its folder.

    Raises:
        UsageError: a file is missing, damaged or there twice, or a folder has none of ours.
    """
    paths: list[str] = []
    for name in names:
        if not name or "\0" in name:
            raise UsageError(f"RESULT needs a path, got {name!r}")
        folder = not inputs.is_stdin(name) and Path(name).is_dir()
        paths += map(str, results.files_in(name)) if folder else [name, *(_cells(name) if cells else [])]
    found: dict[str, str] = {}
    made = []
    for path, shown in zip(paths, _ends(paths), strict=True):
        result, digest = results.load_with_digest(path)
        if isinstance(result, Profile):
            contradictions.check(result, path)
            self_test.check(result, path)
        if digest in found and not isinstance(result, Plan):  # two choices may well have one plan
            twice = f"{path!r} is" if found[digest] == path else f"{found[digest]!r} and {path!r} are one file,"
            raise UsageError(f"{twice} given twice; name it once")
        found[digest] = path
        made.append(Source(shown, path, digest, result))
    return tuple(made)


def _cells(name: str) -> list[str]:
    """The result files of the study whose own file this is; none of any other."""
    path = Path(name)
    if inputs.is_stdin(name) or not path.is_file() or results.kind_of(path) != "study":
        return []
    return [str(each) for each in results.cells_of(path, results.load_study(path))]


def _ends(paths: Sequence[str]) -> list[str]:
    """The file names, and as many of the folders above them as tell them apart: whole paths are not published."""
    parts = [("stdin",) if inputs.is_stdin(path) else Path(path).parts for path in paths]
    ends = []
    for own in parts:
        length = next((n for n in range(1, len(own)) if sum(other[-n:] == own[-n:] for other in parts) == 1), len(own))
        ends.append("/".join(own[-length:]))
    return ends
