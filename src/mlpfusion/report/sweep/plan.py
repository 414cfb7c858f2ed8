"""Shows a study before it runs: its cells, those that are refused, and how long the rest takes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mlpfusion.report.grid import FORMATS, csv_text, tabulated
from mlpfusion.spec import one_of
from mlpfusion.storage.letters import printable
from mlpfusion.units import duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.stages.sweep.plan import Estimate, Planned


def render(found: Sequence[Planned], states: Sequence[str], time: Estimate, workers: int, fmt: str = "text") -> str:
    """The cells of a plan with what becomes of each, in one of `grid.FORMATS`; ends with a newline.

    `states` has for each cell what becomes of it; `time` is for one worker.

    Raises:
        UsageError: `fmt` is none of them.
    """
    one_of("format", fmt, FORMATS)
    rows = [_fields(each, state) for each, state in zip(found, states, strict=True)]
    seconds = time.seconds / max(workers, 1)
    if fmt == "json":
        whole = {"cells": rows, "workers": workers, "estimate_s": seconds, "estimate_source": time.source}
        return json.dumps(whole, indent=1) + "\n"
    if fmt == "csv":
        return csv_text(rows)
    cells = [[str(value) for value in row.values()] for row in rows]
    right = [name in ("tokens", "hidden_size", "intermediate_size") for name in rows[0]]
    table = tabulated(cells, list(rows[0]), right, github=fmt == "github")
    counts = {state: [_word(one) for one in states].count(state) for state in dict.fromkeys(map(_word, states))}
    summed = ", ".join(f"{number} {state}" for state, number in counts.items())
    by = f"{workers} worker{'s' if workers != 1 else ''}"
    end = f"{len(rows)} cells: {summed}; about {duration(seconds)} on {by}, {time.source}"
    return printable(f"{table}\n\n{end}\n")


def _word(state: str) -> str:
    return state.partition(":")[0]


def _fields(each: Planned, state: str) -> dict[str, object]:
    work = each.cell.work.workload
    return {
        "model": " and ".join(map(str, each.cell.work.of)),
        "hidden_size": work.spec.hidden_size,
        "intermediate_size": work.spec.intermediate_size,
        "tokens": work.tokens,
        "dtype": work.spec.dtype,
        "mode": work.mode,
        "gpu": each.cell.gpu,
        "cell": state,
    }
