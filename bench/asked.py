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
