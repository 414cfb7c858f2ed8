"""Takes folders out of what a result file says: a result is published, a home directory is not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlpfusion.records.profile import Profile, Row


def published(profile: Profile) -> Profile:
    """The profile with the name of a loose file in the place of its absolute path.

    A path below the working folder stays one, as a relative one does: it is what `--like` needs to find the file.
    """
    names = _shortened(row.backend for row in profile.rows)
    if all(name == short for name, short in names.items()):
        return profile
    rows = tuple(_row(row, names) for row in profile.rows)
    behind = {names.get(name, name): version for name, version in profile.environment.distributions.items()}
    processes = tuple(
        msgspec.structs.replace(each, kernels={names.get(name, name): found for name, found in each.kernels.items()})
        for each in profile.processes
    )
    return msgspec.structs.replace(
        profile,
        rows=rows,
        processes=processes,
        itself=tuple(msgspec.structs.replace(each, backend=names[each.backend]) for each in profile.itself),
        environment=msgspec.structs.replace(profile.environment, distributions=behind),
    )


def file_name(value: str) -> str:
    """The last part of a path, or of each in a list with commas; what is no path stays as it is."""
    return ",".join(each.rstrip("/").rpartition("/")[2] or each for each in value.split(","))


def _row(row: Row, names: dict[str, str]) -> Row:
    behind = {names.get(name, name): version for name, version in row.distributions.items()}
    return msgspec.structs.replace(row, backend=names[row.backend], distributions=behind)


def _shortened(names: Iterable[str]) -> dict[str, str]:
    """The name of each backend in the file; two of one name are numbered."""
    found: dict[str, str] = {}
    for name in names:
        short = base = _short(name)
        number = 1
        while short in found.values():
            number += 1
            short = f"{base} ({number})"
        found[name] = short
    return found


def _short(name: str) -> str:
    path, colon, what = name.rpartition(":")
    whole = Path(os.path.expanduser(path))
    if not colon or not (whole.is_absolute() or ".." in whole.parts):
        return name
    below = whole.is_relative_to(Path.cwd()) and ".." not in whole.parts
    return f"{whole.relative_to(Path.cwd()) if below else whole.name}:{what}"
