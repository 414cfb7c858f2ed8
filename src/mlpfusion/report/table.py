"""A profile as tables: text for a terminal, GitHub Markdown, CSV or JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from mlpfusion import store
from mlpfusion.errors import UsageError
from mlpfusion.report import speedup, units
from mlpfusion.report.busy import disturbed
from mlpfusion.report.columns import BACKEND, CLOCKS, all_columns, clock_of, has_spread, moved_bytes, verdict
from mlpfusion.report.flow import pictures
from mlpfusion.report.grid import (
    FORMATS,
    csv_text,
    decoded_text,
    kernel_time,
    markdown,
    printable,
    shorten,
    tabulated,
    titled,
)
from mlpfusion.report.roofline import ceilings_line, roofline
from mlpfusion.report.units import ABSENT
from mlpfusion.spec import one_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records import Clock, Profile, Row
    from mlpfusion.report.columns import ClockName, Column, Group, Value

COLUMNS: Final = (BACKEND.key, *(column.key for column in all_columns()))

# Earlier names of columns, and what stands in their place.
_RENAMED: Final = {
    "vs_eager": f"'speedup_vs_eager': eager's time / the backend's, so that {speedup.DIRECTION}",
    "of_limit": "'of_roofline': minimum time at measured peak rates / kernel time",
}

_GROUPS: Final[dict[Group, str]] = {"speed": "Speed", "host": "Host", "memory": "Memory, accuracy, setup"}
_CLOCK_MEANING: Final[dict[ClockName, str]] = {
    "event_us": "device events around a plain call",
    "graph_us": "replay of a CUDA graph of the call",
    "wall_us": "host time of the call, synchronised",
    "kernel_us": "union of kernel intervals in the trace",
}
_HBM_MEANING: Final = (
    "min: weights and input read, output written; derived: what every launch reads and writes, once each; measured: "
    "hardware counters; a round-trip is a value that one kernel writes to memory and another reads back; GB/s: "
    "measured bytes, else derived ones, over kernel_us"
)


def render(profile: Profile, fmt: str = "text", columns: Sequence[str] | None = None) -> str:
    """A profile in one of `FORMATS`, with all columns or the named ones; ends with a newline.

    Raises:
        UsageError: no such format or column.
    """
    one_of("format", fmt, FORMATS)
    clock = _ratio_clock(profile)
    chosen = all_columns(clock)
    if columns is not None:
        check_columns(columns)
        chosen = tuple(column for key in columns for column in chosen if column.key == key)
    if fmt == "json" and columns is None:
        return store.encode(profile)
    if fmt in ("csv", "json"):
        data = [_flat(profile, row, chosen) for row in profile.rows]
        return csv_text(data) if fmt == "csv" else json.dumps({"rows": data}, indent=2, ensure_ascii=False) + "\n"
    return _page(profile, chosen, clock, github=fmt == "github", grouped=columns is None)


def check_columns(columns: Sequence[str]) -> None:
    """Raise a `UsageError` unless every name is a column, and none comes twice."""
    for index, key in enumerate(columns):
        if key in _RENAMED:
            raise UsageError(f"column {key!r} is now {_RENAMED[key]}")
        one_of("column", key, COLUMNS)
        if key in columns[:index]:
            raise UsageError(f"column {key!r} is given twice")


# ---- for programs ----------------------------------------------------------------------------------------------------


def _flat(profile: Profile, row: Row, columns: Iterable[Column]) -> dict[str, Value]:
    """One row as plain values; the machine and the versions travel with every line."""
    work, spec = profile.workload, profile.workload.spec
    flat: dict[str, Value] = {
        "device": profile.device.name,
        "device_kind": profile.device.kind,
        "torch": profile.environment.torch,
        "triton": profile.environment.triton,
        "created": profile.created,
        "batch": work.batch,
        "seq": work.seq,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.intermediate_size,
        "activation": spec.activation,
        "dtype": spec.dtype,
        "bias": spec.bias,
        "mode": work.mode,
        "backend": row.backend,
    }
    for column in columns:
        flat.update(column.data(row))
    return flat


# ---- for readers -----------------------------------------------------------------------------------------------------


def _page(profile: Profile, columns: Sequence[Column], clock: ClockName, *, github: bool, grouped: bool) -> str:
    blocks = [_header(profile, clock, github=github)]
    for group, title in _GROUPS.items() if grouped else [(None, "")]:
        shown = [column for column in columns if group in (None, column.group)]
        if grouped:
            shown = [column for column in shown if any(column.text(row) != ABSENT for row in profile.rows)]
        if shown or not grouped:
            table = _table(profile.rows, [BACKEND, *(c for c in shown if c.key != "backend")], github=github)
            blocks.append(titled(title, table, github=github))
    if grouped and any(row.kernels for row in profile.rows):
        blocks.append(titled("Kernels", _kernels(profile.rows, github=github), github=github))
    if grouped:
        blocks += pictures(profile.rows, github=github)
        limits = roofline(profile.rows, github=github)
        blocks += [] if limits is None else [titled("Roofline", limits, github=github)]
    notes = [" ".join(note.split()) for note in _notes(profile.rows)]
    if notes:
        blocks.append("\n".join(f"- {markdown(note)}" if github else note for note in notes))
    return printable("\n\n".join(blocks) + "\n")


def _table(rows: Sequence[Row], columns: Sequence[Column], *, github: bool) -> str:
    cells = [[column.text(row) for column in columns] for row in rows]
    return tabulated(cells, [c.head for c in columns], [c.right for c in columns], github=github)


def _header(profile: Profile, clock: ClockName, *, github: bool) -> str:
    lines = [
        ("device", _device(profile)),
        ("workload", _workload(profile)),
        ("versions", _versions(profile)),
        ("measured", profile.created),
    ]
    if not profile.complete:
        lines.append(("incomplete", "the run ended early; rows that had not finished are missing"))
    for name in CLOCKS:
        read = [found for row in profile.rows if (found := clock_of(row, name)) is not None]
        if read:
            lines.append((name, _clock_line(name, read)))
    ratios = [r.ratio_to_eager for row in profile.rows if (r := clock_of(row, clock)) and r.ratio_to_eager]
    if ratios:
        confidence = min(ratio.confidence for ratio in ratios)
        rounds = _range([ratio.n for ratio in ratios])
        lines.append(
            (
                "speedup",
                f"eager's {clock} / the backend's, median of {rounds} interleaved rounds, "
                f"[interval of {confidence:.0%} confidence]; {speedup.DIRECTION}",
            )
        )
    traced = [row.pre_ops.n for row in profile.rows if row.pre_ops is not None]
    if traced:
        calls = _range(traced)
        lines.append(
            (
                "trace",
                f"kernel times: medians of {calls} traced calls; µs to first launch, with its Dynamo and compiled "
                f"graph parts: of the median call of {calls} traced calls",
            )
        )
    if any(moved_bytes(row) for row in profile.rows):
        lines.append(("HBM", _HBM_MEANING))
    if profile.ceilings is not None:
        lines.append(
            ("roofline", f"minimum time at measured peak rates / kernel time; {ceilings_line(profile.ceilings)}")
        )
    if github:
        return "\n".join(f"- **{label}**: {markdown(text)}" for label, text in lines)
    return "\n".join(f"{label:<10}  {text}" for label, text in lines)


def _device(profile: Profile) -> str:
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


def _versions(profile: Profile) -> str:
    env = profile.environment
    found = {
        "mlpfusion": profile.mlpfusion,
        "torch": env.torch,
        "triton": env.triton,
        "liger-kernel": env.liger_kernel,
        "kernels": env.kernels,
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
    return f"{_CLOCK_MEANING[name]}, L2 {' or '.join(states)}, n = {_range([clock.n for clock in read])}{lost}"


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low}–{high}"


def _kernels(rows: Sequence[Row], *, github: bool) -> str:
    cells = [
        [
            row.backend if index == 0 else "",
            str(index + 1),
            kernel.role,
            f"`{shorten(kernel.name)}`" if github else shorten(kernel.name),
            decoded_text(kernel.decoded),
            kernel_time(kernel),
        ]
        for row in rows
        for index, kernel in enumerate(row.kernels)
    ]
    heads = ["backend", "#", "role", "kernel", "decoded", "µs [p20–p80]"]
    return tabulated(cells, heads, [False, True, False, False, False, True], github=github)


def _notes(rows: Sequence[Row]) -> Iterable[str]:
    """Everything that a cell could not say: reasons of rows, of absent numbers, and the stages' own notes."""
    for row in rows:
        word, reason = verdict(row)
        if reason is not None:
            yield f"{row.backend}: {word}: {reason.removeprefix(f'{word}: ')}"
        for note in row.notes:
            yield f"{row.backend}: {note}"
        if row.traffic is not None and row.traffic.explained is not None:
            yield f"{row.backend}: measured bytes: {row.traffic.explained}"
    yield from _disturbed(rows)
    yield from _without_spread(rows)
    absent: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if verdict(row)[0] == "emulated":
            continue  # said once for the row
        for part in (row.clocks, row.traffic, row.memory):
            for field, reason in (part.reasons if part is not None else {}).items():
                absent.setdefault((field, reason), []).append(row.backend)
    fields: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (field, reason), backends in absent.items():
        fields.setdefault((reason, tuple(backends)), []).append(field)
    for (reason, names), together in fields.items():
        yield f"{', '.join(together)}: not measured: {reason} ({', '.join(names)})"


def _disturbed(rows: Sequence[Row]) -> Iterable[str]:
    """Each race that other programs disturbed, with the rows that were in it."""
    raced: dict[float, list[str]] = {}
    for row in rows:
        if row.clocks is not None and row.clocks.neighbours is not None:
            raced.setdefault(row.clocks.neighbours, []).append(row.backend)
    for share, backends in raced.items():
        sentence = disturbed(share)
        if sentence is not None:
            yield f"{sentence} ({', '.join(backends)})"


def _without_spread(rows: Sequence[Row]) -> Iterable[str]:
    """What was measured too few times to be printed, and how often it was."""
    few: dict[tuple[str, int], list[str]] = {}
    for row in rows:
        counts: dict[str, int] = {
            name: clock.n for name in CLOCKS if (clock := clock_of(row, name)) and not has_spread(clock)
        }
        if row.bound is not None and not has_spread(row.bound):
            counts["host_us and bound"] = row.bound.n
        if any(kernel.time_us is not None and kernel_time(kernel) == ABSENT for kernel in row.kernels):
            counts["kernel times"] = row.pre_ops.n if row.pre_ops is not None else 0
        for name, n in counts.items():
            few.setdefault((name, n), []).append(row.backend)
    for (name, n), backends in few.items():
        known = f"{n} samples" if n else "the file does not tell how many samples"
        yield f"{name}: {known}; without a spread, from 20 samples on, nothing is printed ({', '.join(backends)})"


def _ratio_clock(profile: Profile) -> ClockName:
    for name in CLOCKS:
        if any((clock := clock_of(row, name)) and clock.ratio_to_eager for row in profile.rows):
            return name
    return CLOCKS[0]
