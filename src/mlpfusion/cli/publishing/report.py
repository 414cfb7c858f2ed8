"""The verb `report`: one HTML file of any results, to be read offline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mlpfusion.cli.text import OK, Text, path_in, say
from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from mlpfusion.report.page.sources import Source

_WHAT = "report"


def add_to(app: typer.Typer) -> None:
    """Give the command line this verb."""
    app.command("report")(_report)


def _report(
    result: Annotated[list[str], typer.Argument(metavar="RESULT...", help="Result files of any verb, or folders.")],
    output: Annotated[Text, typer.Option("--output", "-o", metavar="FILE.html", help="The page to write.")] = None,
    title: Annotated[Text, typer.Option("--title", metavar="TEXT", help="Heading of the page.")] = None,
) -> int:
    """Write one HTML page of results, read offline.

    Words, tables, verdicts, methods, and the files themselves. It needs no network and measures nothing. It
    needs the extra `report`.
    """
    from importlib.metadata import version

    from mlpfusion.report.page import page, sources
    from mlpfusion.storage import files

    if output is None:
        raise UsageError("report needs -o FILE.html, the page to write")
    path = path_in("--output", output)
    _check_target(path)
    found = sources.gather(result)
    _check_not_an_input(path, found)
    data = page.render(found, version("mlpfusion-read"), title).encode("utf-8", "backslashreplace")
    files.write_whole(_WHAT, path, data)
    say(f"{path}: {len(data) / 1e6:.2f} MB of {len(found)} file{'' if len(found) == 1 else 's'}")
    return OK


def _check_target(path: Path) -> None:
    """Refuse a path where no page can be written, or where something else than a page would be lost."""
    from mlpfusion.report.page.page import MARK
    from mlpfusion.storage import files

    target = files.check_file(_WHAT, path)
    if not target.exists():
        return
    with target.open("rb") as file:
        start = file.read(len(MARK))
    if start and start != MARK.encode():
        raise UsageError(f"{_WHAT} {str(path)!r} exists and is no report of mlpfusion; name another file")


def _check_not_an_input(path: Path, found: Sequence[Source]) -> None:
    from mlpfusion.storage import files

    for each in found:
        if files.is_same(path, each.path):
            raise UsageError(f"{_WHAT} {str(path)!r} is one of the files that it is made of; name another file")
