"""The check of the memory beside operands."""

from __future__ import annotations

import pytest
from support import checked, rings

FAULTS = {
    "outside.py:operand_overrun": ("not valid", "writes outside up: 8 elements behind it"),
    "outside.py:neighbour_compared": ("not valid", "reads outside its operands: 1 of 257 elements of y depend"),
    "outside.py:masked_read": ("valid", "every check passed"),
}


@pytest.mark.parametrize("control", rings.only_first(FAULTS))
def test_what_lies_beside_operands_is_neither_written_nor_read(bench, control):
    word, words = FAULTS[control]
    verdict = checked.of_control(bench, control, "guards", "float32")
    assert verdict.word == word
    assert words in verdict.headline
