"""Parses typed values and prints one-line messages to stdout or stderr."""

from __future__ import annotations

import difflib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TextIO, overload

import typer

from mlpfusion import limits, spec
from mlpfusion.cli import streams
from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.storage import inputs
from mlpfusion.storage.letters import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
ACTIVATIONS: Final = "|".join(spec.ACTIVATIONS)
DTYPES: Final = "|".join(spec.DTYPES)

_VALUE: Final = 200  # characters of a value that a message quotes
_LINE: Final = 4000  # and of the message: a file may have any number of names
_QUOTED: Final = re.compile(r"""(?<![\w])(['"`])(?:\\.|(?!\1(?!\w)).)*\1""")
_WORD: Final = re.compile(r"\S+")

# Values stay strings until this module reads them: every refusal then has one wording, whatever typer's version.
Text = str | None
HiddenSize = Annotated[Text, typer.Option(metavar="N", help="Width of the model.")]
IntermediateSize = Annotated[Text, typer.Option(metavar="N", help="Width inside the MLP.")]
Format = Annotated[str, typer.Option("--format", metavar="text|github|csv|json", help="What stdout gets.")]


class InterruptedRunError(MlpfusionError):
    """Ctrl-C, once there are files to speak of."""


@overload
def size(option: str, text: str, limit: limits.Whole = ...) -> int: ...
@overload
def size(option: str, text: str | None, limit: limits.Whole = ...) -> int | None: ...
def size(option: str, text: str | None, limit: limits.Whole = limits.SIZE) -> int | None:
    """An integer within `limit`, in plain decimal digits, or None if the option was not given."""
    return None if text is None else limits.whole_in(option, text, limit)


def seconds(option: str, text: str, limit: limits.Seconds = limits.SECONDS) -> float:
    """A number of seconds within `limit`, in decimal digits, with or without a power of ten."""
    return limits.seconds_in(option, text, limit)


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
    """A path that is not empty, and not the `-` that stands for stdin or stdout elsewhere."""
    if not text or "\0" in text:
        raise UsageError(f"{option} needs a path, got {text!r}")
    if text == inputs.STDIN:
        instead = "; --format json prints JSON" if option == "--json" else ""
        raise UsageError(f"{option} needs a path, and '-' is none; a file of that name is './-'{instead}")
    return Path(text)


def unknown(what: str, name: str, valid: Sequence[str]) -> str:
    """The refusal of a name that is none of `valid`: those that it begins or is close to come first."""
    near = [each for each in valid if len(name.strip("-")) > 1 and each.startswith(name)]
    near += [each for each in difflib.get_close_matches(name, valid) if each not in near]
    hint = f"; did you mean {' or '.join(near)}?" if near else ";"
    return f"unknown {what} {name!r}{hint} valid: {', '.join(valid)}"


def complain(message: str, code: int = FAILED) -> int:
    """Say what went wrong on stderr, with what is quoted shortened, and return the exit code."""
    say(f"mlpfusion: {quoting_briefly(one_line(message))}", sys.stderr)
    return code


def quoting_briefly(line: str) -> str:
    """A message whose values, in quotes or without a space, are `_VALUE` characters long at most, and itself `_LINE`.

    What is quoted may be a file's, and of any length; its start and its end tell which it is.
    """
    short = _WORD.sub(_shortened, _QUOTED.sub(_shortened, line))
    return short if len(short) <= _LINE else f"{short[:_LINE]}…"


def _shortened(found: re.Match[str]) -> str:
    value = found[0]
    half = _VALUE // 2
    return value if len(value) <= _VALUE else f"{value[:half]}…{value[1 - half :]}"


def say(text: str, stream: TextIO | None = None) -> None:
    """Print one line at once, on stdout or, if that is `stream`, stderr."""
    line = printable(text.replace("\n", "�"))  # a path may hold anything
    (streams.write_err if stream is sys.stderr else streams.write_out)(f"{line}\n")


def one_line(text: str) -> str:
    """The text without its line breaks."""
    return " ".join(text.split())
