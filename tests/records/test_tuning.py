"""What a search is for is what the kernels know, and its records are JSON both ways."""

from __future__ import annotations

import msgspec
import pytest
from mlpfusion_kernels.gate_up import limits

from mlpfusion.records.tuning import DIRECTIONS, Answer, Question

QUESTION = Question(
    direction="forward", tokens=16, hidden_size=768, intermediate_size=3072, dtype="bfloat16", activation="silu"
)


def test_a_search_may_be_for_every_direction_of_the_kernels() -> None:
    assert set(DIRECTIONS) == set(limits.DIRECTIONS)


def test_an_answer_is_json_both_ways_and_says_nothing_of_what_was_not_tried() -> None:
    found = Answer(question=QUESTION, shipped="a")
    assert msgspec.json.decode(msgspec.json.encode(found), type=Answer) == found
    assert (found.best, found.kept, found.ratio, found.left_out) == (None, False, None, ())


@pytest.mark.parametrize(("field", "value"), [("direction", "sideways"), ("dtype", "int8"), ("tokens", "many")])
def test_a_question_that_cannot_be_is_refused_where_it_is_read(field: str, value: object) -> None:
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({**msgspec.to_builtins(QUESTION), field: value}, Question)
