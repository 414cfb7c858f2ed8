"""The columns of the first table: which backends ran, what they launch, and how long a call takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.report.profile import row as row_words
from mlpfusion.report.profile.columns.clocks import of_clock, speedup_vs_eager
from mlpfusion.report.profile.columns.column import Column
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from mlpfusion.records.profile import Row
    from mlpfusion.report.profile.columns.clocks import ClockName
    from mlpfusion.report.profile.columns.column import Value

BACKEND: Final = Column(
    "backend",
    "backend",
    "speed",
    lambda row: row.backend,
    lambda row: {"backend": row.backend},
    "name, as for `--backends`",
    right=False,
)


def of_speed(clock: ClockName) -> tuple[Column, ...]:
    """The columns after `backend`; `clock` is the one that `speedup_vs_eager` shows."""
    return (
        Column(
            "status",
            "status",
            "speed",
            row_words.status,
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
        of_clock(
            "event_us",
            "event µs [p20–p80]",
            "speed",
            "µs between device events around the last of five plain calls in a row, L2 flushed before each",
        ),
        speedup_vs_eager(clock),
        of_clock(
            "graph_us",
            "graph µs [p20–p80]",
            "speed",
            "µs of replaying the call as a CUDA graph: the device without the host",
        ),
        of_clock(
            "wall_us", "wall µs [p20–p80]", "speed", "µs of host time for the call, synchronised before and after"
        ),
    )


def _status_data(row: Row) -> dict[str, Value]:
    return {"status": row_words.status(row), "reason": row_words.verdict(row)[1]}


def _mem_ops(row: Row) -> str:
    if row.launches is None:
        return ABSENT
    return f"{row.launches.memsets} / {row.launches.memcpys}"
