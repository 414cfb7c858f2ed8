"""The verb that draws figures of result files: plot."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mlpfusion.cli.streams import write_out
from mlpfusion.cli.text import OK, Text, path_in, unknown
from mlpfusion.errors import UsageError
from mlpfusion.storage import files, inputs, results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.report.figures.figure import Figure, Options
    from mlpfusion.storage.gathered import Gathered

_DATA: Final = ("csv", "json")
_OURS: Final = re.compile(rb'\{\s*"(\$schema"\s*:\s*"https://vega\.github\.io/schema/|figure"\s*:)')
# Those of report/figures/registry.py, which --help need not load.
_FIGURES: Final = ("ratios", "tokens", "roofline", "bytes", "lanes", "flow", "winners", "accuracy", "compare")


def add_to(app: typer.Typer) -> None:
    """Give the command line this verb."""
    app.command("plot")(_plot)


def _plot(
    names: Annotated[list[str], typer.Argument(metavar="RESULT...", help="Result files, or folders with some.")],
    *,
    figure: Annotated[str, typer.Option(metavar="NAME", help=f"Which figure: {', '.join(_FIGURES)}.")],
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Ends in .svg, .pdf, .png or .json.")],
    width: Annotated[str, typer.Option(metavar="84|178", help="In mm: a column of a page, or all.")] = "178",
    data: Annotated[Text, typer.Option(metavar="FILE", help="The numbers behind it: .csv or .json.")] = None,
    clock: Annotated[Text, typer.Option(metavar="NAME", help="Clock of the times.")] = None,
    baseline: Annotated[str, typer.Option(metavar="BACKEND", help="What ratios are to.")] = "eager",
    value: Annotated[str, typer.Option(metavar="time|tflops", help="What goes up the axis of tokens.")] = "time",
) -> int:
    """Draw a figure of result files.

    Prints the caption, then what the figure leaves out and why. A .json is the Vega-Lite specification.
    """
    from mlpfusion.records.profile import Profile
    from mlpfusion.report.figures import registry
    from mlpfusion.report.figures.drawing import render
    from mlpfusion.stages.compare import self_test
    from mlpfusion.storage import gathered

    if figure not in registry.NAMES:
        raise UsageError(unknown("figure", figure, registry.NAMES))
    options = _options(width, clock, baseline, value)
    drawing = _target("--out", out, render.FORMATS)
    numbers = None if data is None else _target("--data", data, _DATA)
    if numbers is not None and _one_file(drawing, numbers):
        raise UsageError(f"--out and --data are both {data!r}; name two files")
    found = gathered.gather(names)
    for each in found:
        if isinstance(each.record, Profile):
            self_test.check(each.record, each.path)
    for option, path in (("--out", drawing), ("--data", numbers)):
        _check_no_input(option, path, found)
    made = registry.make(figure, found, options)
    written = [(drawing, render.render(made, _ending(drawing)))]
    if numbers is not None:
        written.append((numbers, render.data(made, _ending(numbers))))
    for path, content in written:
        files.write_whole("file", path, content)
    write_out(_said(made))
    return OK


def _options(width: str, clock: str | None, baseline: str, value: str) -> Options:
    from mlpfusion import spec
    from mlpfusion.report.figures import figure
    from mlpfusion.report.profile.columns.clocks import CLOCKS

    return figure.Options(
        width=figure.WIDTHS[[str(each) for each in figure.WIDTHS].index(spec.one_of("width", width, ("84", "178")))],
        clock=None if clock is None else spec.one_of("clock", clock, CLOCKS),
        baseline=baseline,
        value=spec.one_of("value", value, figure.VALUES),
    )


def _target(option: str, text: str, endings: Sequence[str]) -> Path:
    """The file that an option names, once it can be written; its name says in which form."""
    path = path_in(option, text)
    if _ending(path) not in endings:
        raise UsageError(f"{option} {text!r} has to end in {', '.join(f'.{each}' for each in endings)}")
    files.check_file("file", path)
    kind = results.kind_of(path)
    if kind is not None:
        raise UsageError(f"{option} {text!r} holds a {kind!r} of mlpfusion, which would be lost; name another file")
    if _ending(path) == "json" and path.exists() and not _is_ours(path):
        raise UsageError(f"{option} {text!r} exists and is no figure, so that it would be lost; name another file")
    return path


def _is_ours(path: Path) -> bool:
    """Whether a file of JSON is empty or begins as a specification does, or the numbers behind a figure."""
    with path.open("rb") as file:
        start = file.read(100).lstrip()
    return not start or _OURS.match(start) is not None


def _ending(path: Path) -> str:
    return path.suffix.removeprefix(".").lower()


def _one_file(a: Path, b: Path) -> bool:
    return a.resolve() == b.resolve() or files.is_same(a, b)


def _check_no_input(option: str, path: Path | None, found: Sequence[Gathered]) -> None:
    for each in found if path is not None else ():
        if not inputs.is_stdin(each.path) and files.is_same(path, Path(each.path)):  # type: ignore[arg-type]
            raise UsageError(f"{option} {str(path)!r} would overwrite {each.path!r}, which is read; name another file")


def _said(made: Figure) -> str:
    from mlpfusion.storage.letters import printable

    return printable("\n".join([made.caption, *(f"not shown: {note}" for note in made.notes)]) + "\n")
