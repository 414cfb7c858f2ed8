"""Limits by measured rates: which ceiling sets them, what may pass it, and that the rates are measured."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.steps_made import CARD, L2, step, traffic

from mlpfusion.records.traffic import Intermediate
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.traffic import roofline


@pytest.mark.parametrize(("size", "rate"), [(1, 1e12), (10**6, 1e12), (10**7, 2e12), (10**8, 4e12), (10**12, 4e12)])
def test_between_two_copies_the_rate_goes_by_the_logarithm_of_the_size(size, rate):
    assert roofline.copy_rate(CARD, size) == pytest.approx(rate)


@given(st.integers(1, 10**10), st.integers(1, 10**10))
def test_more_bytes_never_take_less_time(a, b):
    low, high = sorted((a, b))
    assert low / roofline.copy_rate(CARD, low) <= high / roofline.copy_rate(CARD, high) * (1 + 1e-9)


def test_the_larger_of_two_times_is_the_limit():
    found = roofline.weighed(traffic(step(50.0), step(60.0, flops=4 * 10**10)), CARD, L2)
    assert [(one.limit_us, one.bound) for one in found.steps] == [
        (pytest.approx(25), "memory"),
        (pytest.approx(50), "compute"),
    ]
    assert found.limit_us == pytest.approx(75)
    assert [one.above for one in found.steps] == [None, None]
    assert roofline.faults(found) == ()


def test_a_time_above_a_ceiling_is_a_measurement_fault():
    found = roofline.weighed(traffic(step(20.0), step(40.0, flops=4 * 10**10, role="gate_gemm")), CARD, L2)
    assert [one.above.split(":")[0] for one in found.steps] == ["measurement fault"] * 2
    assert roofline.faults(found)[1] == (
        "gate_gemm: measurement fault: faster than any matrix product measured on this card (40 µs, at least 50)"
    )


def test_noise_is_none():
    assert roofline.weighed(traffic(step(24.0)), CARD, L2).steps[0].above is None


def test_bytes_out_of_the_l2_may_come_faster_than_a_copy():
    value = Intermediate(role="gate", bytes=5 * 10**7, moved_bytes=10**8, written_by="1", read_by=("2",))
    (found,) = roofline.weighed(traffic(step(20.0, values_read=(0,)), values=(value,)), CARD, L2).steps
    assert found.above == "the L2 (50 MiB) may hold what a kernel before wrote (50 MB)"
    large = msgspec.structs.replace(value, bytes=10**9)
    (found,) = roofline.weighed(traffic(step(20.0, values_read=(0,)), values=(large,)), CARD, L2).steps
    assert found.above.startswith("measurement fault")


def test_counters_decide_whether_it_was_the_l2():
    value = Intermediate(role="gate", bytes=5 * 10**7, moved_bytes=10**8, written_by="1", read_by=("2",))
    some = {"measured_read_bytes": 6 * 10**7, "measured_write_bytes": 0, "values_read": (0,)}
    (found,) = roofline.weighed(traffic(step(20.0, **some), values=(value,)), CARD, L2).steps
    assert found.above == "the L2: only 60 MB crossed the memory's bus"
    every = {**some, "measured_read_bytes": 10**8}
    (found,) = roofline.weighed(traffic(step(20.0, **every), values=(value,)), CARD, L2).steps
    assert found.above.startswith("measurement fault")


def test_a_step_that_moves_and_computes_nothing_has_no_limit():
    found = roofline.weighed(traffic(step(1.0, read=0)), CARD, L2)
    assert (found.steps[0].limit_us, found.limit_us) == (None, None)


def test_the_shapes_are_those_of_the_mlp_and_a_large_square():
    work = Workload(spec=MLPSpec(hidden_size=768, intermediate_size=3072), batch=64, seq=128)
    assert roofline.products(work) == ((8192,) * 3, (8192, 3072, 768), (8192, 6144, 768), (8192, 768, 3072))
