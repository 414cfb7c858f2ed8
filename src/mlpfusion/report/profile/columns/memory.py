"""The columns of memory that a call needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from mlpfusion.report.profile.columns.column import Column, number

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.records.profile import Row


def of_memory() -> tuple[Column, ...]:
    """The columns: at the peak, and kept for backward."""
    return (
        number(
            "peak_bytes",
            "peak MB",
            "memory",
            _field("peak_bytes"),
            "memory that one call needs above the weights, without what a CUDA graph reserved at capture",
            scale=1e6,
            of=("peak_bytes",),
        ),
        number(
            "saved_bytes",
            "saved MB",
            "memory",
            _field("saved_for_backward_bytes"),
            "memory that one call keeps for backward, parameters excluded",
            scale=1e6,
            of=("saved_for_backward_bytes",),
        ),
    )


def _field(field: Literal["peak_bytes", "saved_for_backward_bytes"]) -> Callable[[Row], int | None]:
    return lambda row: getattr(row.memory, field, None)
