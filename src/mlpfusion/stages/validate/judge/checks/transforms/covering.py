"""Rows that bring every two levels of two sides together that may meet: a pairwise covering array."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

Level = tuple[int, int]  # of which side, and which of its levels


def rows(
    sizes: Sequence[int], chance: Random, may_meet: Callable[[Level, Level], bool] = lambda first, second: True
) -> list[tuple[int, ...]]:
    """The levels of each side in so many rows that each pair of levels of two sides is in one of them.

    Greedy, as in AETG (Cohen, Dalal, Fredman and Patton, 1997): a row begins with a pair that is left, and each other
    side has the level that brings most of what is left. `sizes` are the numbers of levels of the sides. Levels that
    may not meet, asked in the order of their sides, are in no row together; any others must fit into a row.
    """
    places = range(len(sizes))
    levels = [[(side, level) for level in range(sizes[side])] for side in places]
    left = {
        pair
        for first, second in itertools.combinations(places, 2)
        for pair in itertools.product(levels[first], levels[second])
        if may_meet(*pair)
    }
    found = []
    while left:
        row = dict(chance.choice(sorted(left)))
        for side in chance.sample(places, len(sizes)):
            if side not in row:
                fit = [each for each in levels[side] if all(may_meet(*pair) for pair in _pairs(row, each))]
                row |= [max(chance.sample(fit, len(fit)), key=lambda each: len(left & _pairs(row, each)))]
        left -= {pair for each in row.items() for pair in _pairs(row, each)}
        found.append(tuple(row[side] for side in places))
    return found


def _pairs(row: dict[int, int], level: Level) -> set[tuple[Level, Level]]:
    """A level of one side with those of the others in a row."""
    return {(min(level, other), max(level, other)) for other in row.items() if other[0] != level[0]}
