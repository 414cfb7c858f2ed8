"""What the cells of a study may be."""

from __future__ import annotations

import msgspec
import pytest

from mlpfusion.records.sweep.cells import Settings, Use


def test_a_use_says_its_share():
    assert [str(Use(model="m", tp=tp)) for tp in (1, 8)] == ["m", "m tp8"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Settings, {"backends": ["eager"], "rounds": 0}),
        (Settings, {"backends": ["eager"], "rounds": 5, "time_limit_s": -1}),
        (Use, {"model": "m", "tp": 0}),
    ],
)
def test_what_cannot_be_is_refused(kind, value):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(value, kind)
