"""The columns of a backend's qualification: its error against fp64, and the time until it had run once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion import units
from mlpfusion.report.profile.columns.column import Column
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from mlpfusion.records.profile import Row
    from mlpfusion.report.profile.columns.column import Value


def of_qualification() -> tuple[Column, ...]:
    """The columns: error, and setup."""
    return (
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
