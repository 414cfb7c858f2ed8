"""What the scripts of this folder are given on the command line, refused before anything is measured."""

from __future__ import annotations

import argparse
from pathlib import Path

from mlpfusion.errors import UsageError
from mlpfusion.storage import files


def result_file(text: str) -> Path:
    """A file that can be written once the measurement is done.

    Raises:
        argparse.ArgumentTypeError: it cannot.
    """
    path = Path(text)
    try:
        files.check_file("result file", path)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return path


def share(text: str) -> slice:
    """What `I/N` takes of a list: each Nth, from the Ith.

    Raises:
        argparse.ArgumentTypeError: it is no such text.
    """
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is no I/N with I from 1 to N, such as 1/2")
    return slice(int(part) - 1, None, int(parts))
