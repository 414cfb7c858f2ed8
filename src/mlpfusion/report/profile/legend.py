"""Explains a profile's tables: where and how it was measured, and the terms of the columns shown."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from mlpfusion import units
from mlpfusion.report import speedup
from mlpfusion.report.profile.columns.clocks import CLOCKS, clock_of
from mlpfusion.report.profile.columns.every import is_shown
from mlpfusion.report.profile.rates import moved_bytes
from mlpfusion.report.profile.roofline import ceilings_line
from mlpfusion.storage.letters import markdown

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from mlpfusion.records.clocks import Clock
    from mlpfusion.records.profile import Profile
    from mlpfusion.report.profile.columns.clocks import ClockName

WIDTH: Final = 120  # of a line of text
LABEL: Final = len("unavailable")  # the longest word that begins a line

CLOCK_MEANING: Final[dict[ClockName, str]] = {
    "event_us": "device events around a plain call",
    "graph_us": "replay of a CUDA graph of the call",
    "wall_us": "host time of the call, synchronised",
    "kernel_us": "union of kernel intervals in the trace",
}
_HBM_MEANING: Final = {
    "hbm_bytes": "min: weights and input read, output written; derived: what every launch reads and writes, once each; "
    "measured: hardware counters",
    "round_trips": "a round-trip is a value that one kernel writes to memory and another reads back",
    "bandwidth": "GB/s: measured bytes, else derived ones, over kernel_us",
}
_HOST_PARTS: Final = {
    "first_launch_us": "µs to first launch",
    "dynamo_us": "its Dynamo part",
    "compiled_graph_us": "its compiled graph part",
}


def legend(profile: Profile, clock: ClockName, shown: Collection[str], *, github: bool, kernels: bool = False) -> str:
    """The machine, the workload and the terms of the columns `shown`; `kernels`: kernel times are listed as well."""
    lines = [
        ("device", device_line(profile)),
        ("workload", _workload(profile)),
        ("versions", versions_line(profile)),
        ("measured", profile.created),
    ]
    if not profile.complete:
        lines.append(("incomplete", "the run ended early; rows that had not finished are missing"))
    lines += _terms(profile, clock, shown, kernels=kernels)
    if github:
        return "\n".join(f"- **{markdown(label)}**: {markdown(text)}" for label, text in lines)
    return "\n".join(wrapped(label, text) for label, text in lines)


def wrapped(label: str, text: str) -> str:
    """A line of at most `WIDTH` columns, or several that are indented below the first."""
    return textwrap.fill(
        f"{label:<{LABEL}}  {text}",
        WIDTH,
        subsequent_indent=" " * (LABEL + 2),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _terms(profile: Profile, clock: ClockName, shown: Collection[str], *, kernels: bool) -> Iterator[tuple[str, str]]:
    for name in CLOCKS:
        read = [found for row in profile.rows if (found := clock_of(row, name)) is not None]
        if read and (is_shown(name, shown) or (name == clock and "speedup_vs_eager" in shown)):
            yield name, _clock_line(name, read)
    ratios = [r.ratio_to_eager for row in profile.rows if (r := clock_of(row, clock)) and r.ratio_to_eager]
    if ratios and "speedup_vs_eager" in shown:
        confidence = min(ratio.confidence for ratio in ratios)
        rounds = _range([ratio.n for ratio in ratios])
        several = len(profile.processes) > 1
        over = f"mean of the medians of {len(profile.processes)} processes, " if several else "median of "
        yield (
            "speedup",
            f"eager's {clock} / the backend's, {over}{rounds} interleaved rounds{' in all' if several else ''}, "
            f"[interval of {confidence:.0%} confidence]; {speedup.DIRECTION}",
        )
    if profile.itself:
        yield "A/A", _itself(profile, clock)
    traced = [row.pre_ops.n for row in profile.rows if row.pre_ops is not None]
    if traced and (said := _traced(_range(traced), shown, kernels=kernels)):
        yield "trace", said
    bytes_said = "; ".join(meaning for key, meaning in _HBM_MEANING.items() if key in shown)
    if bytes_said and any(moved_bytes(row) for row in profile.rows):
        yield "HBM", bytes_said
    if "error" in shown and any(row.accuracy is not None for row in profile.rows):
        yield "error", "largest / rms error against fp64, each over eager's own in the same dtype"
    if profile.ceilings is not None and "of_roofline" in shown:
        yield (
            "roofline",
            "fraction of roofline: minimum time at measured peak rates / kernel time; "
            + ceilings_line(profile.ceilings),
        )


def _itself(profile: Profile, clock: ClockName) -> str:
    """How far the file can be trusted: what comparing its processes with each other finds where nothing differs."""
    rows = [row for row in profile.itself if row.clock == clock] or profile.itself
    spreads = [row.spread for row in rows]
    vary = (
        f"between processes {rows[0].clock} varies by {min(spreads):.2%} to {max(spreads):.2%} (standard deviation, "
        "beside eager's)"
    )
    judged = [row for row in rows if row.splits] or [row for row in profile.itself if row.splits]
    if not judged:
        return vary
    alarms, splits = sum(row.alarms for row in judged), sum(row.splits for row in judged)
    clocks = " and ".join(dict.fromkeys(row.clock for row in judged))
    return (
        f"{vary}; half of them against the others by {clocks}: {alarms} of {splits} splits get a verdict, a false one"
    )


def _traced(calls: str, shown: Collection[str], *, kernels: bool) -> str:
    parts = [name for key, name in _HOST_PARTS.items() if key in shown]
    said = [f"kernel times: medians of {calls} traced calls"] * kernels
    said += [f"{', '.join(parts)}: of the median call of {calls} traced calls"] * bool(parts)
    return "; ".join(said)


def device_line(profile: Profile) -> str:
    """The device and what is known of it."""
    device, env = profile.device, profile.environment
    cpu = device.kind == "cpu"
    facts = [f"CPU run on {device.name}" if cpu else device.name]
    if device.capability is not None:
        facts.append("sm_{}{}".format(*device.capability) if device.runtime == "cuda" else device.runtime)
    if device.multiprocessors is not None:
        facts.append(f"{device.multiprocessors} {'cores' if cpu else 'multiprocessors'}")
    if device.memory_bytes is not None:
        facts.append(f"{units.mebibytes(device.memory_bytes)} memory")
    if device.l2_bytes is not None:
        facts.append(f"{units.mebibytes(device.l2_bytes)} L2")
    if env.sm_clock_mhz is not None:
        facts.append(f"SM clock {env.sm_clock_mhz} MHz")
    if env.memory_clock_mhz is not None:
        facts.append(f"memory clock {env.memory_clock_mhz} MHz")
    if (peaks := device.peaks) is not None:
        rates = f"{units.teraflops(peaks.flops_16bit)}, {units.gigabytes_per_second(peaks.bandwidth)}"
        facts.append(f"peaks {rates} ({peaks.source})")
    return ", ".join(facts)


def _workload(profile: Profile) -> str:
    work, spec = profile.workload, profile.workload.spec
    return (
        f"batch {work.batch} × seq {work.seq} = {work.tokens} tokens, hidden_size {spec.hidden_size}, "
        f"intermediate_size {spec.intermediate_size}, {spec.activation}, {spec.dtype}, "
        f"{'bias' if spec.bias else 'no bias'}, {work.mode}"
    )


def versions_line(profile: Profile) -> str:
    """The versions of all that stands behind the rows, and the flags."""
    env = profile.environment
    found = {
        "mlpfusion": profile.mlpfusion,
        "torch": env.torch,
        "triton": env.triton,
        "liger-kernel": env.liger_kernel,
        "kernels": env.kernels,
        **{name: there for name, there in env.distributions.items() if name not in ("mlpfusion", "torch", "triton")},
        "CUDA": env.cuda,
        "driver": env.driver,
        "Python": env.python,
        "on": env.platform,
        "float32_matmul_precision": env.float32_matmul_precision,
        **dict(sorted(env.flags.items())),
    }
    return ", ".join(f"{name} {value}" for name, value in found.items() if value is not None)


def _clock_line(name: ClockName, read: Sequence[Clock]) -> str:
    states = sorted({clock.l2 for clock in read})
    dropped = sum(clock.dropped for clock in read)
    lost = f", {dropped} dropped" if dropped else ""
    return f"{CLOCK_MEANING[name]}, L2 {' or '.join(states)}, n = {_range([clock.n for clock in read])}{lost}"


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low}–{high}"
