"""The verb that measures a study."""

from __future__ import annotations

from typing import Annotated

import typer

from mlpfusion.cli.streams import write_out
from mlpfusion.cli.text import FAILED, OK, Format, Text
from mlpfusion.errors import UsageError


def add_to(app: typer.Typer) -> None:
    """Give the command line this verb."""
    app.command("sweep")(_sweep)


def _sweep(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="TOML file that says what to measure.")],
    device: Annotated[Text, typer.Option(metavar="cuda|cpu", help="Where to run; all GPUs if there is one.")] = None,
    shard: Annotated[Text, typer.Option(metavar="I/N", help="The part I of N of its cells, or auto.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the cells and the time they take.")] = False,
    fmt: Format = "text",
) -> int:
    """Measure a study of many cells.

    A cell is one MLP, number of tokens, dtype, mode and kind of GPU: a race of all backends on one card.
    """
    from mlpfusion import spec
    from mlpfusion.device import DEVICE_KINDS
    from mlpfusion.report import grid
    from mlpfusion.report.sweep import plan as report
    from mlpfusion.stages.sweep import cells, plan, slots
    from mlpfusion.stages.sweep import study as studies

    spec.one_of("format", fmt, grid.FORMATS)
    if device is not None:
        spec.one_of("device", device, DEVICE_KINDS)
    asked = studies.read(study)
    part = None if shard is None else cells.shard(shard)
    if not dry_run:
        raise UsageError("a study is planned by --dry-run alone")
    places = slots.found(device)
    found = plan.plan(asked, [each.device for each in places])
    states = [plan.state(each, asked.settings, part) for each in found]
    mine = states.count(plan.MEASURED)
    write_out(report.render(found, states, plan.estimate(mine, asked.settings), len(places), fmt))
    return OK if mine else FAILED
