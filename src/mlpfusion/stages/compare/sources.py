"""Reads one side of a comparison: a file, one row of it as `FILE:backend`, or a folder with files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mlpfusion.errors import UsageError
from mlpfusion.records.sweep.study import Study
from mlpfusion.stages.compare import groups
from mlpfusion.stages.compare.subjects import Group, Source
from mlpfusion.storage import inputs, results

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence


def read_both(baseline: str, candidate: str) -> tuple[Source, Source]:
    """What both sides name. Errors are as of `read`, and where both are stdin, which can be read once."""
    if _is_stdin(baseline) and _is_stdin(candidate):
        raise UsageError(
            f"{baseline!r} and {candidate!r} are both stdin, which can be read once; save it to a file and name that "
            "(two rows of it are FILE:triton FILE:fused)"
        )
    return read(baseline), read(candidate)


def _is_stdin(text: str) -> bool:
    return inputs.is_stdin(text) or (not Path(text).exists() and inputs.is_stdin(inputs.split_row(text)[0]))


def read(text: str) -> Source:
    """What `text` names.

    Raises:
        UsageError: there is no such file, folder or row, or nothing in it can be compared.
    """
    if not text or "\0" in text:
        raise UsageError(f"a side of the comparison needs a name, got {text!r}")
    if inputs.is_stdin(text) or Path(text).exists():
        return Source(text, _of_path(text))
    path, row = inputs.split_row(text)
    if not row or not (inputs.is_stdin(path) or Path(path).exists()):
        return Source(text, groups.of_record(results.load_any(text), text))  # refuses, in the words of a missing file
    whole = read(path)
    kept = tuple(group._replace(rows={row: group.rows[row]} if row in group.rows else {}) for group in whole.groups)
    if not any(group.rows for group in kept):
        valid = dict.fromkeys(name for group in whole.groups for name in group.rows)
        raise UsageError(f"{path!r} has no row {row!r}; valid: {', '.join(valid) or 'it has none'}")
    return Source(text, whole.groups, row)


def _of_path(text: str) -> tuple[Group, ...]:
    """The groups of a file or a folder; those of a study's own file are of its cells."""
    if not inputs.is_stdin(text) and Path(text).is_dir():
        return _of_profiles(text, [path for path, kind in results.kinds_in(Path(text)).items() if kind == "profile"])
    record = results.load_any(text)
    if isinstance(record, Study) and not inputs.is_stdin(text):
        return _of_profiles(text, results.cells_of(Path(text), record))
    return groups.of_record(record, text)


def _of_profiles(text: str, paths: Sequence[Path]) -> tuple[Group, ...]:
    """The profiles of a folder or study; what else is there is passed over, but for a damaged profile or study."""
    found: dict[tuple[Hashable, str | None, str], str] = {}
    made = []
    for path in sorted(paths):
        for group in groups.of_record(results.load_any(path), str(path)):
            for name in group.rows:
                other = found.setdefault((group.key, group.device, name), str(path))
                if other != str(path):
                    raise UsageError(f"{other!r} and {str(path)!r} both have a row {name!r} of {group.title}; name one")
            made.append(group)
    if not made:
        what = "folder" if Path(text).is_dir() else "study"
        raise UsageError(f"{what} {text!r} holds no profile of mlpfusion; name a result file, or a folder with some")
    several = len({group.device for group in made}) > 1
    return tuple(group._replace(title=f"{group.title}, {group.device}") if several else group for group in made)
