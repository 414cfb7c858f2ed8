"""The verb that compares result files: compare."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mlpfusion import limits
from mlpfusion.cli.streams import write_out
from mlpfusion.cli.text import FAILED, OK, Text
from mlpfusion.errors import UsageError
from mlpfusion.storage import private

if TYPE_CHECKING:
    from collections.abc import Mapping

_SHARE: Final = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(%?)", re.ASCII)


def add_to(app: typer.Typer) -> None:
    """Give the command line this verb."""
    app.command("compare")(_compare)


def _compare(
    baseline: Annotated[str, typer.Argument(metavar="A", help="Result file, FILE:backend, or folder; - for stdin.")],
    candidate: Annotated[Text, typer.Argument(metavar="[B]", help="The same, to be compared with it.")] = None,
    *,
    against_itself: Annotated[bool, typer.Option("--self", help="A's processes against each other.")] = False,
    control: Annotated[str, typer.Option(metavar="NAME|none", help="Row that times are relative to.")] = "eager",
    threshold: Annotated[str, typer.Option(metavar="SHARE", help="Smallest change that counts.")] = "1%",
    exact: Annotated[bool, typer.Option("--exact", help="Facts alone, without times.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also what was measured differently.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 for rows not decided or gone too.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Every clock of every row.")] = False,
    fmt: Annotated[str, typer.Option("--format", metavar="text|github|json", help="What stdout gets.")] = "text",
) -> int:
    """Compare two result files row by row.

    Exit code 1 if a row is slower, or a fact of it is worse.
    """
    from msgspec import structs

    from mlpfusion import spec
    from mlpfusion.report import comparison as report

    spec.one_of("format", fmt, report.FORMATS)
    least = _share("--threshold", threshold)
    if against_itself:
        if candidate is not None:
            raise UsageError(
                f"--self compares one file's processes with each other; {candidate!r} is one file too many"
            )
        _check_self({"--exact": exact, "--force": force, "--strict": strict, "--full": full})
        from mlpfusion.stages.compare import self_test

        alone = self_test.compare_self(baseline, control=control, threshold=least)
        if fmt != "text":
            alone = structs.replace(alone, source=_shown(alone.source)[0])
        write_out(report.render_self(alone, fmt))
        return OK
    if candidate is None:
        raise UsageError(f"compare {baseline!r} with what? give a second file, or --self")
    from mlpfusion.stages.compare import run

    if exact:
        _check_exact({"--control": control != "eager", "--threshold": least != _share("--threshold", "1%")})
    found = run.compare(baseline, candidate, control=control, threshold=least, exact=exact, force=force)
    if fmt != "text":
        one, other = _shown(found.baseline, found.candidate)
        found = structs.replace(found, baseline=one, candidate=other)
    write_out(report.render(found, fmt, full=full))
    undecided = strict and (bool(found.only_baseline) or any(row.is_undecided for row in found.rows))
    return FAILED if undecided or any(row.is_regression for row in found.rows) else OK


def _shown(*names: str) -> tuple[str, ...]:
    """Names of files as others may see them: what is no text for this screen goes into comments and artefacts."""
    short = private.last_parts(names)
    return tuple(short[name] for name in names)


def _check_self(given: Mapping[str, bool]) -> None:
    """Refuse what has no meaning where a file is compared with itself: nothing differs, and nothing is judged."""
    for name, is_given in given.items():
        if is_given:
            raise UsageError(
                f"{name} is for two files; --self goes with --control, --threshold and --format: leave {name} out"
            )


def _check_exact(given: Mapping[str, bool]) -> None:
    """Refuse what is of times where times are left out."""
    for name, is_given in given.items():
        if is_given:
            raise UsageError(f"{name} is for times, which --exact leaves out; give one of the two")


def _share(option: str, text: str) -> float:
    """A share from 0.1% to 50%, as `1%` or `0.01`."""
    found = _SHARE.fullmatch(text)
    share = -1.0 if found is None else float(found[1]) / (100 if found[2] else 1)
    if not limits.THRESHOLD.least <= share <= limits.THRESHOLD.most:
        raise UsageError(f"{option} {text!r} is not a share from 0.1% to 50%, such as 1% or 0.01")
    return share
