"""The numbers that a page's script works with: times of every row by every clock, and ratios of every pair."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from mlpfusion.records.profile import BASELINE
from mlpfusion.report.page.cases import best, clocks_read, is_timed, ratio_of
from mlpfusion.report.profile.columns.clocks import clock_of
from mlpfusion.report.table.columns import every

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.clocks import Clock, Ratio
    from mlpfusion.report.page.cases import Case
    from mlpfusion.report.profile.columns.clocks import ClockName

_DIGITS = 7  # of a number in the page: more than any clock has


def numbers(cases: Sequence[Case], clock: ClockName) -> dict[str, Any]:
    """The clocks, the backends that can be a baseline, and for each case its tokens, mode, times and ratios by clock.

    A time is [median, p20, p80]. A ratio is [median, low, high] of the first backend's time over the second's, which
    the key of the pair names by their places; the other direction is its inverse. `best` are the places of those that
    share the mark. `heads` are what `mlpfusion table` calls the clocks.
    """
    names = clocks_read(cases)
    backends = list(dict.fromkeys(row.backend for case in cases for row in case.rows))
    return {
        "clock": clock,
        "clocks": names,
        "heads": {column.key: column.head for column in every(clock, BASELINE) if column.key in names},
        "baseline": BASELINE,
        "backends": backends,
        "cases": [
            {"tokens": str(case.tokens), "mode": case.mode, **{name: _of(case, name, backends) for name in names}}
            for case in cases
        ],
    }


def _of(case: Case, name: ClockName, backends: Sequence[str]) -> dict[str, Any]:
    timed = [row for row in case.rows if is_timed(row, name)]
    times = {row.backend: _time(clock_of(row, name)) for row in timed}
    pairs = {}
    for one, other in itertools.combinations(timed, 2):
        ratio = ratio_of(case, one, other, name)
        if ratio is not None:
            pairs[f"{backends.index(one.backend)},{backends.index(other.backend)}"] = _three(ratio)
    return {"times": times, "pairs": pairs, "best": sorted(backends.index(each) for each in best(case, name))}


def _time(clock: Clock | None) -> list[float]:
    return [] if clock is None else [_short(clock.median), _short(clock.p20 or 0), _short(clock.p80 or 0)]


def _three(ratio: Ratio) -> list[float]:
    return [_short(ratio.median), _short(ratio.low), _short(ratio.high)]


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def hoisted(specs: Sequence[Any]) -> dict[str, Any]:
    """The specifications of figures with rows that stand once: `values` of their data is a place in `tables`.

    The two widths of a figure have mostly the same rows, and the rows of a table the same names of fields.
    """
    places: dict[str, int] = {}
    tables: list[Any] = []

    def without(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [without(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {name: held(each) if name == "data" else without(each) for name, each in value.items()}

    def held(value: Any) -> Any:
        if not isinstance(value, dict) or not isinstance(value.get("values"), list | tuple):
            return without(value)
        key = json.dumps(value["values"])
        if key not in places:
            places[key] = len(tables)
            tables.append(_table(value["values"]))
        return {**value, "values": places[key]}

    return {"specs": without(specs), "tables": tables}


def _table(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Rows by the fields that they have: for each set of fields its names, and the values of every row in order."""
    sets: dict[tuple[str, ...], int] = {}
    made = []
    for row in rows:
        kind = sets.setdefault(tuple(row), len(sets))
        made.append([kind, *(_short(each) if isinstance(each, float) else each for each in row.values())])
    return {"fields": list(sets), "rows": made}


def script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in, nor begin a comment or another element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
