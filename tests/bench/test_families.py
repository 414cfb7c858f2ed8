"""bench/families.py: a gated MLP is swapped and placed and right; the table counts what is and is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from support.bench import bench
from support.plain_mlp import Plain
from torch import nn

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


class Head(nn.Module):
    """Three layers one after another: two widths in common with a gated MLP, and no more."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 12), nn.Linear(12, 12), nn.Linear(12, 8)])


class Turned(nn.Module):
    """Gate and up in one matrix [in, out], and down."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (nn.Parameter(torch.ones(shape)) for shape in ((8, 24), (12, 8)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Attention(Plain):
    """By name no MLP."""


class Experts(nn.Module):
    """Gate, up and down of four experts in two parameters."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.ones(number, 24, 8))
        self.two = nn.Parameter(torch.ones(number, 8, 12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def test_gated_shapes_are_known_by_their_matrices_alone(families: ModuleType) -> None:
    assert families.of_gated_shape(Plain())
    assert families.of_gated_shape(nn.Sequential(nn.Linear(8, 24), nn.Linear(12, 8)))
    assert families.of_gated_shape(Experts(4))
    assert not families.of_gated_shape(Experts(1))
    assert not families.of_gated_shape(nn.Sequential(nn.Linear(8, 12), nn.Linear(12, 8)))
    assert not families.of_gated_shape(nn.ModuleList([nn.Linear(8, 24), nn.Linear(12, 8)]))
    assert not families.of_gated_shape(nn.Sequential(nn.Linear(16, 8), nn.Linear(8, 8)))
    assert families.of_gated_shape(Turned())
    assert not families.of_gated_shape(Head())
    assert not families.of_gated_shape(Attention())


@pytest.mark.parametrize(("listed", "missed"), [([], ("Plain",)), (["0"], ()), ([""], ())])
def test_what_is_in_no_list_is_named(families: ModuleType, listed: list[str], missed: tuple[str, ...]) -> None:
    assert families.unlisted(nn.ModuleList([Plain()]), listed) == missed


def test_rows_are_kept_and_the_last_of_a_family_counts(
    families: ModuleType, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import msgspec

    path = tmp_path / "rows.jsonl"
    rows = [families.Row(family="a", gated=1), families.Row(family="b"), families.Row(family="a", gated=2)]
    path.write_bytes(b"\n".join(map(msgspec.json.encode, rows)))
    monkeypatch.setattr(families, "ROWS", path)
    assert {name: row.gated for name, row in families.read().items()} == {"a": 2, "b": 0}
