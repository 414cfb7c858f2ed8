"""What stands above the tables of a reading: the trace, its device and calls, their times and launches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion import units
from mlpfusion.report.grid import folded, middle_out
from mlpfusion.report.trace.breakdown import breakdown_lines
from mlpfusion.report.trace.spreads import a_call, spread_meaning
from mlpfusion.storage.letters import markdown
from mlpfusion.trace.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records.trace import CallAlternative, DeviceUse, Reading

LABEL: Final = 12  # letters before a text
_OTHERS: Final = 3


def header(reading: Reading, *, github: bool) -> str:
    """A line for each, with a label before it."""
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
        lines += _breakdown(reading)
        lines += _times(reading)
    lines.append(("launches", _launches(reading)))
    lines += [("graph", text) for text in _graphs(reading)]
    if github:
        return "\n".join(f"- **{markdown(label)}**: {markdown(text)}" for label, text in lines)
    return "\n".join(folded(f"{label:<{LABEL}}{text}", LABEL) for label, text in lines)


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


def _breakdown(reading: Reading) -> Iterable[tuple[str, str]]:
    if reading.breakdown is not None:
        yield from breakdown_lines(reading.breakdown, "step" if reading.call.by == "profiler_step" else "call")


def _times(reading: Reading) -> Iterable[tuple[str, str]]:
    yield "host", a_call(reading.host_spread)
    busy = a_call(reading.device_spread)
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
    """`51% by its own work, 0% by other work, 0% by work without a launch; idle 49% of 900 µs`."""
    of = use.length_us or 1.0
    return (
        f"{use.own_us / of:.0%} by its own work, {use.others_us / of:.0%} by other work, {use.orphans_us / of:.0%} by "
        f"work without a launch; idle {use.idle_us / of:.0%} of {units.plain(of)} µs"
    )


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
