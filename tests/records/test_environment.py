"""Where a result was measured, as a record: older files lack what came later, and nothing beyond the list gets in."""

from __future__ import annotations

import msgspec
import pytest

from mlpfusion.records.environment import Card, Checkout, Environment, Process, Readings

FIELDS = {
    **dict.fromkeys(("python", "platform", "torch", "float32_matmul_precision"), "text"),
    **dict.fromkeys(("triton", "liger_kernel", "kernels", "cuda", "driver", "sm_clock_mhz", "memory_clock_mhz")),
}


def test_a_file_without_what_came_later_has_none_of_it() -> None:
    found = msgspec.convert(FIELDS, Environment)
    assert (found.flags, found.distributions, found.card, found.checkout) == ({}, {}, None, None)


def test_all_of_it_is_json_both_ways() -> None:
    readings = Readings(n=2, low=1.0, median=1.5, high=2.0)
    made = (
        msgspec.convert({**FIELDS, "card": {"ecc": True}, "checkout": {"commit": "abc", "clean": False}}, Environment),
        Process(started="2026-01-01T00:00:00Z", power_w=readings, throttle_reasons=(), kernels={"eager": ("a", "b")}),
    )
    for one in made:
        assert msgspec.json.decode(msgspec.json.encode(one), type=type(one)) == one


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (Environment, {**FIELDS, "sm_clock_mhz": -1}),
        (Card, {"ecc": "on"}),
        (Checkout, {"commit": "abc"}),
        (Readings, {"n": 0, "low": 1.0, "median": 1.0, "high": 1.0}),
        (Process, {"started": "now", "neighbours": 2.0}),
    ],
)
def test_what_does_not_belong_is_refused(kind: type, fields: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(fields, kind)


@pytest.mark.parametrize(("kind", "fields"), [(Environment, FIELDS), (Card, {}), (Process, {"started": "now"})])
def test_what_is_not_on_the_list_is_not_kept(kind: type, fields: dict[str, object]) -> None:
    found = msgspec.convert({**fields, "serial": "1234567"}, kind)
    assert b"1234567" not in msgspec.json.encode(found)
