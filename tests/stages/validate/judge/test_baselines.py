"""What a target is set against, and when it is faster."""

from __future__ import annotations

import pytest

from mlpfusion.stages.validate.judge import baselines
from mlpfusion.stages.validate.judge.exam import UndecidableError


def test_faster_needs_the_whole_interval_and_one_percent() -> None:
    def word(*ratios: float) -> str:
        mine: list[float | None] = list(ratios)
        return baselines.verdict_on(baselines.ratio_of(mine, [1.0] * len(ratios), "eager"))

    assert word(*[0.9] * 20) == "faster"
    assert word(*[1.1] * 20) == "slower"
    assert word(*[0.995] * 20) == "same within noise"  # within the band of 1%
    assert word(*[0.8, 1.2] * 10) == "same within noise"
    with pytest.raises(UndecidableError, match="3 rounds are too few"):
        word(0.9, 0.9, 0.9)
