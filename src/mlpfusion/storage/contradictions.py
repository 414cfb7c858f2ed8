"""Checks a profile that is compared or tabulated for figures that its other parts contradict, as after an edit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from mlpfusion import stats
from mlpfusion.errors import UsageError
from mlpfusion.storage import inputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlpfusion.records.clocks import Clock
    from mlpfusion.records.profile import Profile, Row, Traffic
    from mlpfusion.records.traffic import Role
    from mlpfusion.spec import Workload

_CLOCKS: Final = ("wall_us", "event_us", "kernel_us", "graph_us")
_PRODUCTS: Final[dict[Role | None, int]] = {"gate_gemm": 1, "up_gemm": 1, "down_gemm": 1, "gate_up_gemm": 2}
_ROUNDED: Final = 0.01  # relative, of figures that a file may have rounded
_ALIKE: Final = 1e-6  # relative, of figures that were computed from each other


def check(found: Profile, file: str) -> None:
    """Raise a UsageError that names the first contradiction in a profile that was read from a file, with its place."""
    said = first(found, file)
    if said is not None:
        raise UsageError(said)


def first(found: Profile, file: str) -> str | None:
    """The first contradiction in a profile that was read from a file, with its place; None if there is none."""
    said = next(of_profile(found), None)
    shown = "stdin" if inputs.is_stdin(file) else repr(file)
    return None if said is None else f"{shown} is a damaged profile: {said.replace('at `.', 'at `$.')}"


def of_profile(found: Profile) -> Iterator[str]:
    """Every contradiction between a profile's workload and its rows, and between a row and its own parts."""
    if found.ceilings is not None and found.ceilings.dtype != found.workload.spec.dtype:
        yield f"{found.ceilings.dtype} where the workload is {found.workload.spec.dtype} - at `.ceilings.dtype`"
    for place, row in enumerate(found.rows):
        for said in _of_row(row, found):
            yield said.replace("at `.", f"at `.rows[{place}].")
    names = {row.backend for row in found.rows}
    for place, process in enumerate(found.processes):
        for name in process.kernels:
            if name not in names:
                yield f"there is no row {name!r} - at `.processes[{place}].kernels`"


def _of_row(row: Row, profile: Profile) -> Iterator[str]:
    asked = profile.workload.tokens
    tokens = asked if row.tokens is None else row.tokens
    if tokens > asked or (tokens != asked and not row.emulated):
        yield f"{tokens} where the workload has {asked} - at `.tokens`"
        return
    if row.launches is not None:  # a copy may be a kernel, and a fill may be named or not
        counted = row.launches.kernels + row.launches.memcpys + row.launches.memsets
        if counted < len(row.kernels):
            yield f"{counted} with its copies and fills where its row names {len(row.kernels)} - at `.launches.kernels`"
    if row.traffic is not None and not row.emulated:
        yield from _of_traffic(row, row.traffic, profile.workload, tokens)
    yield from _of_bound(row)
    yield from _of_clocks(row, profile)


def _of_traffic(row: Row, found: Traffic, workload: Workload, tokens: int) -> Iterator[str]:
    if found.steps and found.derived_bytes is not None:
        for name, said, is_so in (
            ("derived_bytes", found.derived_bytes, sum(step.bytes for step in found.steps)),
            ("round_trips", found.round_trips, len(found.intermediates)),
            ("intermediate_bytes", found.intermediate_bytes, sum(each.moved_bytes for each in found.intermediates)),
        ):
            if said is not None and said != is_so:
                yield f"{said} where its steps and intermediates have {is_so} - at `.traffic.{name}`"
    product = 2 * tokens * workload.spec.hidden_size * workload.spec.intermediate_size
    for place, step in enumerate(found.steps):
        flops = product * _PRODUCTS.get(step.role, 0)
        if flops and step.flops not in (None, flops):
            where = f"at `.traffic.steps[{place}].flops`"
            yield f"{step.flops} where a {step.role} of {tokens} tokens has {flops} - {where}"
        times = [row.kernels[index].time_us for index in step.kernels if index < len(row.kernels)]
        if step.time_us is not None and times and None not in times:
            total = math.fsum(time for time in times if time is not None)
            if not math.isclose(step.time_us, total, rel_tol=_ALIKE, abs_tol=_ALIKE):
                yield f"{step.time_us} where its kernels take {total} - at `.traffic.steps[{place}].time_us`"


def _of_bound(row: Row) -> Iterator[str]:
    found = row.bound
    if found is None:
        return
    by = "cpu" if found.host_us > found.device_us else "gpu"
    if found.by != by and found.host_us != found.device_us:
        yield f"{found.by!r} where the host takes {found.host_us} and the device {found.device_us} - at `.bound.by`"
    margin = max(found.host_us, found.device_us) / min(found.host_us, found.device_us)
    if not math.isclose(found.margin, margin, rel_tol=_ROUNDED):
        yield f"{found.margin} where host and device are {margin} apart - at `.bound.margin`"


def _of_clocks(row: Row, profile: Profile) -> Iterator[str]:
    """Where a percentile or a ratio is not that of the rounds that the clocks keep."""
    for name in _CLOCKS if row.clocks is not None else ():
        clock: Clock | None = getattr(row.clocks, name)
        if clock is None or not clock.rounds:
            continue
        kept = sorted(clock.samples)
        for field, share in (("p20", 0.2), ("p80", 0.8)):
            value, place = getattr(clock, field), share * (len(kept) - 1)
            # There are many ways to interpolate, which differ by one place at most.
            low, high = kept[max(0, math.floor(place) - 1)], kept[min(len(kept) - 1, math.ceil(place) + 1)]
            if value is not None and not low * (1 - _ALIKE) <= value <= high * (1 + _ALIKE):
                yield f"{value} where that of its rounds is from {low} to {high} - at `.clocks.{name}.{field}`"
        said = clock.ratio_to_eager
        base = next((each for each in profile.rows if said is not None and each.backend == said.baseline), None)
        other: Clock | None = None if base is None or base.clocks is None else getattr(base.clocks, name)
        found = None if other is None or said is None else stats.paired(clock, other, said.baseline)
        for field in ("median", "low", "high") if found is not None else ():
            was, is_so = getattr(said, field), getattr(found, field)
            if not math.isclose(was, is_so, rel_tol=_ALIKE):
                yield f"{was} where its rounds give {is_so} - at `.clocks.{name}.ratio_to_eager.{field}`"
