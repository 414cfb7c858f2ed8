"""The verb that prints result files as tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from mlpfusion.cli import streams
from mlpfusion.cli.text import OK, Text, names_in, say
from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.report.table.document import Options

_LABEL: Final = re.compile(r"[A-Za-z0-9:._/+-]+")


def add_to(app: typer.Typer) -> None:
    """Give the command line this verb."""
    app.command("table")(_table)


def _table(
    results: Annotated[list[str], typer.Argument(metavar="RESULT...", help="Files, or folders with some; - is stdin.")],
    *,
    fmt: Annotated[
        str, typer.Option("--format", metavar="text|github|latex|csv|json|html", help="What stdout gets.")
    ] = "text",
    columns: Annotated[Text, typer.Option(metavar="A,B", help="Columns, or sets of them; the summary.")] = None,
    baseline: Annotated[Text, typer.Option(metavar="NAME", help="Row that speedups are relative to; eager.")] = None,
    sort: Annotated[Text, typer.Option(metavar="COLUMN", help="Order; -COLUMN from the highest down.")] = None,
    rows: Annotated[Text, typer.Option(metavar="A,B", help="Backends to show; all.")] = None,
    transpose: Annotated[bool, typer.Option("--transpose", help="Backends down, tokens across.")] = False,
    long: Annotated[bool, typer.Option("--long", help="CSV with one line per sample.")] = False,
    caption: Annotated[Text, typer.Option(metavar="TEXT", help="Caption, of LaTeX and HTML.")] = None,
    label: Annotated[Text, typer.Option(metavar="NAME", help="Label, of LaTeX.")] = None,
    output: Annotated[Text, typer.Option("--output", "-o", metavar="FILE", help="File instead of stdout.")] = None,
    full: Annotated[bool, typer.Option("--full", help="All of a profile, as `profile --full` has it.")] = False,
) -> int:
    """Print result files as tables.

    One file in text, GitHub Markdown, CSV or JSON is shown as the verb that wrote it did. Several files, a folder, any
    option and the other formats make one table of all rows, with a note on how they were measured; the best of each
    race is marked, with all that it is not known to beat.

    \b
    Sets: summary, speed, host, memory, kernels, traffic, accuracy, training.
    """
    from mlpfusion import spec
    from mlpfusion.report.table import render
    from mlpfusion.report.table.document import Options
    from mlpfusion.stages.tabulate import sources

    spec.one_of("format", fmt, render.FORMATS)
    options = Options(
        columns=None if columns is None else tuple(names_in("--columns", columns)),
        baseline="eager" if baseline is None else baseline,
        sort=sort,
        rows=None if rows is None else tuple(names_in("--rows", rows)),
        transpose=transpose,
        caption=caption,
        label=label,
    )
    given = {
        "--columns": columns is not None,
        "--baseline": baseline is not None,
        "--sort": sort is not None,
        "--rows": rows is not None,
        "--transpose": transpose,
        "--long": long,
    }
    asked = [name for name, is_given in given.items() if is_given]
    _check(fmt, options, asked, full=full)
    target = None if output is None else _target(output, results)
    alone = len(results) == 1 and not asked and fmt not in ("latex", "html")
    found = sources.read(results, cells=not (alone or full))
    if long:
        text = render.long(found, options)
    elif full or (alone and len(found) == 1):
        text = render.pages(found, fmt, full=full)
    else:
        text = render.tables(found, fmt, options, asked)
    if target is None:
        streams.write_out(text)
    else:
        from mlpfusion.storage import files

        files.write_whole("table", target, text.encode("utf-8", "backslashreplace"))
        say(f"written: {output}")
    return OK


def _check(fmt: str, options: Options, asked: Sequence[str], *, full: bool) -> None:
    """Refuse options that do not go together.

    Raises:
        UsageError: two of them contradict each other, or one is for another format.
    """
    from mlpfusion.report.table import columns as known

    if full and asked:
        raise UsageError(f"--full shows all columns: give it or {asked[0]}, not both")
    if options.columns is not None:
        known.check(options.columns, options.baseline)
    if "--long" in asked and options.columns is not None:
        raise UsageError("--long has columns of its own; leave --columns out, or --long")
    if "--long" in asked and options.transpose:
        raise UsageError("--long has a line per sample; leave --transpose out, or --long")
    if "--long" in asked and fmt != "csv":
        raise UsageError(f"--long is for --format csv, got {fmt!r}")
    if options.caption is not None and fmt not in ("latex", "html"):
        raise UsageError(f"--caption is for --format latex and html, got {fmt!r}")
    if options.label is not None:
        if fmt != "latex":
            raise UsageError(f"--label is for --format latex, got {fmt!r}")
        if not _LABEL.fullmatch(options.label):
            raise UsageError(f"--label {options.label!r} is no label; valid: letters, digits and : . _ / + -")


def _target(output: str, inputs: Sequence[str]) -> Path:
    """The path of `--output`, if a file can be written there that is neither an input nor another result.

    Raises:
        UsageError: none can.
    """
    from mlpfusion.cli.text import path_in
    from mlpfusion.storage import files, results

    path = path_in("--output", output)
    for name in inputs:
        if files.is_same(path, Path(name)):
            raise UsageError(f"--output {output!r} is an input; name another file")
    target = files.check_file("table", path)
    kind = results.kind_of(target) if target.is_file() else None
    if kind is not None:
        raise UsageError(f"--output {output!r} holds a {kind!r} of mlpfusion, which would be lost; name another file")
    return target
