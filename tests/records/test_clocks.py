"""A clock of a race: which times it kept, and which can be paired with another backend's."""

from __future__ import annotations

import msgspec
import pytest

from mlpfusion.records.clocks import Clock, Ratio

Rounds = tuple[tuple[float | None, ...], ...]


def clock(rounds: Rounds, dropped: int = 0) -> Clock:
    return Clock(n=3, median=2.0, p20=None, p80=None, l2="cold", dropped=dropped, rounds=rounds)


@pytest.mark.parametrize(
    ("rounds", "dropped", "samples", "paired"),
    [
        (((1.0, 2.0), (3.0,)), 0, (1.0, 2.0, 3.0), True),
        (((1.0, None), (3.0, 2.0)), 1, (1.0, 3.0, 2.0), True),
        (((None, None), (3.0, 2.0)), 2, (3.0, 2.0), True),  # not in the first process at all
        (((1.0, 2.0, 3.0),), 1, (1.0, 2.0, 3.0), False),  # a round was dropped, and its place is not known
        ((), 0, (), False),  # a summary alone
    ],
)
def test_kept_times_and_whether_they_have_their_rounds(
    rounds: Rounds, dropped: int, samples: tuple[float, ...], paired: bool
) -> None:
    found = clock(rounds, dropped)
    assert found.samples == samples
    assert found.is_paired is paired
    assert msgspec.json.decode(msgspec.json.encode(found), type=Clock) == found


@pytest.mark.parametrize("wrong", [{"confidence": 1.5}, {"n": 0}, {"low": -1.0}, {"median": "fast"}])
def test_a_ratio_outside_its_range_is_refused(wrong: dict[str, object]) -> None:
    fields = {"baseline": "eager", "median": 1.1, "low": 1.0, "high": 1.2, "confidence": 0.95, "n": 60}
    assert msgspec.convert(fields, Ratio).n == 60
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**fields, **wrong}, Ratio)
