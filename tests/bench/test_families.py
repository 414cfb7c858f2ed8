"""bench/families.py: a gated MLP is swapped and placed and right; the table counts what is and is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.bench import bench
from support.plain_mlp import Plain

if TYPE_CHECKING:
    from types import ModuleType


@pytest.fixture(scope="module")
def families() -> ModuleType:
    return bench("families")


@pytest.mark.full
def test_a_gated_mlp_is_swapped_and_placed_and_right(families: ModuleType) -> None:
    swapped, placed = families.compared(Plain(bias=True))
    assert swapped <= families.BOUND
    assert placed <= families.BOUND


def test_the_table_counts_only_what_is_right_in_both_ways(families: ModuleType) -> None:
    right = {"gated": 2, "kinds": 1, "swapped": 1, "placed": 1, "worst_swap": 0.0, "worst_pass": 1e-7}
    rows = [
        families.Row(family="good", **right),
        families.Row(family="wrong", **{**right, "worst_pass": 0.5}),
        families.Row(family="missed", **{**right, "placed": 0, "worst_pass": None}, near_misses=("why",)),
        families.Row(family="large", gated=4, reason="not built small: ValueError: sizes"),
        families.Row(family="none", refused={"it is not gated": 3}),
        families.Row(family="absent", reason="ValueError: no model"),
    ]
    lines = families.table(rows).splitlines()
    assert lines[0].startswith("6 families; 5 were built, 4 have gated MLPs, 3 of these were run. In 1 each kind")
    assert "| missed | 2 | 0 | 1 | 1 | 0 | 0.0e+00 | – | why |" in lines
    assert "| 1 | it is not gated |" in lines
    assert "| 1 | ValueError |" in lines


def test_rows_are_kept_and_the_last_of_a_family_counts(
    families: ModuleType, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import msgspec

    path = tmp_path / "rows.jsonl"
    rows = [families.Row(family="a", gated=1), families.Row(family="b"), families.Row(family="a", gated=2)]
    path.write_bytes(b"\n".join(map(msgspec.json.encode, rows)))
    monkeypatch.setattr(families, "ROWS", path)
    assert {name: row.gated for name, row in families.read().items()} == {"a": 2, "b": 0}
