"""Describes what an interrupted run left in its result files."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def stamps(paths: Sequence[Path]) -> dict[Path, tuple[int, int]]:
    """Inode and time of change in ns of each file that is there: another one: the file was written since."""
    found = {}
    for path in paths:
        with contextlib.suppress(OSError):
            status = path.stat()
            found[path] = (status.st_ino, status.st_mtime_ns)
    return found


def what_was_saved(paths: Sequence[Path], before: dict[Path, tuple[int, int]]) -> str:
    """One phrase on the result files that this run wrote; one left from an earlier run does not count."""
    from mlpfusion.storage import results

    if not paths:
        return "nothing was saved: neither --json nor --out was given"
    now = stamps(paths)
    written = [path for path in paths if path in now and now[path] != before.get(path)]
    if not written:
        return "nothing was saved: no backend had finished"
    rows = len(results.load(written[0]).rows)
    return f"{rows} finished row{'' if rows == 1 else 's'} saved in {joined(written)}"


def joined(paths: Sequence[Path]) -> str:
    """The paths, one after the other."""
    return " and ".join(map(str, paths))
