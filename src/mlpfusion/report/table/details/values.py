"""The values of a row that one kernel of a call writes to memory and another reads back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion import units
from mlpfusion.report.grid import shorten
from mlpfusion.report.table.details.detail import Detail, Part
from mlpfusion.report.table.model import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlpfusion.records.profile import Row


def _of(row: Row) -> Iterator[Part]:
    for each in row.traffic.intermediates if row.traffic is not None else ():
        yield Part(
            (
                each.role,
                units.plain(each.bytes / 1e6),
                units.plain(each.moved_bytes / 1e6),
                shorten(each.written_by),
                ", ".join(shorten(name) for name in each.read_by),
            ),
            {
                "value": each.role,
                "bytes": each.bytes,
                "moved_bytes": each.moved_bytes,
                "written_by": each.written_by,
                "read_by": ", ".join(each.read_by),
            },
        )


VALUES: Final = Detail(
    "Values through device memory",
    (
        Column("value", "value"),
        Column("bytes", "MB", right=True),
        Column("moved_bytes", "moved MB", right=True),
        Column("written_by", "written by"),
        Column("read_by", "read by"),
    ),
    _of,
)
