"""Turns the document of a profile of schema 1 into one of schema 2."""

from __future__ import annotations

from typing import Any, Final

_NOT_TOLD: Final = "a file of schema 1 does not tell"
_UNKNOWN: Final = ("sm_clock_mhz", "power_w", "temperature_c", "throttle_reasons")
# Where the times of a clock are in the new document, and where they are in the file that messages speak of.
_NEW, _OLD = ".rounds[0]", ".samples"


def upgraded(document: dict[str, Any]) -> dict[str, Any]:
    """The document of schema 2, which shares its parts with this one; what is damaged in it stays as it is.

    There was one process. Its times come without the rounds that were dropped, so that where one was they cannot be
    paired: `Clock.is_paired` says so, since the count of dropped rounds is kept.
    """
    rows, processes = document.get("rows"), []
    if isinstance(rows, list):
        clocks = [row["clocks"] for row in rows if isinstance(row, dict) and isinstance(row.get("clocks"), dict)]
        rows = [{**row, "clocks": _clocks(row["clocks"])} if _has_clocks(row) else row for row in rows]
        raced = [each for each in clocks if any(each.get(name) for name in ("wall_us", "event_us", "graph_us"))]
        if raced:
            load = raced[0].get("neighbours")
            reasons = dict.fromkeys((*_UNKNOWN, *(["neighbours"] if load is None else [])), _NOT_TOLD)
            processes = [{"started": document.get("created"), "neighbours": load, "reasons": reasons}]
    return {**document, "schema": 2, "rows": rows, "processes": processes}


def place(message: str) -> str:
    """A message on the new document, with the place that the file has."""
    return message.replace(_NEW, _OLD)


def _has_clocks(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("clocks"), dict)


def _clocks(clocks: dict[str, Any]) -> dict[str, Any]:
    return {name: _clock(each) if isinstance(each, dict) else each for name, each in clocks.items()}


def _clock(clock: dict[str, Any]) -> dict[str, Any]:
    if "samples" not in clock:  # `reasons` is no clock, and a summary has no samples
        return clock
    rest = {name: value for name, value in clock.items() if name != "samples"}
    samples = clock["samples"]
    return {**rest, "rounds": [] if samples == [] else [samples]}
