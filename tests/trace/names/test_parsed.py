"""Tokens say how sure they are, tiles are in torch's order, and a layout has a meaning."""

from __future__ import annotations

import pytest

from mlpfusion.trace.names.parsed import LAYOUTS, established, layout_token, likely, tile_token, torch_tile, unknown


@pytest.mark.parametrize(
    ("make", "certainty"), [(established, "established"), (likely, "likely"), (unknown, "unknown")]
)
def test_a_token_says_how_sure_it_is(make, certainty: str) -> None:
    found = make("tn", "a layout")
    assert (found.text, found.meaning, found.certainty) == ("tn", "a layout", certainty)


def test_what_is_unknown_says_so_itself() -> None:
    assert unknown("bz").meaning == "not established"


def test_a_column_major_tile_is_turned_round() -> None:
    assert torch_tile("256", "128", "64") == "128x256x64"
    assert torch_tile("256", "128", None) == "128x256"


@pytest.mark.parametrize(("tile", "says"), [("64x32", ""), ("64x32x16", ", stepping 16 along K")])
def test_a_tile_is_rows_by_columns(tile: str, says: str) -> None:
    found = tile_token("32x64", tile, "established")
    assert found.meaning == f"each block computes 64 rows (torch's M) by 32 columns (N) of the result{says}"
    assert (found.text, found.certainty) == ("32x64", "established")
    assert tile_token("32x64", tile).certainty == "likely"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_means_what_its_letters_say(layout: str) -> None:
    assert layout_token(layout.upper(), layout).meaning == LAYOUTS[layout]
    contiguous = [operand == letter for operand, letter in zip("tn", layout, strict=True)]
    assert ("both operands" in LAYOUTS[layout]) == all(contiguous)
    assert ("neither operand" in LAYOUTS[layout]) == (not any(contiguous))
