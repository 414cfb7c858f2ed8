"""Reads every file of mlpfusion that a command names, from single files and from folders, each once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mlpfusion.errors import UsageError
from mlpfusion.records.profile import Profile
from mlpfusion.records.sweep.study import Study
from mlpfusion.storage import contradictions, inputs, results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.storage.results import Result


class Gathered(NamedTuple):
    """One file that was read: the path that leads to it, `-` for stdin, and what is in it.

    `given` is the name that it was given by: its path, or the folder that it is in.
    """

    path: str
    record: Result
    given: str


def gather(names: Sequence[str]) -> tuple[Gathered, ...]:
    """The files that `names` stand for, in this order: a folder for all of ours in and below it, a study for its cells.

    Raises:
        UsageError: one is missing or damaged, a folder has none, or a file is named twice.
    """
    found: list[Gathered] = []
    for name in names:
        if not inputs.is_stdin(name) and Path(name).is_dir():
            found += [Gathered(str(Path(name) / inside), record, name) for inside, record in results.load_folder(name)]
            continue
        record = results.load_any(name)
        cells = results.cells_of(Path(name), record) if isinstance(record, Study) and not inputs.is_stdin(name) else []
        given = str(Path(name).parent) if cells else name
        found.append(Gathered(name, record, given))
        found += [Gathered(str(cell), results.load_any(cell), given) for cell in cells]
    seen: dict[str, str] = {}
    for path, record, _ in found:
        if isinstance(record, Profile):
            contradictions.check(record, path)
        real = path if inputs.is_stdin(path) else str(Path(path).resolve())
        if real in seen:
            raise UsageError(f"{path!r} is given twice" + ("" if seen[real] == path else f", also as {seen[real]!r}"))
        seen[real] = path
    return tuple(found)
