"""Renders traces as text or Markdown pages, as CSV of their kernels, or as JSON of everything."""

from __future__ import annotations

import json
import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion import units
from mlpfusion.records.profile import PreOpParts
from mlpfusion.report.grid import FORMATS, csv_text, decoded_text, markdown, middle_out, printable, tabulated, titled
from mlpfusion.spec import one_of
from mlpfusion.trace.names.shown import told_apart
from mlpfusion.trace.words import counted
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, TypeAlias

    from mlpfusion.records.profile import Kernel
    from mlpfusion.records.trace import CallAlternative, DeviceUse, Finding, Reading, Spread, Tally

    Told: TypeAlias = tuple[Reading, Sequence[Finding]]

SCHEMA: Final = 1
# More kernels than this are shown by name, with their number.
_LISTED: Final = 40
_TALLIES: Final = 8
_LABEL: Final = 12
_WIDTH: Final = 160  # of the text of a finding
_OTHERS: Final = 3
# Findings that concern less than this part of a call are named only.
_SMALL: Final = 0.01
_PARTS: Final = {
    "dynamo_cache_lookup": "Dynamo's look-up of the compiled code and its guards",
    "compiled_region_self": "the compiled region around what follows",
    "pregraph": "Dynamo's bytecode before the graph",
    "aot_prologue": "AOT's wrapper",
    "compiled_graph_entry": "entering the compiled graph",
    "autograd_function": "autograd functions",
    "triton_launcher": "Triton's launcher",
    "dispatch": "PyTorch's operators",
    "runtime": "API calls of the driver and the runtime",
    "unattributed": "in no operator and no API call: Python, mostly",
}


def render(told: Sequence[Told], fmt: str = "text") -> str:
    """Readings with their findings in one of `grid.FORMATS`; ends with a newline.

    Raises:
        UsageError: no such format.
    """
    one_of("format", fmt, FORMATS)
    if fmt == "json":
        return json.dumps(document(told), indent=1, ensure_ascii=False) + "\n"
    if fmt == "csv":
        return csv_text([line for reading, _ in told for line in _kernel_lines(reading)])
    pages = [_page(reading, findings, github=fmt == "github") for reading, findings in told]
    return printable("\n\n\n".join(pages) + "\n")


def document(told: Sequence[Told]) -> dict[str, Any]:
    """Everything, as plain values."""
    traces = [{**msgspec.to_builtins(reading), "findings": msgspec.to_builtins(findings)} for reading, findings in told]
    return {"schema": SCHEMA, "kind": "readings", "traces": traces}


def spread_text(spread: Spread | None) -> str:
    """A median with the 20th and 80th percentiles, or the lowest and highest of fewer than 20 values.

    One value is marked as such: nothing says how it varies.
    """
    if spread is None:
        return ABSENT
    if spread.n == 1:
        return f"{units.plain(spread.median)} (one call)"
    low, high = (spread.low, spread.high) if spread.p20 is None or spread.p80 is None else (spread.p20, spread.p80)
    return units.with_spread(spread.median, low, high)


def spread_meaning(n: int) -> str:
    """What the brackets of `spread_text` hold for `n` values."""
    if n == 1:
        return "of the only call"
    return f"medians of {n} calls [{'20th to 80th percentile' if n >= 20 else 'lowest to highest'}]"


# ---- a page ----------------------------------------------------------------------------------------------------------


def _page(reading: Reading, findings: Sequence[Finding], *, github: bool) -> str:
    blocks = [_header(reading, github=github)]
    blocks += [titled(title, table, github=github) for title, table in _tables(reading, github=github)]
    blocks.append(_lines(_asides(reading), github=github))
    blocks.append(_findings(findings, github=github))
    return "\n\n".join(block for block in blocks if block)


def _header(reading: Reading, *, github: bool) -> str:
    lines = [
        ("trace", reading.source),
        ("device", reading.gpu or ("a GPU that the trace does not name" if reading.device == "cuda" else "CPU")),
        ("call", f"{reading.call.name or 'the whole trace'}, {reading.call.count} of them: {reading.call.reason}"),
        *([("others", _others(reading.call.others))] if reading.call.others else []),
        ("figures", f"{spread_meaning(reading.analysis.calls)}, in µs, with the profiler on"),
    ]
    if reading.left_out:
        lines.append(("left out", _left_out(reading)))
    if reading.incomplete:
        lines.append(("incomplete", f"{reading.incomplete}; no averages are shown"))
    else:
        lines += _times(reading)
    lines.append(("launches", _launches(reading)))
    lines += [("graph", text) for text in _graphs(reading)]
    if github:
        return "\n".join(f"- **{label}**: {markdown(text)}" for label, text in lines)
    return "\n".join(f"{label:<{_LABEL}}{text}" for label, text in lines)


def _others(others: Sequence[CallAlternative]) -> str:
    """What else could delimit a call, and how to say so."""
    listed = [f"{middle_out(one.name)!r} ({one.count} of them, {_percent(one.share)} of the work)" for one in others]
    left = len(listed) - _OTHERS
    more = f" and {left} more" if left > 0 else ""
    return f"{', '.join(listed[:_OTHERS])}{more} could delimit a call; --call NAME takes it"


def _left_out(reading: Reading) -> str:
    """The calls that are in no figure, and why."""
    shown = []
    for odd in reading.odd_calls[:_OTHERS]:
        reasons = [
            f"{odd.missing} launch{'es' * (odd.missing > 1)} without device event" if odd.missing else "",
            f"lost {odd.lost} of {odd.usual_work} kernels, copies and fills" if odd.lost else "",
            f"{odd.damaged} time{'s' * (odd.damaged > 1)} that cannot be" if odd.damaged else "",
        ]
        other = f"{odd.work} kernels, copies and fills, the others {odd.usual_work}"
        if odd.work == odd.usual_work:
            other = "other kernels"
        reason = ", ".join(text for text in reasons if text) or (other if odd.work else "no device work")
        shown.append(f"{middle_out(odd.name)} (number {odd.index + 1}: {reason})")
    left = reading.left_out - len(shown)
    return ", ".join(shown) + (f" and {left} more" if left else "")


def _percent(share: float) -> str:
    return "below 0.1%" if share < 0.001 else f"{share:.1%}"


def _times(reading: Reading) -> Iterable[tuple[str, str]]:
    yield "host", _a_call(reading.host_spread)
    busy = _a_call(reading.device_spread)
    yield ("device", f"{busy} in which its own work ran") if reading.device == "cuda" else ("operators", busy)
    if reading.device_use is not None:
        yield "occupied", _occupied(reading.device_use)
    first = reading.first_call
    if first is not None:
        yield (
            "first call",
            f"host {units.plain(first.host_us)} µs, the others {units.plain(first.rest_host_us)}; "
            f"device {units.plain(first.kernel_us)} µs, the others {units.plain(first.rest_kernel_us)}",
        )


def _occupied(use: DeviceUse) -> str:
    """`51% by its own work, 0% by other work, 0% by work without a launch; idle 49% (42% …) of 900 µs`."""
    of = use.length_us or 1.0
    causes = (
        (use.working_us, "while the host works"),
        (use.waiting_us + use.final_wait_us, "while it waits"),
        (use.launched_us, "until launched work starts"),
    )
    idle = ", ".join(f"{us / of:.0%} {what}" for us, what in causes if us)
    return (
        f"{use.own_us / of:.0%} by its own work, {use.others_us / of:.0%} by other work, {use.orphans_us / of:.0%} by "
        f"work without a launch; idle {use.idle_us / of:.0%}{f' ({idle})' if idle else ''} of {units.plain(of)} µs"
    )


def _a_call(spread: Spread | None) -> str:
    if spread is not None and spread.n == 1:
        return f"{units.plain(spread.median)} µs in one call"
    return f"{spread_text(spread)} µs a call"


def _launches(reading: Reading) -> str:
    launches = reading.analysis.launches
    counts = ((launches.kernels, "kernel"), (launches.memcpys, "copy"), (launches.memsets, "fill"))
    ran = ", ".join(counted(count, noun) for count, noun in counts)
    if reading.device == "cpu":
        return f"operators and compiled kernels that compute: {launches.kernels}"
    if not launches.runtime_launches:
        return f"{ran} on the device; the trace has no API calls"
    by_api = ", ".join(f"{count} {api}" for api, count in launches.runtime_launches.items())
    return (
        f"{sum(launches.runtime_launches.values())} by the host ({by_api}); {ran} on the device; "
        f"{counted(launches.occupancy_queries, 'occupancy query')}, {counted(launches.syncs, 'synchronisation')}"
    )


def _graphs(reading: Reading) -> Iterable[str]:
    for graph in reading.graphs:
        yield (
            f"{graph.launches} {graph.api} ran {counted(graph.kernels, 'kernel')}, {counted(graph.memcpys, 'copy')}, "
            f"{counted(graph.memsets, 'fill')} (conditional parts are counted once)"
        )


def _tables(reading: Reading, *, github: bool) -> Iterable[tuple[str, str]]:
    kernels = reading.analysis.kernels
    if len(kernels) > _LISTED:
        yield f"Kernels by name ({len(kernels)} a call)", _by_name(reading, github=github)
    elif kernels:
        yield "Kernels", _in_order(reading, github=github)
    pre_ops = _pre_ops(reading, github=github)
    if pre_ops:
        yield pre_ops
    if len(reading.streams) > 1:
        cells = [[one.device, one.stream, str(one.events), units.plain(one.busy_us)] for one in reading.streams]
        heads = ["device", "stream", "events", "busy µs"]
        yield "Streams", tabulated(cells, heads, [False, False, True, True], github=github)


def _in_order(reading: Reading, *, github: bool) -> str:
    names = _names(reading.analysis.kernels)
    cells = [
        [
            str(index),
            kernel.role,
            _code(names[kernel.name], github=github),
            decoded_text(kernel.decoded),
            kernel.op or ABSENT,
            kernel.launched_by or ABSENT,
            time,
        ]
        for index, (kernel, time) in enumerate(zip(reading.analysis.kernels, _kernel_times(reading), strict=True), 1)
    ]
    heads = ["#", "role", "kernel", "decoded", "operator", "launched by", "µs"]
    return tabulated(cells, heads, [True, False, False, False, False, False, True], github=github)


def _by_name(reading: Reading, *, github: bool) -> str:
    kernels = reading.analysis.kernels
    counts = Counter(kernel.name for kernel in kernels)
    totals: Counter[str] = Counter()
    first: dict[str, Kernel] = {}
    for kernel in kernels:
        totals[kernel.name] += kernel.time_us or 0.0  # type: ignore[assignment]
        first.setdefault(kernel.name, kernel)
    shown = sorted(counts, key=lambda name: -totals[name])[:_LISTED]
    names = _names([first[name] for name in shown])
    cells = [
        [
            str(counts[name]),
            _code(names[name], github=github),
            decoded_text(first[name].decoded),
            ABSENT if reading.incomplete else units.plain(totals[name]),
        ]
        for name in shown
    ]
    left = len(counts) - len(shown)
    if left:
        cells.append(["", f"and {left} more names; --json has them all", "", ""])
    heads = ["number", "kernel", "decoded", "µs in all, of medians"]
    return tabulated(cells, heads, [True, False, False, True], github=github)


def _kernel_times(reading: Reading) -> list[str]:
    kernels = reading.analysis.kernels
    if reading.incomplete:
        return [ABSENT] * len(kernels)
    if len(reading.kernel_spread) == len(kernels):
        return [spread_text(spread) for spread in reading.kernel_spread]
    return [_kernel_time(kernel) for kernel in kernels]


def _kernel_time(kernel: Kernel) -> str:
    """Its median where the percentiles are known as well."""
    if kernel.time_us is None or kernel.p20_us is None or kernel.p80_us is None:
        return ABSENT
    return units.with_spread(kernel.time_us, kernel.p20_us, kernel.p80_us)


def _names(kernels: Sequence[Kernel]) -> dict[str, str]:
    """By name what is shown of it in a table that has what is decoded beside it."""
    return told_apart((one.name for one in kernels), {one.name: decoded_text(one.decoded) for one in kernels})


def _code(name: str, *, github: bool) -> str:
    return f"`{middle_out(name)}`" if github else middle_out(name)


def _pre_ops(reading: Reading, *, github: bool) -> tuple[str, str] | None:
    found = reading.analysis.pre_ops
    if found.time_to_first_launch is None or reading.pre_ops_reason is not None:
        return None
    first = f" ({found.first_launch})" if found.first_launch else ""
    what = "launch" if reading.device == "cuda" else "operator that computes"
    title = (
        f"Host µs before the first {what}{first}: {units.plain(found.time_to_first_launch)}, "
        f"the parts of the median call (n = {found.n})"
    )
    if found.time_to_first_kernel is not None and reading.device == "cuda":
        title += f"; before the first kernel {units.plain(found.time_to_first_kernel)}"
    between = found.between_launches
    cells = [
        [name, _PARTS[name], _part(found, name), _part(between, name)]
        for name in PreOpParts.__struct_fields__
        if _part(found, name) != ABSENT
    ]
    heads = ["part", "what it is", "before the first", "between launches"]
    return title, tabulated(cells, heads, [False, False, True, True], github=github)


def _part(parts: PreOpParts | None, name: str) -> str:
    value = getattr(parts, name, None)
    return ABSENT if value is None else units.plain(value)


# ---- below the tables ------------------------------------------------------------------------------------------------


def _asides(reading: Reading) -> Iterable[str]:
    """Rare content: faults, notes, damage, and work outside the calls."""
    for fault in reading.analysis.faults:
        yield f"fault: {fault}"
    for note in reading.notes:
        yield f"note: {note}"
    if reading.pre_ops_reason is not None:
        yield f"time before the first launch: not known: {reading.pre_ops_reason}"
    for region in reading.regions if len(reading.regions) > 1 else ():
        yield f"compiled region {region.id}: {region.calls} calls, from number {region.first} to {region.last}"
    for what, tallies in (
        ("the profiler's own, in calls", reading.overhead),
        ("compiling, in calls", reading.compiling),
        ("on the device, launched outside the calls", reading.between_calls),
    ):
        if tallies:
            yield f"{what}: {_tallied(tallies)}"
    for damage in reading.integrity.damage:
        yield f"damage at byte {damage.offset}: {damage.what}: {damage.reason}"


def _tallied(tallies: Sequence[Tally]) -> str:
    names = told_apart(one.name for one in tallies[:_TALLIES])
    shown = [
        f"{one.count}x {middle_out(names[one.name])} ({units.microseconds(one.total_us)})" for one in tallies[:_TALLIES]
    ]
    return ", ".join(shown) + (f" and {len(tallies) - _TALLIES} more" if len(tallies) > _TALLIES else "")


def _lines(lines: Iterable[str], *, github: bool) -> str:
    return "\n".join(f"- {markdown(line)}" if github else line for line in lines)


def _findings(findings: Sequence[Finding], *, github: bool) -> str:
    """The findings, those that concern less than `_SMALL` of a call in one line together."""
    if not findings:
        return ""
    large = [one for one in findings if one.share >= _SMALL]
    small = [one for one in findings if one.share < _SMALL]
    told = [_finding(one, github=github) for one in large]
    if small:
        listed = ", ".join(f"{one.id} ({units.microseconds(one.cost_us)})" for one in small)
        text = f"below {_SMALL:.0%} of a call each: {listed}"
        told.append(f"- {markdown(text)}" if github else text)
    return titled("Findings", "\n".join(told), github=github)


def _finding(one: Finding, *, github: bool) -> str:
    weight = f"{units.microseconds(one.cost_us)} a call, {one.share:.0%}"
    if github:
        texts = (markdown(text) for text in (one.seen, one.means, one.do))
        return "- **{}** ({}): {}. *Means*: {}. *Do*: {}.".format(one.id, weight, *texts)
    labelled = (("observed", one.seen), ("means", one.means), ("do", one.do))
    told = [_wrapped(f"  {label:<{_LABEL - 2}}{text}") for label, text in labelled]
    return "\n".join([f"{one.id}: {weight}", *told])


def _wrapped(line: str) -> str:
    """A line of a finding, and where it is long, more that begin below its text."""
    indent = " " * _LABEL
    return "\n".join(textwrap.wrap(line, _WIDTH, subsequent_indent=indent, drop_whitespace=True))


# ---- for programs ----------------------------------------------------------------------------------------------------


def _kernel_lines(reading: Reading) -> Iterable[dict[str, object]]:
    """One line for each kernel of a call; the trace, the device and the call travel with it."""
    spreads = reading.kernel_spread
    for index, kernel in enumerate(reading.analysis.kernels):
        spread = spreads[index] if index < len(spreads) and not reading.incomplete else None
        decoded = kernel.decoded
        yield {
            "source": reading.source,
            "device": reading.gpu or reading.device,
            "call": reading.call.name,
            "calls": reading.analysis.calls,
            "number": index + 1,
            "role": kernel.role,
            "name": kernel.name,
            "kind": decoded.kind,
            "library": decoded.library,
            "arch": decoded.arch,
            "dtype": decoded.dtype,
            "tile": decoded.tile,
            "stages": decoded.stages,
            "layout": decoded.layout,
            "fused_ops": "+".join(decoded.fused_ops),
            "operator": kernel.op,
            "launched_by": kernel.launched_by,
            "n": spread.n if spread else None,
            "time_us": spread.median if spread else None,
            "low_us": spread.low if spread else None,
            "high_us": spread.high if spread else None,
            "p20_us": spread.p20 if spread else None,
            "p80_us": spread.p80 if spread else None,
            "incomplete": reading.incomplete,
        }
