"""The columns of the host's side of a call: launches, host time, what bounds the call, and what precedes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion import units
from mlpfusion.report.profile.columns.clocks import has_spread, of_clock
from mlpfusion.report.profile.columns.column import Column, number
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.records.profile import PreOps, Row
    from mlpfusion.report.profile.columns.column import Value


def of_host() -> tuple[Column, ...]:
    """The columns, from the time in which kernels ran to the parts of the host's time before the first."""
    return (
        of_clock(
            "kernel_us",
            "kernel µs [p20–p80]",
            "host",
            "µs in which at least one kernel of the call ran, from the trace",
        ),
        Column(
            "launches", "launches", "host", _launches, _launches_data, "API calls of one call that launch device work"
        ),
        Column(
            "host_us",
            "host µs [p20–p80]",
            "host",
            _host,
            _host_data,
            "µs that the host needs to issue a call, untraced",
            disturbed=True,
        ),
        Column(
            "bound",
            "bound by",
            "host",
            _bound,
            _bound_data,
            "what limits the call, the host (`cpu`) or the device (`gpu`), and the longer time / the shorter",
            disturbed=True,
        ),
        _pre_op(
            "first_launch_us",
            "µs to first launch",
            lambda pre: pre.time_to_first_launch,
            "µs from the start of the call to its first launch, of the median traced call",
        ),
        _pre_op(
            "dynamo_us",
            "Dynamo lookup µs",
            lambda pre: pre.dynamo_cache_lookup,
            "of these, Dynamo's lookup of the compiled code and its guards",
        ),
        _pre_op(
            "compiled_graph_us",
            "compiled graph µs",
            lambda pre: pre.compiled_graph_entry,
            "of these, entering the compiled graph",
        ),
    )


def _launches(row: Row) -> str:
    return ABSENT if row.launches is None else str(sum(row.launches.runtime_launches.values()))


def _launches_data(row: Row) -> dict[str, Value]:
    launches = row.launches
    if launches is None:
        return dict.fromkeys(("launches", "launch_apis", "occupancy_queries", "syncs"))
    counts = sorted(launches.runtime_launches.items())
    return {
        "launches": sum(launches.runtime_launches.values()),
        "launch_apis": " ".join(f"{name}={count}" for name, count in counts),
        "occupancy_queries": launches.occupancy_queries,
        "syncs": launches.syncs,
    }


def _host(row: Row) -> str:
    bound = row.bound
    if bound is None or bound.host_p20_us is None or bound.host_p80_us is None:
        return ABSENT
    return units.with_spread(bound.host_us, bound.host_p20_us, bound.host_p80_us)


def _host_data(row: Row) -> dict[str, Value]:
    bound = row.bound
    return {
        "host_us": bound.host_us if bound else None,
        "host_us_p20": bound.host_p20_us if bound else None,
        "host_us_p80": bound.host_p80_us if bound else None,
        "host_us_n": bound.n if bound else None,
    }


def _bound(row: Row) -> str:
    if row.bound is None or not has_spread(row.bound):
        return ABSENT
    return f"{row.bound.by} {units.times(row.bound.margin)}"


def _bound_data(row: Row) -> dict[str, Value]:
    bound = row.bound
    return {"bound": bound.by if bound else None, "bound_margin": bound.margin if bound else None}


def _pre_op(key: str, head: str, part: Callable[[PreOps], float | None], meaning: str) -> Column:
    return number(key, head, "host", lambda row: None if row.pre_ops is None else part(row.pre_ops), meaning)
