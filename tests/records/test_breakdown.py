"""Where the time of a call went, as a record: JSON both ways, and no category that nobody knows."""

from __future__ import annotations

import msgspec
import pytest

from mlpfusion.records.breakdown import CATEGORIES, Breakdown, CategoryTime, Split

SPLIT = Split(call=3, length_us=10.0, compute_us=4.0, communication_us=3.0, both_us=2.0, idle_us=1.0)


def test_it_is_json_both_ways() -> None:
    times = tuple(CategoryTime(category=name, count=1, us=2.5, share=1 / len(CATEGORIES)) for name in CATEGORIES)
    made = Breakdown(kernel_us=2.5 * len(CATEGORIES), categories=times, overlapping=True, split=SPLIT)
    assert msgspec.json.decode(msgspec.json.encode(made), type=Breakdown) == made


@pytest.mark.parametrize("wrong", [{"category": "softmax"}, {"count": "one"}, {"us": None}])
def test_what_does_not_belong_is_refused(wrong: dict[str, object]) -> None:
    fields = {"category": "gemm", "count": 1, "us": 1.0, "share": 1.0}
    assert msgspec.convert(fields, CategoryTime).unknown == 0
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**fields, **wrong}, CategoryTime)
