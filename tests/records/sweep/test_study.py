"""What a study's file may say of its cells."""

from __future__ import annotations

import msgspec
import pytest

from mlpfusion.records.sweep.study import Attempt, OverEager, Stamp


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Attempt, {"node": "node 1", "started": "now", "seconds": -1}),
        (OverEager, {"median": 0}),
        (Stamp, {"bytes": -1, "mtime_ns": 0}),
    ],
)
def test_what_cannot_be_is_refused(kind, value):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(value, kind)
