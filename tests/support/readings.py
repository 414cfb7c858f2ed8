"""Small traces of calls that are alike, and the reading of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mlpfusion.trace.analysis.summary import read
from support.timeline import Timeline

if TYPE_CHECKING:
    from mlpfusion.records.trace import Reading


def of(made: Any, **options: Any) -> Reading:
    return read(made.text().encode(), **options)


def many(calls: int = 3, name: str = "mlpfusion.call", base: int = 0) -> Any:
    made = Timeline(base)
    for index in range(calls):
        made.mlp(1000 * (index + 1), name=name)
    return made


def without(made: Any, *categories: str) -> Any:
    made.entries = [entry for entry in made.entries if entry["cat"] not in categories]
    return made
