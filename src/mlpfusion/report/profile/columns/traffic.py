"""The columns of a call's traffic through device memory, and of how near it comes to the roofline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion import units
from mlpfusion.report.profile import rates
from mlpfusion.report.profile.columns.column import Column
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from mlpfusion.records.profile import Row
    from mlpfusion.report.profile.columns.column import Value
    from mlpfusion.report.profile.rates import Rate


def of_traffic() -> tuple[Column, ...]:
    """The columns, from round-trips to the fraction of the roofline."""
    return (
        Column(
            "round_trips",
            "round-trips",
            "memory",
            _round_trips,
            _round_trips_data,
            "values that one kernel of the call writes to device memory and another reads back; unknown, with a lower "
            "bound, where part of the call was not observed",
            of=("round_trips", "intermediate_bytes", "scheduled"),
        ),
        Column(
            "hbm_bytes",
            "HBM MB (min / derived / measured)",
            "memory",
            _hbm,
            _hbm_data,
            "MB: if every intermediate stayed on chip / read and written by the launches, each byte once per launch / "
            "measured by hardware counters (`--counters`)",
            of=("derived_bytes", "measured_bytes", "alone_bytes"),
        ),
        Column(
            "bandwidth",
            "GB/s [p20–p80]",
            "memory",
            _rate,
            _rate_data,
            "GB/s: measured bytes, else derived bytes / `kernel_us`",
            of=("derived_bytes", "measured_bytes", "kernel_us"),
        ),
        Column(
            "of_roofline",
            "of roofline",
            "memory",
            _of_roofline,
            _of_roofline_data,
            "fraction of roofline: minimum time at measured peak rates (copies, matrix products) / kernel time",
            of=("limit_us", "kernel_us"),
        ),
    )


def _round_trips(row: Row) -> str:
    found = row.traffic
    if found is None or (found.round_trips is None and found.round_trips_at_least is None):
        return ABSENT
    return f"unknown, ≥ {found.round_trips_at_least}" if found.round_trips is None else str(found.round_trips)


def _round_trips_data(row: Row) -> dict[str, Value]:
    names = ("round_trips", "round_trips_at_least", "intermediate_bytes")
    return {name: getattr(row.traffic, name, None) for name in names}


def _hbm(row: Row) -> str:
    found = row.traffic
    if found is None:
        return ABSENT
    parts = (found.minimum_bytes, found.derived_bytes, found.measured_bytes)
    return " / ".join(ABSENT if part is None else units.plain(part / 1e6) for part in parts)


def _hbm_data(row: Row) -> dict[str, Value]:
    names = ("minimum_bytes", "derived_bytes", "measured_bytes", "alone_bytes")
    return {name: getattr(row.traffic, name, None) for name in names}


def _rate(row: Row) -> str:
    found = rates.gigabytes_per_second(row)
    if found is None or found.low is None or found.high is None:
        return ABSENT
    return units.with_spread(found.median, found.low, found.high)


def _rate_data(row: Row) -> dict[str, Value]:
    found, moved = rates.gigabytes_per_second(row), rates.moved_bytes(row)
    of = moved[1] if found is not None and moved is not None else None
    return {**_rate_fields("gigabytes_per_second", found), "gigabytes_per_second_of": of}


def _rate_fields(name: str, found: Rate | None) -> dict[str, Value]:
    return {name: found and found.median, f"{name}_p20": found and found.low, f"{name}_p80": found and found.high}


def _of_roofline(row: Row) -> str:
    found = rates.of_roofline(row)
    return ABSENT if found is None else f"{found.median:.0%}"


def _of_roofline_data(row: Row) -> dict[str, Value]:
    minimum = getattr(row.traffic, "limit_us", None)
    return {"roofline_us": minimum, **_rate_fields("of_roofline", rates.of_roofline(row))}
