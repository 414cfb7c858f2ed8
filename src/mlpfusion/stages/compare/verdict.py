"""Turns differences into words: slower, faster, same or inconclusive, with Holm's correction over rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from mlpfusion.stages.compare.difference import LEVEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.comparison import Word
    from mlpfusion.stages.compare.difference import Difference

THRESHOLD: Final = 0.01  # what is smaller is no finding, however certain
ERRORS: Final = 3  # standard errors that a difference must exceed where the spread of processes was assumed


def holm(values: Sequence[float]) -> list[float]:
    """Probabilities adjusted for their number, in their order: Holm 1979."""
    adjusted = [1.0] * len(values)
    least = 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        least = max(least, min(1.0, (len(values) - rank) * values[place]))
        adjusted[place] = least
    return adjusted


def word(found: Difference, p: float, threshold: float = THRESHOLD) -> Word:
    """What a difference means, `p` being its probability after Holm's correction and `threshold` a share of the time.

    `slower` and `faster` are beyond chance and beyond the threshold, `same` is within it with the whole interval. Of
    few processes only a large change is told: that two are the same rests on how much processes differ, which they do
    not tell.
    """
    limit = math.log1p(threshold)
    if abs(found.log) > limit and p <= LEVEL and (found.enough or abs(found.log) > ERRORS * found.error):
        return "slower" if found.log > 0 else "faster"
    return "same" if found.enough and abs(found.log) + found.half_width() <= limit else "inconclusive"
