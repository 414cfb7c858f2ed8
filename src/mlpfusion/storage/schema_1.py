"""Turns the document of a file of schema 1 into one of schema 2, whose clocks have rounds by process."""

from __future__ import annotations

from typing import Any, Final

_NOT_TOLD: Final = "a file of schema 1 does not tell"
_UNKNOWN: Final = ("sm_clock_mhz", "power_w", "temperature_c", "throttle_reasons")
_RACED: Final = ("wall_us", "event_us", "graph_us")
# Where the times of a clock are in the new document, and where they are in the file that messages speak of.
_NEW, _OLD = ".rounds[0]", ".samples"


def upgraded(document: Any) -> Any:
    """The document of schema 2, which shares its parts with this one; what is damaged in it stays as it is.

    There was one process. Its times come without the rounds that were dropped, so that where one was they cannot be
    paired: `Clock.is_paired` says so, since the count of dropped rounds is kept.
    """
    found = _with_rounds(document)
    if document.get("kind") == "profile":
        found["processes"] = _processes(document)
    return {**found, "schema": 2}


def place(message: str) -> str:
    """A message on the new document, with the place that the file has."""
    return message.replace(_NEW, _OLD)


def _with_rounds(value: Any) -> Any:
    """The value with rounds in every clock, which is what has samples and a median; a summary alone has neither."""
    if isinstance(value, list):
        return [_with_rounds(each) for each in value] if value and isinstance(value[0], dict | list) else value
    if not isinstance(value, dict):
        return value
    if "samples" in value and "median" in value:
        samples = value["samples"]
        return {**value, "rounds": [] if samples == [] else [samples]}
    return {name: _with_rounds(each) for name, each in value.items()}


def _processes(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The one process of a profile in which something was raced."""
    rows = document.get("rows")
    found = [row.get("clocks") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    raced = [each for each in found if isinstance(each, dict) and any(each.get(name) for name in _RACED)]
    if not raced:
        return []
    load = raced[0].get("neighbours")
    reasons = dict.fromkeys((*_UNKNOWN, *(["neighbours"] if load is None else [])), _NOT_TOLD)
    return [{"started": document.get("created"), "neighbours": load, "reasons": reasons}]
