"""The numbers that a page's script works with: times of every row by every clock, and ratios of every pair."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from mlpfusion.records.profile import BASELINE
from mlpfusion.report.page.cases import clocks_read, is_timed, ratio_of
from mlpfusion.report.profile.columns.clocks import clock_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.clocks import Clock, Ratio
    from mlpfusion.report.page.cases import Case
    from mlpfusion.report.profile.columns.clocks import ClockName

_DIGITS = 7  # of a number in the page: more than any clock has


def numbers(cases: Sequence[Case], clock: ClockName) -> dict[str, Any]:
    """The clocks, the backends that can be a baseline, and for each case its tokens, mode, times and ratios by clock.

    A time is [median, p20, p80]. A ratio is [median, low, high] of the first backend's time over the second's, which
    the key of the pair names by their places; the other direction is its inverse.
    """
    names = clocks_read(cases)
    backends = list(dict.fromkeys(row.backend for case in cases for row in case.rows))
    return {
        "clock": clock,
        "clocks": names,
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
    return {"times": times, "pairs": pairs}


def _time(clock: Clock | None) -> list[float]:
    return [] if clock is None else [_short(clock.median), _short(clock.p20 or 0), _short(clock.p80 or 0)]


def _three(ratio: Ratio) -> list[float]:
    return [_short(ratio.median), _short(ratio.low), _short(ratio.high)]


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def script_json(value: Any) -> str:
    """JSON that cannot end the script element it stands in, nor begin a comment or another element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
