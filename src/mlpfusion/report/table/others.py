"""Gives the tables of a file beside its rows of backends: ranges, verdicts, controls, configurations, proofs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.records.bench import Bench
from mlpfusion.records.choice import Choice, Plan
from mlpfusion.records.proof import Proof
from mlpfusion.records.sweep.study import Study
from mlpfusion.records.tuning import Tuning
from mlpfusion.records.validation import SelfTest, Validation
from mlpfusion.report import choice, proof, self_test, tuning, validation
from mlpfusion.report.sweep import summary
from mlpfusion.report.table import bench, plan
from mlpfusion.report.table.model import Cell, Column, Group, Line, Table

if TYPE_CHECKING:
    from mlpfusion.report.grid import Grid
    from mlpfusion.stages.tabulate.sources import Source


def tables(source: Source, *, alone: bool) -> list[Table]:
    """The tables of a file beside its races; a profile has none, nor has a plan unless it is shown `alone`."""
    found = source.result
    notes: list[str] = []
    grids: list[Grid] = []
    if isinstance(found, Choice):
        grids = [choice.ranges(found)]
    elif isinstance(found, Study):
        grids = summary.grids(found)
    elif isinstance(found, Plan) and alone:
        grids = [plan.facts(found)]
    elif isinstance(found, Validation):
        grids = [validation.words(found.verdicts)]
    elif isinstance(found, SelfTest):
        grids, notes = [self_test.controls(found)], [self_test.summary(found)]
    elif isinstance(found, Tuning):
        grids = [tuning.answers(found)]
    elif isinstance(found, Proof):
        grids = [proof.errors(found), *([] if found.speed is None else [proof.times(found.speed, found.how)])]
        notes = [f"fails: {failure}" for failure in found.failures] or ["holds: no part is beyond its limit"]
    elif isinstance(found, Bench):
        grids, notes = bench.grids(found)
        notes = [*notes, *(grid.title for grid in grids if grid.title)]
        grids = [grid._replace(title=found.kind) for grid in grids]
    made = [_table(grid, source) for grid in grids]
    if made and notes:
        made[-1] = Table(made[-1].title, made[-1].columns, made[-1].groups, tuple(notes))
    return made


def _table(grid: Grid, source: Source) -> Table:
    columns = [Column(head, head, right) for head, right in zip(grid.heads, grid.right, strict=True)]
    lines = [
        Line(tuple(map(Cell, cells)), {"file": source.name, **dict(zip(grid.heads, cells, strict=True))})
        for cells in grid.cells
    ]
    return Table(f"{grid.title}: {source.name}", tuple(columns), (Group(tuple(lines)),))
