"""The verb that puts the folders of one study together."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from mlpfusion.cli.streams import write_out
from mlpfusion.cli.sweep.sweep import judge
from mlpfusion.cli.text import Format, Text, path_in, say
from mlpfusion.errors import UsageError


def add_to(app: typer.Typer) -> None:
    """Give the command line this verb."""
    app.command("merge")(_merge)


def _merge(
    folders: Annotated[list[str], typer.Argument(metavar="DIR…", help="Folders that `mlpfusion sweep` wrote.")],
    *,
    out: Annotated[Text, typer.Option(metavar="DIR", help="Folder for the whole study.")] = None,
    fmt: Format = "text",
) -> int:
    """Put the shards of a study together.

    A cell that is found twice is one if both files are equal. If only times differ, the processes of both are those of
    the cell. Everything else that differs is refused.
    """
    from mlpfusion import spec
    from mlpfusion.report import grid
    from mlpfusion.report.sweep import summary
    from mlpfusion.stages.sweep import merge

    spec.one_of("format", fmt, grid.FORMATS)
    if out is None:
        raise UsageError("merge needs --out DIR, the folder for the whole study")
    target = path_in("--out", out)
    for place, name in enumerate(folders):
        if name in folders[:place]:
            raise UsageError(f"folder {name!r} is given twice")
    made = merge.merge([str(path_in("DIR", name)) for name in folders], target)
    say(f"saved in {target}", sys.stderr)
    write_out(summary.render(made, fmt))
    return judge(made)
