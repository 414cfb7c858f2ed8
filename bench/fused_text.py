"""Renders the results of bench/fused.py: a table of baselines for each row, and its targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fused_rows as rows
from tabulate import tabulate

from mlpfusion import units
from mlpfusion.stats import fifths

if TYPE_CHECKING:
    from collections.abc import Sequence

CLOCKS = ("event_us", "graph_us", "host_us")
PRODUCTS = "cuBLAS products alone"
QUACKS_TANH = "- quack compiles its tanh with fastmath"


def page(result: rows.Result, *, markdown: bool = False) -> str:
    """Every row with its targets."""
    planned = {one.key: one for one in rows.ROWS}
    parts = [header(result)]
    for row in result.rows:
        parts.append(row_text(row, markdown=markdown))
        targets = planned[row.key].targets if row.key in planned else ()
        if targets:
            parts.append(targets_text([rows.judge(row, target) for target in targets], markdown=markdown))
    return "\n\n".join(parts)


def header(result: rows.Result) -> str:
    """What all figures depend on."""
    here = result.environment
    versions = {"torch": here.torch, "triton": here.triton, "liger-kernel": here.liger_kernel, **result.packages}
    listed = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
    return (
        f"{result.device.name}; {listed}\nmedians in µs [20th to 80th percentile], L2 cold, baselines interleaved\n"
        "ratios: the other's time over this one's, medians of paired rounds [interval of 95% confidence]; above 1 this "
        "one is faster"
    )


def summary(result: rows.Result) -> str:
    """One line of a GitHub table for each row: graph clocks of `fused` and of the products alone, and speedups."""
    lines = []
    for row in result.rows:
        peers = {peer.name: peer for peer in row.peers if peer.median(rows.GRAPH) is not None}
        if "fused" not in peers:
            continue
        ours, spec = peers["fused"], row.workload.spec
        best = min((peers[name] for name in rows.PEERS if name in peers), key=lambda peer: peer.median(rows.GRAPH) or 0)
        what = "forward + backward" if row.workload.mode == "training" else "forward"
        lines.append(
            [
                f"{row.workload.tokens} × {spec.hidden_size} × {spec.intermediate_size}",
                f"{what}, {spec.activation}",
                _figure(ours, rows.GRAPH),
                *(
                    _figure(peers[one], rows.GRAPH) if one in peers else units.ABSENT
                    for one in (rows.PRODUCTS, "eager")
                ),
                *(_speedup(ours, peers.get(one)) for one in ("compile", "quack")),
                f"{best.name}, {_speedup(ours, best)}",
            ]
        )
    heads = [
        "M × D × H",
        "what",
        "fused µs",
        f"{PRODUCTS} µs",
        "eager µs",
        "over compile",
        "over quack",
        "over the best baseline",
    ]
    table: str = tabulate(lines, heads, tablefmt="github", disable_numparse=True)
    return table


def _speedup(ours: rows.Peer, peer: rows.Peer | None) -> str:
    found = None if peer is None or peer is ours else rows.speedup(ours, peer, rows.GRAPH)
    return units.ABSENT if found is None else units.ratio(found.median, found.low, found.high)


def row_text(row: rows.Row, *, markdown: bool = False) -> str:
    """One line for each baseline, fastest first by the graph clock; unmeasured ones last, with their reason."""
    products = next((peer for peer in row.peers if peer.name == rows.PRODUCTS), None)
    measured = [peer for peer in row.peers if peer.status == "ok"]
    measured.sort(key=lambda peer: peer.median(rows.GRAPH) or peer.median("event_us") or float("inf"))
    lines = [
        [
            shown(peer.name),
            *(_figure(peer, clock) for clock in CLOCKS),
            _speedup(peer, products),
            units.ABSENT if peer.error is None else units.times(peer.error),
            units.ABSENT if peer.saved_bytes is None else units.megabytes(peer.saved_bytes),
            units.ABSENT if peer.setup_s is None else units.seconds(peer.setup_s),
        ]
        for peer in measured
    ]
    heads = ["baseline", "event", "graph", "host", f"over {PRODUCTS} (graph)", "error / eager's", "saved", "setup"]
    table: str = tabulate(lines, heads, tablefmt="github" if markdown else "simple", disable_numparse=True)
    absent = [f"- {shown(peer.name)}: {peer.status}: {peer.reason}" for peer in row.peers if peer.status != "ok"]
    named: dict[str, list[str]] = {}
    for peer in measured:
        for figure, reason in peer.reasons.items():
            named.setdefault(f"no {figure}: {reason}", []).append(shown(peer.name))
    reasons = [f"- {reason} ({'; '.join(names)})" for reason, names in named.items()]
    tanh = row.workload.spec.activation == "gelu_tanh" and any(peer.name in rows.QUACK for peer in measured)
    notes = [*absent, *reasons, *([QUACKS_TANH] if tanh else [])]
    return "\n".join([title(row), "", table, *([""] if notes else []), *notes])


def shown(name: str) -> str:
    """A baseline's name on the page."""
    return PRODUCTS if name == rows.PRODUCTS else name


def title(row: rows.Row) -> str:
    """The row in words."""
    spec, work = row.workload.spec, row.workload
    sizes = f"M = {work.tokens}, D = {spec.hidden_size}, H = {spec.intermediate_size}"
    return f"{row.key}: {sizes}, {spec.activation}, {spec.dtype}, {work.mode}"


def targets_text(judged: Sequence[rows.Judged], *, markdown: bool = False) -> str:
    """One line for each target."""
    lines = [
        [one.target.subject, one.target.says, _bound(one.target), _reached(one), shown(one.baseline or ""), one.verdict]
        for one in judged
    ]
    heads = ["what", "target", "bound", "reached", "relative to", "verdict"]
    table: str = tabulate(lines, heads, tablefmt="github" if markdown else "simple", disable_numparse=True)
    return table


def _figure(peer: rows.Peer, clock: str) -> str:
    values = [value for value in peer.samples.get(clock, ()) if value is not None]
    median = peer.median(clock)
    low, high = fifths(values)
    if median is None:
        return units.ABSENT
    return units.plain(median) if low is None or high is None else units.with_spread(median, low, high)


def _bound(target: rows.Target) -> str:
    if target.at_least is not None:
        return f">= {target.at_least:.4g}x"
    return f"<= {target.at_most:g} µs"


def _reached(judged: rows.Judged) -> str:
    if judged.reached is None:
        return units.ABSENT
    if judged.low is not None and judged.high is not None:
        return units.ratio(judged.reached, judged.low, judged.high)
    return units.times(judged.reached) if judged.target.against else units.microseconds(judged.reached)
