"""Shows the plan of a choice: what its rows are measured with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.report.grid import FORMATS, Grid, csv_text
from mlpfusion.spec import one_of
from mlpfusion.storage import results
from mlpfusion.storage.letters import printable

if TYPE_CHECKING:
    from mlpfusion.records.choice import Plan


def render(found: Plan, fmt: str = "text") -> str:
    """A plan in one of `grid.FORMATS`; ends with a newline.

    Raises:
        UsageError: `fmt` is none of them.
    """
    one_of("format", fmt, FORMATS)
    if fmt == "json":
        return results.encode(found)
    grid = facts(found)
    if fmt == "csv":
        return csv_text([{"fact": name, "value": value} for name, value in grid.cells])
    return printable(grid.text(github=fmt == "github") + "\n")


def facts(found: Plan) -> Grid:
    """What the rows of a choice are measured with."""
    spec = found.spec
    said = {
        "kind": found.kind,
        "hidden_size": str(spec.hidden_size),
        "intermediate_size": str(spec.intermediate_size),
        "activation": spec.activation,
        "dtype": spec.dtype,
        "bias": str(spec.bias).lower(),
        "rounds": str(found.rounds),
        "device": found.holds.device,
        **{name: version or "not installed" for name, version in found.holds.versions.items()},
    }
    cells = [[name, value] for name, value in said.items()]
    return Grid("Plan of a choice", ["fact", "value"], cells, [False, False])
