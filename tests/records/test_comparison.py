"""Records of a comparison: what counts as a regression, and JSON both ways."""

from __future__ import annotations

import msgspec
import pytest

from mlpfusion.records.comparison import Comparison, FactChange, GroupChange, RowChange, SelfComparison, SelfRow

BETTER = FactChange(name="kernels", baseline="5", candidate="4", worse=False)
WORSE = FactChange(name="round_trips", baseline="3", candidate="4", worse=True)


@pytest.mark.parametrize(
    ("word", "facts", "expected"),
    [
        ("slower", (), True),
        ("faster", (), False),
        ("same", (BETTER,), False),
        ("inconclusive", (), False),
        (None, (), False),
        (None, (BETTER, WORSE), True),
        ("faster", (WORSE,), True),
    ],
)
def test_a_regression(word: str | None, facts: tuple[FactChange, ...], expected: bool) -> None:
    assert RowChange(baseline="a", candidate="a", word=word, facts=facts).is_regression == expected


def test_json_both_ways() -> None:
    row = RowChange(baseline="a", candidate="b", word="same", facts=(WORSE,))
    made = Comparison(
        schema=1,
        kind="comparison",
        mlpfusion="0.1.0",
        baseline="a.json",
        candidate="b.json",
        threshold=0.01,
        confidence=0.99,
        groups=(GroupChange(title="it", rows=(row,)), GroupChange(title="other", rows=(row, row))),
    )
    assert msgspec.json.decode(msgspec.json.encode(made), type=Comparison) == made
    assert len(made.rows) == 3


def test_the_alarms_of_a_file_are_those_of_its_rows() -> None:
    row = SelfRow(group="", backend="a", clock="graph_us", processes=12, spread=0.005, splits=462, alarms=2, largest=0)
    made = SelfComparison(
        schema=1,
        kind="self-comparison",
        mlpfusion="0.1.0",
        source="a.json",
        threshold=0.01,
        confidence=0.99,
        rows=(row, row),
    )
    assert (made.alarms, made.splits) == (4, 924)
