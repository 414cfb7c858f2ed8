"""The kernels of a row in their order, each with its role, what its name says, and its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.report.grid import decoded_text, kernel_time, shorten
from mlpfusion.report.table.details.detail import Detail, Part
from mlpfusion.report.table.model import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlpfusion.records.profile import Row


def _of(row: Row) -> Iterator[Part]:
    for number, kernel in enumerate(row.kernels, 1):
        yield Part(
            (str(number), kernel.role, shorten(kernel.name), decoded_text(kernel.decoded), kernel_time(kernel)),
            {
                "number": number,
                "role": kernel.role,
                "kernel": kernel.name,
                "library": kernel.decoded.library,
                "tile": kernel.decoded.tile,
                "time_us": kernel.time_us,
                "time_us_p20": kernel.p20_us,
                "time_us_p80": kernel.p80_us,
            },
        )


KERNELS: Final = Detail(
    "Kernels",
    (
        Column("number", "#", right=True),
        Column("role", "role"),
        Column("kernel", "kernel"),
        Column("decoded", "decoded"),
        Column("time_us", "µs [p20–p80]", right=True),
    ),
    _of,
)
