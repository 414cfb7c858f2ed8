"""The errors of a row against fp64 beside eager's own, with the limit that they were judged by."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from mlpfusion import units
from mlpfusion.report.table.details.detail import Detail, Part
from mlpfusion.report.table.model import Column

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlpfusion.records.profile import Row

_COLUMNS: Final = (
    Column("max_error", "largest error", right=True),
    Column("eager_max_error", "eager's", right=True),
    Column("rms_error", "rms error", right=True),
    Column("eager_rms_error", "eager's rms", right=True),
    Column("ratio", "larger ratio", right=True),
    Column("limit", "limit", right=True),
    Column("rows", "rows", right=True),
    Column("elements", "elements", right=True),
)


def _of(row: Row) -> Iterator[Part]:
    found = row.accuracy
    if found is None:
        return
    errors = (found.max_error, found.eager_max_error, found.rms_error, found.eager_rms_error)
    texts = ["nan or inf" if value is None else units.small(value) for value in errors]
    texts += [units.plain(found.ratio), units.plain(found.limit), str(found.rows), str(found.elements)]
    values = {column.key: getattr(found, column.key) for column in _COLUMNS}
    values["ratio"] = found.ratio if math.isfinite(found.ratio) else None  # an element is nan or inf
    yield Part(tuple(texts), values)


ERRORS: Final = Detail("Errors against fp64", _COLUMNS, _of)
