"""The command line: has the verbs of every feature, and turns errors into one line and an exit code."""

from __future__ import annotations

import functools
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from mlpfusion.cli import choose, compare, predict, profile, prove, streams, trace, tune, validate
from mlpfusion.cli.needs import check_installed
from mlpfusion.cli.publishing import cite, plot, report, table
from mlpfusion.cli.sweep import merge, sweep
from mlpfusion.cli.text import (
    FAILED,
    INTERRUPTED,
    OK,
    USAGE,
    InterruptedRunError,
    complain,
    one_line,
    say,
    unknown,
)
from mlpfusion.errors import MlpfusionError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


_FIRST: Final = """\
Try first:
  mlpfusion backends                    what runs on this machine
  mlpfusion profile --json result.json  measure it all, minutes
  mlpfusion table result.json           the figures again
  mlpfusion compare old.json new.json   what got slower, and what did not
  mlpfusion choose gemma-2b             which backend for a model
  mlpfusion sweep study.toml            many models, tokens and dtypes
  mlpfusion read trace.json.gz          what a profiler trace says
  mlpfusion validate kernel.py:gelu_mul judge a kernel of your own

"""

app = typer.Typer(
    rich_markup_mode=None,  # plain help: rich alone takes as long to import as the rest of `--help`
    pretty_exceptions_enable=False,
    add_completion=False,
    help="Many implementations of one gated MLP behind one interface, and the instruments to judge them.",
)


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as version_of

        say(f"mlpfusion {version_of('mlpfusion-read')}")
        raise typer.Exit(OK)
    if context.invoked_subcommand is not None:
        check_installed(context.invoked_subcommand)


profile.add_to(app)
table.add_to(app)
trace.add_to(app)
tune.add_to(app)
validate.add_to(app)
prove.add_to(app)
choose.add_to(app)
predict.add_to(app)
compare.add_to(app)
cite.add_to(app)
plot.add_to(app)
sweep.add_to(app)
merge.add_to(app)
report.add_to(app)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line on `argv` (default: what was typed) and return the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    args = given or ["--help"]
    try:
        streams.prepare()
        if not given:
            streams.write_out(_FIRST)
        code = _parser()(args, prog_name="mlpfusion", standalone_mode=False)
        streams.write_out("")  # what the parser wrote may still be held back
    except UsageError as error:
        return complain(str(error), USAGE)
    except InterruptedRunError as error:
        return complain(f"interrupted; {error}", INTERRUPTED)
    except MlpfusionError as error:
        return complain(str(error), FAILED)
    except _PARSE_ERROR as error:
        return complain(_parse_error_text(error), USAGE)
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except (OSError, SystemExit) as error:
        return _system_refused(error)
    if code == INTERRUPTED:  # Ctrl-C before anything ran; newer parsers make it an exit code themselves
        complain("interrupted; nothing was saved")
    return code if isinstance(code, int) else OK


@functools.cache
def _parser() -> Any:
    """The commands as they are parsed. To make them takes a tenth of a second, which each call of `app` does anew."""
    return typer.main.get_command(app)


def _system_refused(error: OSError | SystemExit) -> int:
    """The exit code for a system error, after reporting it; the parser turns a broken pipe into an exit.

    It is not that of something judged and found bad.
    """
    cause = error.__context__ if isinstance(error, SystemExit) else error
    if not isinstance(cause, OSError):
        raise error
    streams.silence(sys.stdout)
    if isinstance(cause, BrokenPipeError):
        return OK
    where = f"{str(cause.filename)!r}: " if cause.filename is not None else ""
    return complain(f"{where}{cause.strerror or cause}", USAGE)


# ---- the parser's own errors -----------------------------------------------------------------------------------------

# typer exports only `BadParameter` of its parser's errors, and from 0.26 on no longer takes them from click: the base
# is reached through it.
_PARSE_ERROR: Final[type[Exception]] = next(
    base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException"
)


def _parse_error_text(error: Any) -> str:
    """The parser's error in one line, with near and valid names."""
    message = one_line(str(error.format_message())).rstrip(".")
    command = getattr(getattr(error, "ctx", None), "command", None)
    if getattr(error, "option_name", None) == "-:":
        return (
            "a row of stdin, as -:triton, is taken for an option: put -- before it, behind all options; stdin can be "
            "read once, so that two rows of it need a file: FILE:triton FILE:fused"
        )
    if type(error).__name__ == "NoSuchOption" and command is not None:
        shown = [param for param in command.params if not getattr(param, "hidden", False)]
        options = [name for param in shown for name in (*param.opts, *param.secondary_opts) if name.startswith("-")]
        return unknown("option", error.option_name, [*options, "--help"])
    named = re.match(r"No such command '(.*?)'", message)
    return unknown("command", named[1], list(command.commands)) if named and command is not None else message
