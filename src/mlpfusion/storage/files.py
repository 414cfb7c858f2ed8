"""Checks paths and writes files atomically."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mlpfusion.errors import MlpfusionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK: Final = 2**16
_PROBE: Final = 2**20  # bytes, more than a small trace has


def write_whole(what: str, path: Path, data: bytes) -> None:
    """Write `data` to `path`: a reader sees the old file or the new one, never half of either.

    `what` names the file in errors, here and below.

    Raises:
        UsageError: no file can be there (a directory, a device, a missing folder).
        MlpfusionError: the disk refused.
    """
    target = check_file(what, path)
    try:
        # The name is short, whatever the target's: 255 bytes is the most that a file system takes.
        scratch = target.with_name(f".mlpfusion-{secrets.token_hex(8)}.part")
        try:
            with scratch.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(target)
        finally:
            scratch.unlink(missing_ok=True)  # gone already unless something above failed
    except OSError as error:
        raise MlpfusionError(f"cannot write {what} {str(path)!r}: {_why(error)}") from error


def read_whole(what: str, path: Path, most_bytes: int) -> bytes:
    """The bytes of a file of at most `most_bytes`, else a `UsageError`."""
    shown = f"{what} {str(path)!r}"
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)  # a device such as /dev/zero has no end
    except FileNotFoundError:
        raise UsageError(f"{shown} does not exist") from None
    except IsADirectoryError:
        raise UsageError(f"{shown} is a directory; give the name of a file") from None
    except (OSError, ValueError, RuntimeError) as error:  # ValueError: a name with a null byte
        raise UsageError(f"{shown} cannot be read: {_why(error)}") from None
    if len(data) > most_bytes:
        raise UsageError(f"{shown} is larger than {most_bytes // 2**20} MiB; that is none of ours")
    return data


def check_file(what: str, path: Path) -> Path:
    """The real path behind `path` if a file can be written there, else a `UsageError`; leaves nothing behind."""
    shown = f"{what} {str(path)!r}"
    with _refusals(shown):
        target = path.resolve()  # a link keeps pointing at what is written
        parent = target.parent
        with contextlib.suppress(FileNotFoundError):
            mode = path.stat().st_mode  # not the target's: the name of a pipe behind /dev/stdout is none to look for
            if stat.S_ISDIR(mode):
                raise UsageError(f"{shown} is a directory; give the name of a file")
            if not stat.S_ISREG(mode):  # replacing /dev/null would break the machine
                raise UsageError(f"{shown} is not a regular file")
        if not parent.is_dir():
            raise UsageError(f"{shown}: directory {str(parent)!r} does not exist")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise UsageError(f"{shown}: directory {str(parent)!r} is not writable")
        with tempfile.TemporaryFile(dir=parent):  # /proc says yes to root, and still takes no file
            return target


def refusal(folder: Path, size: int = _PROBE) -> str | None:
    """Why the system takes no file of `size` bytes in a folder; None if it does. Leaves nothing behind."""
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            for _ in range(0, size, _BLOCK):
                probe.write(bytes(_BLOCK))
    except OSError as error:
        return _why(error)
    return None


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder, which goes at the end; the system's errors for a file in it come without its path.

    Raises:
        MlpfusionError: none can be made, or a file in it cannot be.
    """
    try:
        # A process that nothing ends may write there while it goes: what is left is the system's to remove.
        made = tempfile.TemporaryDirectory(prefix="mlpfusion-", ignore_cleanup_errors=True)
    except OSError as error:  # tempfile tries several places, and says what it tried but not why it failed
        reason = refusal(Path(os.environ.get("TMPDIR", "/tmp"))) or _why(error)
        raise MlpfusionError(f"no temporary file can be written: {reason}; TMPDIR may name another folder") from error
    with made as name:
        try:
            yield Path(name)
        except OSError as error:
            if not str(error.filename).startswith(name):
                raise
            raise MlpfusionError(f"a temporary file cannot be written: {_why(error)}") from error


def is_same(a: Path, b: Path) -> bool:
    """Whether both paths lead to one file that exists."""
    try:
        return a.samefile(b)
    except (OSError, RuntimeError, ValueError):  # not there; a loop of links; a null byte
        return False


def check_directory(what: str, path: Path) -> Path:
    """`path` if it is a writable directory or one that can be made, else a `UsageError`; leaves nothing behind."""
    shown = f"{what} {str(path)!r}"
    with _refusals(shown):
        nearest = target = path.resolve()
        while not nearest.exists() and not nearest.is_symlink() and nearest != nearest.parent:
            nearest = nearest.parent
        if not nearest.is_dir():
            raise UsageError(f"{shown}: {str(nearest)!r} is a file, not a directory")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise UsageError(f"{shown}: {str(nearest)!r} is not writable")
        if path.is_symlink() and not path.exists():
            raise UsageError(f"{shown} is a link to {str(target)!r}, which does not exist")
        rehearsal = Path(tempfile.mkdtemp(prefix=".mlpfusion-", dir=nearest))
        try:
            (rehearsal / target.relative_to(nearest)).mkdir(parents=True, exist_ok=True)
        finally:
            shutil.rmtree(rehearsal)
        return path


@contextlib.contextmanager
def alone(folder: Path | None) -> Iterator[None]:
    """Hold a folder, which is made, so that no other run writes into it meanwhile; nothing without one, or POSIX locks.

    The system frees what a process held once that has ended, however it ended. A folder that was made here and is
    still empty goes again.

    Raises:
        UsageError: another run holds it, or it cannot be a folder that is written into.
    """
    try:
        import fcntl
    except ImportError:
        folder = None
    if folder is None:
        yield
        return
    check_directory("output directory", folder)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    with _refusals(f"output directory {str(folder)!r}"):
        folder.mkdir(parents=True, exist_ok=True)
        held = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"output directory {str(folder)!r}: another run is writing there; name another folder or wait for it"
            ) from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        with contextlib.suppress(OSError):  # there is something in it
            for path in made:
                path.rmdir()
        os.close(held)


@contextlib.contextmanager
def _refusals(shown: str) -> Iterator[None]:
    """The system's error for a path, as a `UsageError`."""
    try:
        yield
    except UsageError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # too long a name; a loop of links; a null byte
        raise UsageError(f"{shown} cannot be written: {_why(error)}") from None


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
