"""A predicted call takes its launches one after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.device import Peaks
from mlpfusion.records.prediction import Efficiency, Predicted, PredictedStep

PEAKS = Peaks(flops_16bit=1e15, bandwidth=1e12, source="a datasheet")
SHARES = Efficiency(compute=0.5, memory=0.5, n=1, source="a card")


@given(st.lists(st.floats(0, 1e6), max_size=5))
def test_its_time_is_the_sum_of_its_launches(times: list[float]) -> None:
    steps = tuple(PredictedStep(op="mm", role=None, predicted_us=time, bound="memory") for time in times)
    found = Predicted(backend="a", card="b", peaks=PEAKS, efficiency=SHARES, steps=steps)
    assert found.predicted_us == sum(times)
