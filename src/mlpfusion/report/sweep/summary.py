"""Shows what a study found: winners by model and tokens, means over its cells, failures by reason."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from mlpfusion import units
from mlpfusion.report import speedup
from mlpfusion.report.grid import FORMATS, Grid, csv_text, titled
from mlpfusion.spec import one_of
from mlpfusion.storage import results
from mlpfusion.storage.letters import printable
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records.sweep.study import Kept, OverEager, Study

_TIE: Final = "≈"  # between backends whose times are within the noise


def render(study: Study, fmt: str = "text") -> str:
    """A study in one of `grid.FORMATS`; ends with a newline.

    Raises:
        UsageError: `fmt` is none of them.
    """
    one_of("format", fmt, FORMATS)
    if fmt == "json":
        return results.encode(study)
    if fmt == "csv":
        return csv_text([row for each in study.cells for row in _rows(each)])
    github = fmt == "github"
    tables = [titled(grid.title, grid.text(github=github), github=github) for grid in grids(study)]
    parts = [*tables, _failures(study.cells)]
    states = [each.state for each in study.cells]
    counted = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    head = f"study {study.name}: {len(states)} cells, {counted}; host clocks {study.host_clocks}"
    return printable("\n\n".join([head, *[part for part in parts if part]]) + "\n")


def grids(study: Study) -> list[Grid]:
    """The winners of its cells, and the means over them if there is any."""
    means = _means(study.cells)
    return [_winners(study.cells), *([] if means is None else [means])]


def _rows(each: Kept) -> Iterable[dict[str, object]]:
    """One row for each backend of a cell, or one without a backend where it has no result."""
    work = each.cell.work.workload
    facts = {
        "model": " and ".join(map(str, each.cell.work.of)),
        "tokens": work.tokens,
        "dtype": work.spec.dtype,
        "mode": work.mode,
        "gpu": each.cell.gpu,
        "state": each.state,
    }
    empty = {"backend": "", "clock": "", "place": "", "speedup": "", "low": "", "high": "", "reason": each.reason or ""}
    found = each.outcome
    if found is None:
        yield {**facts, **empty}
        return
    for name in dict.fromkeys([*found.speeds, *([found.winner] if found.winner else []), *found.failed]):
        places = {"won": (found.winner,), "tied": found.tied, "failed": found.failed}
        ratio = found.speeds.get(name)
        yield {
            **facts,
            **empty,
            "backend": name,
            "clock": found.clock,
            "place": next((place for place, names in places.items() if name in names), ""),
            "speedup": "" if ratio is None else speedup.inverse(ratio.median),
            "low": "" if ratio is None or ratio.high is None else speedup.inverse(ratio.high),
            "high": "" if ratio is None or ratio.low is None else speedup.inverse(ratio.low),
            "reason": found.failed.get(name, ""),
        }


# ---- winners ---------------------------------------------------------------------------------------------------------


def _winners(kept: Sequence[Kept]) -> Grid:
    """A row for each model, mode, dtype and kind of GPU, a column for each number of tokens."""
    tokens = sorted({each.cell.work.workload.tokens for each in kept})
    lines: dict[tuple[str, ...], dict[int, str]] = {}
    for each in kept:
        work = each.cell.work.workload
        key = (" and ".join(map(str, each.cell.work.of)), work.mode, work.spec.dtype, each.cell.gpu)
        lines.setdefault(key, {})[work.tokens] = _winner(each)
    cells = [[*key, *[found.get(count, "") for count in tokens]] for key, found in lines.items()]
    heads = ["model", "mode", "dtype", "gpu", *[f"M={count}" for count in tokens]]
    return Grid(f"fastest backend by tokens M ({_TIE}: within the noise)", heads, cells, [False] * len(heads))


def _winner(each: Kept) -> str:
    if each.state != "finished" or each.outcome is None:
        return each.state
    if each.outcome.winner is None:
        return ABSENT
    return f" {_TIE} ".join([each.outcome.winner, *each.outcome.tied])


# ---- means -----------------------------------------------------------------------------------------------------------


def _means(kept: Sequence[Kept]) -> Grid | None:
    found: dict[str, list[OverEager]] = {}
    for each in kept:
        for name, ratio in (each.outcome.speeds if each.outcome is not None else {}).items():
            found.setdefault(name, []).append(ratio)
    found.pop("eager", None)
    if not found:
        return None
    cells = [[name, f"{len(ratios)}", _mean(ratios)] for name, ratios in found.items()]
    title = f"speedup over eager, geometric mean over the cells that have one ({speedup.DIRECTION})"
    return Grid(title, ["backend", "cells", "speedup"], cells, [False, True, True])


def _mean(ratios: Sequence[OverEager]) -> str:
    """The geometric mean of speedups, with the interval that the cells' own, independent of each other, give it."""
    logs = [-math.log(each.median) for each in ratios]
    middle = math.fsum(logs) / len(logs)
    halves = [
        (math.log(each.high) - math.log(each.low)) / 2
        for each in ratios
        if each.low is not None and each.high is not None
    ]
    if len(halves) < len(ratios):
        return units.times(math.exp(middle))
    half = math.sqrt(math.fsum(each**2 for each in halves)) / len(ratios)
    return units.ratio(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


# ---- failures --------------------------------------------------------------------------------------------------------


def _failures(kept: Sequence[Kept]) -> str:
    """Each reason for which a cell or a backend in one has no result, with how often."""
    reasons: dict[str, int] = {}
    for each in kept:
        if each.reason is not None:
            said = f"{each.state}: {each.reason}"
            reasons[said] = reasons.get(said, 0) + 1
        for name, why in (each.outcome.failed if each.outcome is not None else {}).items():
            said = f"{name}: {why}"
            reasons[said] = reasons.get(said, 0) + 1
    lines = [f"{number}x {said}" for said, number in sorted(reasons.items(), key=lambda one: -one[1])]
    return "\n".join(["not measured:", *lines]) if lines else ""
