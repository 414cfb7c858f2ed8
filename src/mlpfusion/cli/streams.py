"""The standard streams of a command: a closed, full or narrow stream causes no traceback."""

from __future__ import annotations

import codecs
import contextlib
import io
import os
import sys
from typing import Final, TextIO

from mlpfusion.errors import UsageError
from mlpfusion.storage.letters import printable

# What the tables use beyond ASCII, in one letter each: columns stay aligned.
_PLAIN: Final = {"×": "x", "µ": "u", "–": "-", "−": "-", "·": ".", "…": "~", "→": ">", "�": "?"}
_SPELLED: Final = "mlpfusion.spelled"


def prepare() -> None:
    """Let nothing fail to be encoded, and give a closed stdin or stderr the null device.

    Raises:
        UsageError: stdout is closed; no verb has a use without it.
    """
    codecs.register_error(_SPELLED, _spelled)
    no_stdout = sys.stdout is None
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:  # the next file to be opened, a result perhaps, would be that stream
            _to_null(number)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_SPELLED)
    if no_stdout:
        raise UsageError("stdout is closed; give it a file or /dev/null")


def write_out(text: str) -> None:
    """Write to stdout, now; a reader that has closed it, as `head` does, has what it wanted: the verb goes on.

    Its exit code says what it found, whoever reads the page.

    Raises:
        UsageError: stdout takes no more, as a full disk does; nothing was judged by that.
    """
    try:
        sys.stdout.write(printable(text))
        sys.stdout.flush()
    except OSError as error:
        silence(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise UsageError(f"cannot write to stdout: {error.strerror or error}") from None


def write_err(text: str) -> None:
    """Write to stderr, now; a failure is ignored, and the work continues."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)


def silence(stream: TextIO) -> None:
    """Send what the stream still holds to the null device: the interpreter would complain of it at its end."""
    with contextlib.suppress(OSError, ValueError):  # a stream without a descriptor holds nothing back
        _to_null(stream.fileno())


def _to_null(number: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null == number:
        os.set_inheritable(null, True)
        return
    os.dup2(null, number)
    os.close(null)


def _spelled(error: UnicodeError) -> tuple[str, int]:
    """What an encoding lacks, in ASCII."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_PLAIN.get(each) or each.encode("ascii", "backslashreplace").decode() for each in lacking), error.end
