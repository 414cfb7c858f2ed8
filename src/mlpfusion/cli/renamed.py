"""Accepts the former names of options, and prints the new ones to stderr."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mlpfusion.cli.text import Text, say, seconds, size
from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Old and new names of the two sizes. `--hidden` was never hidden_size, which is why both are spelled out now.
OLD_SIZES: Final = {"--dim": "--hidden-size", "--hidden": "--intermediate-size"}
# That of `tune` alone: every other verb had the new name from the start.
OLD_LIMIT: Final = {"--limit": "--time-limit"}
SECONDS: Final = ("--time-limit",)  # every other one is a size
LAST: Final = "0.1"  # the last release that takes the old names


def with_old_names(verb: Callable[..., int], renamed: Mapping[str, str] = OLD_SIZES) -> Callable[..., int]:
    """`verb` with a hidden option for the old name of each option in `renamed`, which has no default.

    The wrapped verb raises a UsageError where an option is given by both of its names, or an old one has a bad value.
    """
    signature = inspect.signature(verb, eval_str=True)

    @functools.wraps(verb)
    def accepting(**values: Any) -> int:
        for old, new in renamed.items():
            given = values.pop(_parameter(old))
            if given is None:
                continue
            if values[_parameter(new)] is not None:
                raise UsageError(f"{old} is the old name of {new}, which is given too; give {new} alone")
            (seconds if new in SECONDS else size)(old, given)
            values[_parameter(new)] = given
            say(f"mlpfusion: {old} is now {new}; {old} is gone after version {LAST}", sys.stderr)
        return verb(**values)

    hidden = [
        inspect.Parameter(
            _parameter(old),
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[Text, typer.Option(old, metavar="S" if new in SECONDS else "N", hidden=True)],
        )
        for old, new in renamed.items()
    ]
    accepting.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *hidden]
    )
    return accepting


def _parameter(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")
