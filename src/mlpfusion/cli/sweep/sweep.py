"""The verb that measures a study."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mlpfusion.cli.streams import write_out
from mlpfusion.cli.text import FAILED, OK, Format, InterruptedRunError, Text, one_line, path_in, say
from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.records.sweep.study import Study


def add_to(app: typer.Typer) -> None:
    """Give the command line this verb."""
    app.command("sweep")(_sweep)


def _sweep(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="TOML file that says what to measure.")],
    *,
    out: Annotated[Text, typer.Option(metavar="DIR", help="Folder for the cells; sweeps/STUDY.")] = None,
    device: Annotated[Text, typer.Option(metavar="cuda|cpu", help="Where to run; all GPUs if there is one.")] = None,
    ray: Annotated[
        Text, typer.Option(metavar="auto|ADDRESS", help="Use the GPUs of a Ray cluster; extra cluster.")
    ] = None,
    shard: Annotated[Text, typer.Option(metavar="I/N", help="The part I of N of its cells, or auto.")] = None,
    host_clocks: Annotated[
        str, typer.Option(metavar="exclusive|shared", help="Whether a host's workers take turns at host clocks.")
    ] = "exclusive",
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure again what is in the folder already.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the cells and the time they take.")] = False,
    fmt: Format = "text",
) -> int:
    """Measure a study of many cells.

    A cell is one MLP, number of tokens, dtype, mode and kind of GPU: a race of all backends on one card. Each visible
    GPU has a worker of its own, or each of a Ray cluster.

    Cells that are finished are kept: the same command goes on where it was interrupted.
    """
    from mlpfusion import spec
    from mlpfusion.device import DEVICE_KINDS
    from mlpfusion.report import grid
    from mlpfusion.report.sweep import plan as report
    from mlpfusion.report.sweep import summary
    from mlpfusion.stages.sweep import cells, plan, run, slots
    from mlpfusion.stages.sweep import study as studies
    from mlpfusion.stages.sweep.cluster import cluster

    spec.one_of("format", fmt, grid.FORMATS)
    spec.one_of("host clocks", host_clocks, run.HOST_CLOCKS)
    if device is not None:
        spec.one_of("device", device, DEVICE_KINDS)
    asked = studies.read(study)
    part = None if shard is None else cells.shard(shard)
    folder = run.folder_of(asked, None if out is None else path_in("--out", out), part)
    if ray is not None and device is not None:
        raise UsageError("--ray measures on the devices of a cluster; leave --device out")

    def tell(said: str) -> None:
        say(one_line(said), sys.stderr)

    here = contextlib.nullcontext(run.Host(slots.found(device))) if ray is None else cluster.reached(ray, asked, tell)
    with here as places:
        if dry_run:
            before = () if fresh else run.earlier(asked, folder)
            found = plan.plan(asked, places.devices, before)
            done = {each.cell for each in before if each.state == "finished"}
            states = [plan.state(each, asked.settings, part, done) for each in found]
            mine = [each.cell for each, state in zip(found, states, strict=True) if state == plan.MEASURED]
            time = plan.estimate(mine, asked.settings, before)
            write_out(report.render(found, states, time, len(places.devices), fmt))
            return OK if mine or plan.FINISHED in states else FAILED
        try:
            made = run.sweep(
                asked,
                places,
                out=folder,
                shard=part,
                fresh=fresh,
                host_clocks=spec.one_of("host clocks", host_clocks, run.HOST_CLOCKS),
                tell=tell,
            )
        except KeyboardInterrupt:
            raise InterruptedRunError(_kept(folder)) from None
    say(f"saved in {folder}", sys.stderr)
    write_out(summary.render(made, fmt))
    return judge(made)


def judge(made: Study) -> int:
    """1 if a cell failed, or none is finished."""
    states = {each.state for each in made.cells}
    return FAILED if "failed" in states or "finished" not in states else OK


def _kept(folder: Path) -> str:
    cells = len(list((folder / "cells").glob("*.json")))
    if not cells:
        return "nothing was saved: no cell had finished"
    said = "1 finished cell is" if cells == 1 else f"{cells} finished cells are"
    return f"{said} in {folder}; the same command goes on from there"
