"""What no table has is scaled by datasheets, from the time at hand where there is one."""

from __future__ import annotations

from math import sqrt

import msgspec
import pytest

from mlpfusion.device import KNOWN_CARDS
from mlpfusion.records.prediction import Efficiency
from mlpfusion.records.profile import Row
from mlpfusion.records.traffic import Step
from mlpfusion.stages.predict import scaled
from mlpfusion.stages.predict.scaled import LAUNCH_US

A100, H200 = KNOWN_CARDS["NVIDIA A100-SXM4-80GB"], KNOWN_CARDS["NVIDIA H200"]
USUAL = Efficiency(compute=0.7, memory=0.8, n=3, source="NVIDIA H200")
ROW = Row(backend="any", status="ok")
STREAM = Step(op="act_mul", source="operator", read_bytes=100_000_000, write_bytes=50_000_000, time_us=50.0)
PRODUCT = Step(op="a_kernel", source="operator", read_bytes=1, write_bytes=1, flops=10**11, time_us=150.0)


def test_an_elementwise_kernel_keeps_half_of_what_sets_it_apart() -> None:
    own = 150e6 / H200.bandwidth * 1e6 / (50.0 - 1.0)
    found = scaled.time_us(STREAM, ROW, A100, H200, USUAL)
    assert found == pytest.approx(1.0 + 150e6 / A100.bandwidth * 1e6 / sqrt(own * 0.8))


def test_a_product_keeps_its_own_share() -> None:
    found = scaled.time_us(PRODUCT, ROW, A100, H200, USUAL)
    assert found == pytest.approx(LAUNCH_US + (150.0 - LAUNCH_US) * 989 / 312)


@pytest.mark.parametrize("time", [None, 0.0, 1.5])
def test_without_a_time_that_tells_the_usual_share_is_taken(time: float | None) -> None:
    step = msgspec.structs.replace(STREAM, time_us=time)
    expected = 1.0 + 150e6 / A100.bandwidth * 1e6 / 0.8
    assert scaled.time_us(step, ROW, A100, H200, USUAL) == pytest.approx(expected)
    assert scaled.time_us(STREAM, ROW, A100, None, USUAL) == pytest.approx(expected)


def test_a_launch_takes_time_on_any_card() -> None:
    tiny = Step(op="mul", source="operator", read_bytes=1, write_bytes=1)
    assert scaled.time_us(tiny, ROW, H200, None, USUAL) >= 1.0


@pytest.mark.parametrize(("m", "error"), [(1, 0.39), (256, 0.39), (257, 0.25), (2048, 0.25), (2049, 0.20)])
def test_the_error_of_a_scaled_product_is_that_between_cards(m: int, error: float) -> None:
    assert scaled.product_error(m) == error
