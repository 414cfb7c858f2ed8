"""How the command line reads a typed value, and how it speaks: one line, on stdout or stderr."""

from __future__ import annotations

import contextlib
import difflib
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO

import typer

from mlpfusion import cli_streams
from mlpfusion.errors import MlpfusionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
MOST_SIZE: Final = 2**63 - 1  # PyTorch's sizes are integers of 64 bits

# Values stay strings until this module reads them: every refusal then has one wording, whatever typer's version.
Text = str | None
HiddenSize = Annotated[Text, typer.Option(metavar="N", help="Width of the model.")]
IntermediateSize = Annotated[Text, typer.Option(metavar="N", help="Width inside the MLP.")]
Format = Annotated[str, typer.Option("--format", metavar="text|github|csv|json", help="What stdout gets.")]


class InterruptedRunError(MlpfusionError):
    """Ctrl-C, once there are files to speak of."""


def size(option: str, text: str | None, most: int = MOST_SIZE) -> int | None:
    """A positive integer up to `most`, or None if the option was not given."""
    if text is None:
        return None
    digits = text.lstrip("0")
    if not (text.isascii() and text.isdigit() and digits):
        raise UsageError(f"{option} must be a positive integer, got {text!r}")
    # Python refuses to read some thousands of digits.
    if len(digits) > len(str(most)) or int(digits) > most:
        raise UsageError(f"{option} must be an integer from 1 to {most}, got {text!r}")
    return int(digits)


def seconds(option: str, text: str) -> float:
    """A positive number of seconds."""
    with contextlib.suppress(ValueError):
        value = float(text)
        if math.isfinite(value) and value > 0:
            return value
    raise UsageError(f"{option} must be a positive number of seconds, got {text!r}")


def names_in(option: str, text: str) -> list[str]:
    """The names in a list with commas, each once."""
    names = [name.strip() for name in text.split(",")]
    for index, name in enumerate(names):
        if not name:
            raise UsageError(f"{option} {text!r} has an empty name; give names separated by single commas")
        if name in names[:index]:
            raise UsageError(f"{option} names {name!r} twice")
    return names


def path_in(option: str, text: str) -> Path:
    """A path that is not empty."""
    if not text or "\0" in text:
        raise UsageError(f"{option} needs a path, got {text!r}")
    return Path(text)


def unknown(what: str, name: str, valid: Sequence[str]) -> str:
    """The refusal of a name that is none of `valid`: those that it begins or is close to come first."""
    near = [each for each in valid if len(name.strip("-")) > 1 and each.startswith(name)]
    near += [each for each in difflib.get_close_matches(name, valid) if each not in near]
    hint = f"; did you mean {' or '.join(near)}?" if near else ";"
    return f"unknown {what} {name!r}{hint} valid: {', '.join(valid)}"


def complain(message: str, code: int = FAILED) -> int:
    """Say what went wrong on stderr, and return the exit code."""
    say(f"mlpfusion: {one_line(message)}", sys.stderr)
    return code


def say(text: str, stream: TextIO | None = None) -> None:
    """Print one line at once, on stdout or, if that is `stream`, stderr."""
    line = "".join(letter if letter.isprintable() else "�" for letter in text)  # a path may hold anything
    (cli_streams.write_err if stream is sys.stderr else cli_streams.write_out)(f"{line}\n")


def one_line(text: str) -> str:
    """The text without its line breaks."""
    return " ".join(text.split())
