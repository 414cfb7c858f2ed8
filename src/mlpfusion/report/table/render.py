"""Renders result files in any format: a page of one as its verb showed it, or tables of all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.errors import UsageError
from mlpfusion.report.table import others, result
from mlpfusion.report.table.document import document, races_of
from mlpfusion.report.table.formats import data, html, latex, text
from mlpfusion.report.table.formats import long as samples
from mlpfusion.report.table.model import Document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.report.table.document import Options
    from mlpfusion.stages.tabulate.sources import Source

FORMATS: Final = ("text", "github", "latex", "csv", "json", "html")
_PAGED: Final = ("text", "github", "csv", "json")  # the formats of the pages that verbs print


def pages(sources: Sequence[Source], fmt: str, *, full: bool = False) -> str:
    """Each file as the verb that wrote it showed it; ends with a newline.

    Raises:
        UsageError: a file has no such page, or `full` is asked of one that is no profile.
    """
    if fmt not in _PAGED:
        raise UsageError(f"--full is for --format {', '.join(_PAGED)}, got {fmt!r}")
    if len(sources) == 1:
        return result.render(sources[0].result, fmt, full=full, source=sources[0].path)
    return result.render_all([(source.path, source.result) for source in sources], fmt, full=full)


def tables(sources: Sequence[Source], fmt: str, options: Options, asked: Sequence[str] = ()) -> str:
    """One table of all rows of the files, and those of files that have none; ends with a newline.

    `asked` are the options that only rows of backends have.

    Raises:
        UsageError: an option names what is not there, or no file has rows and something was asked of them.
    """
    found = document(sources, options)
    if not found.tables and asked:
        kinds = ", ".join(f"{source.path!r} holds a {source.result.kind!r}" for source in sources)
        raise UsageError(f"{asked[0]} is for rows of backends, and {kinds}")
    more = () if asked else tuple(table for each in sources for table in others.tables(each, alone=not found.tables))
    whole = Document((*found.tables, *more), found.methods, found.caption, found.label)
    if fmt == "latex":
        return latex.render(whole)
    if fmt == "html":
        return html.render(whole)
    if fmt == "csv":
        return data.csv(whole)
    if fmt == "json":
        return data.json_text(whole)
    return text.render(whole, github=fmt == "github")


def long(sources: Sequence[Source], options: Options) -> str:
    """Every sample of the rows as CSV. Errors are as of `tables`, or no row has any."""
    return samples.render(races_of(sources, options))
