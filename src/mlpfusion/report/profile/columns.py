"""Defines the columns of a profile's tables: name, meaning, and a row's value as text and in full precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from mlpfusion import units
from mlpfusion.records.clocks import Bound
from mlpfusion.records.profile import BASELINE
from mlpfusion.report import speedup
from mlpfusion.report.profile import rates
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from mlpfusion.records.clocks import Clock
    from mlpfusion.records.profile import PreOps, Row
    from mlpfusion.report.profile.rates import Rate

Value = str | int | float | bool | None
Group = Literal["speed", "host", "memory"]
ClockName = Literal["event_us", "graph_us", "wall_us", "kernel_us"]

# In this order: the first clock of which a table has ratios is the one that its `speedup_vs_eager` shows.
CLOCKS: Final[tuple[ClockName, ...]] = ("event_us", "wall_us", "graph_us", "kernel_us")


class Column(NamedTuple):
    """One column: its name for `--columns`, its heading, its table, a row's text and data, and what it means.

    `of` are the fields of the row's clocks, traffic and memory that it shows, which may be absent for a reason.
    `disturbed`: background load of the host changes it.
    """

    key: str
    head: str
    group: Group
    text: Callable[[Row], str]
    data: Callable[[Row], dict[str, Value]]
    meaning: str
    right: bool = True
    of: tuple[str, ...] = ()
    disturbed: bool = False


def verdict(row: Row) -> tuple[str, str | None]:
    """The word for a row (ok, emulated, unavailable or failed) and the reason that goes with it."""
    if row.status != "ok":
        return row.status, row.reason or "no reason was recorded"
    if row.emulated:
        return "emulated", row.reason or "computed by Triton's interpreter: right, but not timed"
    return "ok", row.reason


def clock_of(row: Row, name: ClockName) -> Clock | None:
    """One clock of a row, if it was read."""
    clock: Clock | None = getattr(row.clocks, name, None)
    return clock


def has_spread(found: Clock | Bound) -> bool:
    """Whether a clock or the host's time has what a printed number needs; percentiles exist from 20 samples on."""
    if isinstance(found, Bound):
        return found.host_p20_us is not None and found.host_p80_us is not None
    return found.p20 is not None and found.p80 is not None


def tokens_of(row: Row) -> str:
    """`16 tokens`: how many a row's call had."""
    return "an unknown number of tokens" if row.tokens is None else f"{row.tokens} tokens"


def status(row: Row) -> str:
    """A row's word; that of an emulated row says how many tokens ran."""
    word, _ = verdict(row)
    return f"{word}, {tokens_of(row)}" if row.emulated else word


def label(row: Row) -> str:
    """Heads a row's own part of a page: its backend and, if it was emulated, how many tokens ran."""
    return f"{row.backend} ({tokens_of(row)})" if row.emulated else row.backend


def cell(column: Column, row: Row) -> str:
    """A row's cell as text; that of an emulated row says how many tokens ran, as the others ran all of the workload."""
    text = column.text(row)
    if not row.emulated or column.key in (BACKEND.key, "status"):
        return text
    if text == ABSENT:
        return f"emulated, {tokens_of(row)}" if column.key in (*CLOCKS, "speedup_vs_eager") else ABSENT
    return f"{text} ({tokens_of(row)})"


# ---- readings --------------------------------------------------------------------------------------------------------


def _status_data(row: Row) -> dict[str, Value]:
    return {"status": status(row), "reason": verdict(row)[1]}


def _mem_ops(row: Row) -> str:
    if row.launches is None:
        return ABSENT
    return f"{row.launches.memsets} / {row.launches.memcpys}"


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


def _clock(name: ClockName, head: str, group: Group, meaning: str) -> Column:
    def text(row: Row) -> str:
        clock = clock_of(row, name)
        if clock is None or clock.p20 is None or clock.p80 is None:
            return ABSENT
        return units.with_spread(clock.median, clock.p20, clock.p80)

    def data(row: Row) -> dict[str, Value]:
        clock = clock_of(row, name)
        ratio = clock.ratio_to_eager if clock else None
        return {
            name: clock.median if clock else None,
            f"{name}_p20": clock.p20 if clock else None,
            f"{name}_p80": clock.p80 if clock else None,
            f"{name}_n": clock.n if clock else None,
            f"{name}_dropped": clock.dropped if clock else None,
            f"{name}_l2": clock.l2 if clock else None,
            **speedup.fields(f"{name}_speedup", ratio),
            f"{name}_speedup_confidence": ratio.confidence if ratio else None,
            f"{name}_speedup_n": ratio.n if ratio else None,
        }

    return Column(name, head, group, text, data, meaning, of=(name,), disturbed=name != "kernel_us")


def speedup_vs_eager(clock: ClockName) -> Column:
    """The column of speedups relative to eager by one clock."""

    def text(row: Row) -> str:
        read = clock_of(row, clock)
        if row.backend == BASELINE and read is not None:
            return "baseline"
        return speedup.cell(read.ratio_to_eager if read else None)

    def data(row: Row) -> dict[str, Value]:
        read = clock_of(row, clock)
        ratio = read.ratio_to_eager if read else None
        return {**speedup.fields("speedup_vs_eager", ratio), "speedup_vs_eager_clock": clock if ratio else None}

    meaning = "eager's time / the backend's: median over rounds [confidence interval]; above 1 is faster"
    return Column("speedup_vs_eager", "speedup vs eager", "speed", text, data, meaning, disturbed=True)


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


def _number(
    key: str,
    head: str,
    group: Group,
    value: Callable[[Row], float | None],
    meaning: str,
    *,
    scale: float = 1.0,
    of: tuple[str, ...] = (),
) -> Column:
    """A column of plain numbers; `scale` is the size of the text's unit in the record's unit."""

    def text(row: Row) -> str:
        number = value(row)
        return ABSENT if number is None else units.plain(number / scale)

    return Column(key, head, group, text, lambda row: {key: value(row)}, meaning, of=of)


def _pre_op(key: str, head: str, part: Callable[[PreOps], float | None], meaning: str) -> Column:
    return _number(key, head, "host", lambda row: None if row.pre_ops is None else part(row.pre_ops), meaning)


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


def _of_memory(field: Literal["peak_bytes", "saved_for_backward_bytes"]) -> Callable[[Row], int | None]:
    return lambda row: getattr(row.memory, field, None)


def _error(row: Row) -> str:
    found = row.accuracy
    if found is None:
        return ABSENT
    pairs = ((found.max_error, found.eager_max_error), (found.rms_error, found.eager_rms_error))
    return " / ".join(units.error_ratio(error, eager) for error, eager in pairs)


def _error_data(row: Row) -> dict[str, Value]:
    names = ("max_error", "rms_error", "eager_max_error", "eager_rms_error")
    return {name: getattr(row.accuracy, name, None) for name in names}


def _setup(row: Row) -> str:
    if row.setup is None:
        return ABSENT
    return f"{units.seconds(row.setup.bind_s)} + {units.seconds(row.setup.first_call_s)}"


def _setup_data(row: Row) -> dict[str, Value]:
    return {name: getattr(row.setup, name, None) for name in ("bind_s", "first_call_s")}


# ---- the columns -----------------------------------------------------------------------------------------------------

BACKEND: Final = Column(
    "backend",
    "backend",
    "speed",
    lambda row: row.backend,
    lambda row: {"backend": row.backend},
    "name, as for `--backends`",
    right=False,
)


def all_columns(clock: ClockName = "event_us") -> tuple[Column, ...]:
    """Every column after `backend`, in the order of the tables; `clock` is the one that `speedup_vs_eager` shows."""
    return (*_of_speed(clock), *_of_host(), *_of_memory_use())


def is_shown(field: str, keys: Collection[str]) -> bool:
    """Whether any of the columns of these names shows a field of the record."""
    return any(field in column.of for column in all_columns() if column.key in keys)


def _of_speed(clock: ClockName) -> tuple[Column, ...]:
    return (
        Column(
            "status",
            "status",
            "speed",
            status,
            _status_data,
            "ok; emulated (run by Triton's interpreter: values are right, times are not taken, and the token count "
            "stands in each cell); unavailable or failed, with the reason below the table",
            right=False,
        ),
        Column(
            "kernels",
            "kernels",
            "speed",
            lambda row: str(row.launches.kernels) if row.launches else ABSENT,
            lambda row: {"kernels": row.launches.kernels if row.launches else None},
            "device kernels of one call; on a CPU, leaf operators and Inductor's C++ kernels",
        ),
        Column(
            "mem_ops",
            "memsets / memcpys",
            "speed",
            _mem_ops,
            lambda row: {name: getattr(row.launches, name, None) for name in ("memsets", "memcpys")},
            "memsets and memcpys of one call, which are no kernels",
        ),
        _clock(
            "event_us",
            "event µs [p20–p80]",
            "speed",
            "µs between device events around the last of five plain calls in a row, L2 flushed before each",
        ),
        speedup_vs_eager(clock),
        _clock(
            "graph_us",
            "graph µs [p20–p80]",
            "speed",
            "µs of replaying the call as a CUDA graph: the device without the host",
        ),
        _clock("wall_us", "wall µs [p20–p80]", "speed", "µs of host time for the call, synchronised before and after"),
    )


def _of_host() -> tuple[Column, ...]:
    return (
        _clock(
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


def _of_memory_use() -> tuple[Column, ...]:
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
        _number(
            "peak_bytes",
            "peak MB",
            "memory",
            _of_memory("peak_bytes"),
            "memory that one call needs above the weights, without what a CUDA graph reserved at capture",
            scale=1e6,
            of=("peak_bytes",),
        ),
        _number(
            "saved_bytes",
            "saved MB",
            "memory",
            _of_memory("saved_for_backward_bytes"),
            "memory that one call keeps for backward, parameters excluded",
            scale=1e6,
            of=("saved_for_backward_bytes",),
        ),
        Column(
            "error",
            "error / eager's",
            "memory",
            _error,
            _error_data,
            "largest and rms error against fp64, each / eager's own; up to 2 is right",
        ),
        Column(
            "setup_s",
            "setup (bind + first call)",
            "memory",
            _setup,
            _setup_data,
            "seconds of `bind`, and of the first call with its compilation and autotuning",
        ),
    )
