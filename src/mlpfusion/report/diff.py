"""Renders how two calls differ as text, Markdown, CSV or JSON: kernels, operators, launches, times."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion import units
from mlpfusion.report.grid import FORMATS, csv_text, decoded_text, markdown, printable, shorten, tabulated, titled
from mlpfusion.report.trace.spreads import spread_text
from mlpfusion.spec import one_of
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records.profile import Kernel
    from mlpfusion.records.trace import CountChange, Difference, FieldChange, KernelPair, Spread, TimeChange

_CLOCKS: Final = {
    "host_us": "host, profiler on",
    "kernel_us": "device, from the traces",
    "wall_us": "host, synchronised",
    "event_us": "device events",
    "graph_us": "CUDA-graph replay",
}


def render(difference: Difference, fmt: str = "text") -> str:
    """A difference in one of `grid.FORMATS`; ends with a newline.

    Raises:
        UsageError: no such format.
    """
    one_of("format", fmt, FORMATS)
    if fmt == "json":
        document = {"schema": 1, "kind": "difference", **msgspec.to_builtins(difference)}
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    if fmt == "csv":
        return csv_text([_line(difference, pair) for pair in difference.kernels])
    return printable(_page(difference, github=fmt == "github") + "\n")


def _page(found: Difference, *, github: bool) -> str:
    sides = [("a", found.a), ("b", found.b)]
    blocks = ["\n".join(f"- **{name}**: {markdown(side)}" if github else f"{name}  {side}" for name, side in sides)]
    blocks.append("\n".join(f"- {markdown(line)}" if github else line for line in found.summary))
    blocks += [titled(title, table, github=github) for title, table in _tables(found, github=github)]
    left = [reason for reason in found.reasons if reason not in found.summary]
    blocks.append("\n".join(f"- {markdown(reason)}" if github else reason for reason in left))
    return "\n\n".join(block for block in blocks if block)


def _tables(found: Difference, *, github: bool) -> Iterable[tuple[str, str]]:
    if found.kernels:
        cells = [_cells(pair, github=github) for pair in found.kernels]
        heads = ["", "role", "kernel", "what it is, or what changed", "a µs", "b µs", "b − a"]
        yield "Kernels", tabulated(cells, heads, [False] * 4 + [True] * 3, github=github)
    for title, changes in (
        ("Operators gone or added", found.chains),
        ("Launches of one call", found.launches),
    ):
        if changes:
            yield title, _counts(changes, github=github)
    if found.times:
        cells = [_time(change) for change in found.times]
        heads = ["clock", "n", "a µs", "b µs", "b − a", "between", ""]
        yield "Times", tabulated(cells, heads, [False] + [True] * 5 + [False], github=github)
    if found.pre_ops:
        cells = [[one.part, _us(one.a_us), _us(one.b_us)] for one in found.pre_ops]
        title = "Host µs before the first launch, in the median call of each"
        yield title, tabulated(cells, ["part", "a", "b"], [False, True, True], github=github)


def _cells(pair: KernelPair, *, github: bool) -> list[str]:
    kernel = pair.a or pair.b
    name = shorten(kernel.name) if kernel else ABSENT
    if pair.change == "changed" and pair.a and pair.b:
        name = f"{shorten(pair.a.name)} → {shorten(pair.b.name)}"
    change = "" if pair.difference_us is None else f"{pair.difference_us:+.1f}"
    shown = f"`{name}`" if github else name
    what = _what(pair.changes) if pair.a and pair.b else decoded_text(kernel.decoded) if kernel else ""
    return [pair.change, pair.role, shown, what, *_kernel_times(pair), change]


def _what(changes: Sequence[FieldChange]) -> str:
    return "; ".join(f"{one.field} {one.a or ABSENT} → {one.b or ABSENT}" for one in changes)


def _kernel_times(pair: KernelPair) -> tuple[str, str]:
    return _kernel_us(pair.a, pair.a_spread), _kernel_us(pair.b, pair.b_spread)


def _kernel_us(kernel: Kernel | None, spread: Spread | None) -> str:
    """A median with its spread; none without, as of a row of fewer than 20 calls."""
    if spread is not None:
        return spread_text(spread)
    if kernel is None or kernel.time_us is None or kernel.p20_us is None or kernel.p80_us is None:
        return ABSENT
    return units.with_spread(kernel.time_us, kernel.p20_us, kernel.p80_us)


def _counts(changes: Sequence[CountChange], *, github: bool) -> str:
    cells = [[one.name, str(one.a), str(one.b)] for one in changes]
    return tabulated(cells, ["", "a", "b"], [False, True, True], github=github)


def _time(change: TimeChange) -> list[str]:
    bounds = ABSENT
    if change.low_us is not None and change.high_us is not None:
        bounds = f"{change.low_us:+.1f} and {change.high_us:+.1f}"
    verdict = "" if change.clear else "no clear difference"
    clock = _CLOCKS.get(change.clock, change.clock)
    counts = f"{change.a.n}, {change.b.n}"
    return [
        clock,
        counts,
        spread_text(change.a),
        spread_text(change.b),
        f"{change.difference_us:+.1f}",
        bounds,
        verdict,
    ]


def _us(value: float | None) -> str:
    return ABSENT if value is None else units.plain(value)


def _line(found: Difference, pair: KernelPair) -> dict[str, object]:
    return {
        "a": found.a,
        "b": found.b,
        "change": pair.change,
        "role": pair.role,
        "a_name": pair.a.name if pair.a else None,
        "b_name": pair.b.name if pair.b else None,
        "in_what": _what(pair.changes),
        **_spread_fields("a", pair.a, pair.a_spread),
        **_spread_fields("b", pair.b, pair.b_spread),
        "difference_us": pair.difference_us,
    }


def _spread_fields(side: str, kernel: Kernel | None, spread: Spread | None) -> dict[str, float | None]:
    """The median time of one side's kernel, and its 20th and 80th percentiles where there are such."""
    fifths = spread or kernel  # a trace's reading has the spread, a row of a result file the kernel
    names = {"p20": "p20", "p80": "p80"} if spread is not None else {"p20": "p20_us", "p80": "p80_us"}
    return {
        f"{side}_us": kernel.time_us if kernel else None,
        **{f"{side}_us_{name}": getattr(fifths, field, None) for name, field in names.items()},
    }
