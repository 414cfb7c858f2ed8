"""A study's folder: its lock, `study.json`, and one result file a cell, each written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING, Final

from mlpfusion.errors import UsageError
from mlpfusion.records.sweep.study import Stamp
from mlpfusion.storage import files, results

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mlpfusion.records.profile import Profile
    from mlpfusion.records.sweep.cells import Cell, Settings
    from mlpfusion.records.sweep.study import Study

STUDY_NAME: Final = "study.json"
CELLS: Final = results.CELLS
LOCK_NAME: Final = ".lock"
DAMAGED: Final = ".damaged"


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder, which is made, for one driver; what an earlier one left half written goes.

    The system frees what a process held once that has ended, however it ended.

    Raises:
        UsageError: another driver holds it, with its process and host; or nothing can be written there.
    """
    import fcntl

    files.check_directory("study folder", folder)
    (folder / CELLS).mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(lock, 300).decode(errors="replace").strip() or "another process"
            raise UsageError(
                f"study folder {str(folder)!r}: {owner} is writing there; wait for it, or name another folder by --out"
            ) from None
        except OSError:  # a file system without locks
            pass
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        for part in (*folder.glob(".mlpfusion-*.part"), *(folder / CELLS).glob(".mlpfusion-*.part")):
            part.unlink(missing_ok=True)
        try:
            yield
        finally:
            os.ftruncate(lock, 0)  # a folder that is given away has no host's name
    finally:
        os.close(lock)


def before(folder: Path, name: str) -> Study | None:
    """The study of an earlier run in a folder, None without one; a damaged file is kept beside, as `.damaged`.

    Raises:
        UsageError: the folder holds another study.
    """
    path = folder / STUDY_NAME
    if not path.exists():
        return None
    try:
        found = results.load_study(path)
    except UsageError:
        set_aside(path)
        return None
    if found.name != name:
        raise UsageError(
            f"study folder {str(folder)!r} holds the study {found.name!r}, not {name!r}; name another folder by --out"
        )
    return found


def set_aside(path: Path) -> Path:
    """Rename a damaged file; the oldest one of its name that was set aside is kept as well."""
    target, number = path.with_name(path.name + DAMAGED), 1
    while target.exists():
        number += 1
        target = path.with_name(f"{path.name}{DAMAGED}-{number}")
    path.rename(target)
    return target


def stamp(path: Path) -> Stamp | None:
    """The size and time of change of a file, None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return Stamp(bytes=found.st_size, mtime_ns=found.st_mtime_ns)


def load_cell(path: Path, cell: Cell, settings: Settings) -> Profile:
    """The result of a cell.

    Raises:
        UsageError: it is damaged, unfinished, or of something else.
    """
    found = results.load(path)
    if not found.complete:
        raise UsageError(f"{str(path)!r} is not complete")
    if found.workload != cell.work.workload or len(found.rows) != len(settings.backends):
        raise UsageError(f"{str(path)!r} holds another workload or other backends")
    return found
