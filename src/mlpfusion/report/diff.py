"""Renders how two calls differ as text, Markdown, CSV or JSON: kernels, operators, launches, times."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from mlpfusion import units
from mlpfusion.report.grid import FORMATS, clipped, csv_text, decoded_text, fitted, folded, shorten, tabulated, titled
from mlpfusion.report.trace.spreads import spread_text
from mlpfusion.spec import one_of
from mlpfusion.storage.letters import code, escaped, markdown, printable
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records.profile import Kernel
    from mlpfusion.records.trace import CountChange, Difference, FieldChange, KernelPair, Spread, TimeChange

# More kernels than this are shown by role and name. Two whole models are less than 80 lines.
_LISTED: Final = 40
_ROWS: Final = 20
_FEW: Final = 4
_SENTENCE: Final = 400  # characters of a sentence of the summary
_CLOCKS: Final = {
    "host_us": "host, profiler on",
    "kernel_us": "device, from the traces",
    "wall_us": "host, synchronised",
    "event_us": "device events",
    "graph_us": "CUDA-graph replay",
}


def render(difference: Difference, fmt: str = "text", *, everything: bool = False) -> str:
    """A difference in one of `grid.FORMATS`; ends with a newline.

    Text and Markdown of more kernels than `_LISTED` have them by what they are, with counts; with `everything` they
    have each kernel and each operator.

    Raises:
        UsageError: no such format.
    """
    one_of("format", fmt, FORMATS)
    if fmt == "json":
        document = {"schema": 1, "kind": "difference", **msgspec.to_builtins(difference)}
        return escaped(json.dumps(document, indent=1, ensure_ascii=False)) + "\n"
    if fmt == "csv":
        return csv_text([_line(difference, pair) for pair in difference.kernels])
    return printable(_page(difference, github=fmt == "github", everything=everything) + "\n")


def _page(found: Difference, *, github: bool, everything: bool) -> str:
    devices = f"a {found.a_device or 'not known'}, b {found.b_device or 'not known'}"
    sides = [("devices", devices), ("a", found.a), ("b", found.b)]
    blocks = [
        _lines([f"- **{markdown(name)}**: {markdown(side)}" if github else f"{name}  {side}" for name, side in sides])
    ]
    said = [*found.summary, *(_by_role(found.kernels) if len(found.kernels) > _LISTED else ())]
    left = [reason for reason in found.reasons if reason not in found.summary]
    tables = _tables(found, github=github, everything=everything)
    if github:
        blocks.append(_lines([f"- {markdown(line)}" for line in said]))
    else:
        blocks.append(_lines([line if everything else clipped(line, _SENTENCE) for line in said]))
    blocks += [titled(title, table, github=github) for title, table in tables]
    blocks.append(_lines([f"- {markdown(reason)}" if github else reason for reason in left]))
    return "\n\n".join(block for block in blocks if block)


def _lines(lines: Sequence[str]) -> str:
    return "\n".join(folded(line, 2) for line in lines)


def _by_role(pairs: Sequence[KernelPair]) -> Iterable[str]:
    """`roles: gate_gemm 32 and 32, 1801 → 1700 µs (-101); …`, those that differ most first."""
    found = []
    for role in dict.fromkeys(pair.role for pair in pairs):
        sides = [[pair.a for pair in pairs if pair.role == role], [pair.b for pair in pairs if pair.role == role]]
        counts = [sum(one is not None for one in side) for side in sides]
        a, b = (sum(one.time_us or 0.0 for one in side if one is not None) for side in sides)
        text = f"{role} {counts[0]} and {counts[1]}, {units.plain(a)} → {units.plain(b)} µs ({b - a:+.1f})"
        found.append((abs(b - a), text))
    yield "roles: " + "; ".join(text for _, text in sorted(found, key=lambda one: -one[0]))


def _tables(found: Difference, *, github: bool, everything: bool) -> Iterable[tuple[str, str]]:
    many = len(found.kernels) > _LISTED and not everything
    if many:
        heads = ["", "", "role", "kernel", "what it is, or what changed", "a µs", "b µs", "b − a"]
        title = f"Kernels by role and name ({len(found.kernels)} pairs), sums of medians"
        yield (
            title,
            _table(_grouped(found.kernels, github=github), heads, [True, *[False] * 4, *[True] * 3], github=github),
        )
    elif found.kernels:
        cells = [_cells(pair, github=github) for pair in found.kernels]
        heads = ["", "role", "kernel", "what it is, or what changed", "a µs", "b µs", "b − a"]
        yield "Kernels", _table(cells, heads, [False] * 4 + [True] * 3, github=github)
    for title, changes in (
        ("Operators gone or added", found.chains),
        ("Launches of one call", found.launches),
    ):
        if changes:
            yield title, _counts(changes, _FEW if many else len(changes) if everything else _LISTED, github=github)
    if found.times:
        cells = [_time(change) for change in found.times]
        heads = ["clock", "n", "a µs", "b µs", "b − a", "between", ""]
        yield "Times", _table(cells, heads, [False] + [True] * 5 + [False], github=github)
    if found.pre_ops:
        cells = [[one.part, _us(one.a_us), _us(one.b_us)] for one in found.pre_ops]
        title = "Host µs before the first launch, in the median call of each"
        yield title, _table(cells, ["part", "a", "b"], [False, True, True], github=github)


def _table(cells: list[list[str]], heads: list[str], right: list[bool], *, github: bool) -> str:
    return tabulated(cells if github else fitted(cells, heads, right), heads, right, github=github)


class _Alike(NamedTuple):
    """Pairs that are the same but for their layer: the first, how many, and the sums of both sides' medians in µs."""

    first: KernelPair
    number: int
    a_us: float
    b_us: float


def _grouped(pairs: Sequence[KernelPair], *, github: bool) -> list[list[str]]:
    """A row for the pairs of one role and one kernel on each side, those whose time differs most first."""
    groups: dict[tuple[object, ...], list[KernelPair]] = {}
    for pair in pairs:
        names = (pair.a.name if pair.a else None, pair.b.name if pair.b else None)
        groups.setdefault((pair.change, pair.role, *names), []).append(pair)
    rows = [
        _Alike(
            group[0],
            len(group),
            sum(pair.a.time_us or 0.0 for pair in group if pair.a),
            sum(pair.b.time_us or 0.0 for pair in group if pair.b),
        )
        for group in groups.values()
    ]
    rows.sort(key=lambda one: (-abs(one.b_us - one.a_us), -one.a_us - one.b_us))
    cells = []
    for one in rows[:_ROWS]:
        change, role, name, what, *_ = _cells(one.first, github=github)
        a, b = (units.plain(us) if side else ABSENT for us, side in ((one.a_us, one.first.a), (one.b_us, one.first.b)))
        cells.append([f"{one.number}x", change, role, name, what, a, b, f"{one.b_us - one.a_us:+.1f}"])
    left = rows[_ROWS:]
    if left:
        a_us, b_us = sum(one.a_us for one in left), sum(one.b_us for one in left)
        more = f"{len(left)} more rows; --all shows every kernel"
        number = f"{sum(one.number for one in left)}x"
        cells.append([number, "", "", more, "", units.plain(a_us), units.plain(b_us), f"{b_us - a_us:+.1f}"])
    return cells


def _cells(pair: KernelPair, *, github: bool) -> list[str]:
    kernel = pair.a or pair.b
    name = shorten(kernel.name) if kernel else ABSENT
    if pair.change == "changed" and pair.a and pair.b:
        name = f"{shorten(pair.a.name)} → {shorten(pair.b.name)}"
    change = "" if pair.difference_us is None else f"{pair.difference_us:+.1f}"
    shown = code(name) if github else name
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


def _counts(changes: Sequence[CountChange], most: int, *, github: bool) -> str:
    cells = [[one.name, str(one.a), str(one.b)] for one in changes[:most]]
    if len(changes) > most:
        left = changes[most:]
        more = f"{len(left)} more; --all shows them"
        cells.append([more, str(sum(one.a for one in left)), str(sum(one.b for one in left))])
    return _table(cells, ["", "a", "b"], [False, True, True], github=github)


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
