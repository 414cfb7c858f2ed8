"""bench/plugin_families.py: a family is right if all MLPs are placed and the proof holds with gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
import torch
from support.bench import bench
from support.plain_mlp import Plain
from torch import nn

from mlpfusion.inductor import Trial
from mlpfusion.stages.prove.run import prove

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

pytest.importorskip("transformers")
RIGHT = {
    "compiler": "aot_eager",
    "mlps": 2,
    "placed": 2,
    "logits": (1.0, 4.0),
    "gradients": (1.1, 2.0),
    "layers": (1.0, 4.0),
    "holds": True,
}


@pytest.fixture(scope="module")
def families() -> ModuleType:
    return bench("plugin_families")


def test_the_table_counts_only_what_is_right(families: ModuleType) -> None:
    rows = [
        families.Row(family="good", **RIGHT),
        families.Row(family="missed", **{**RIGHT, "placed": 1}),
        families.Row(family="wrong", **{**RIGHT, "holds": False, "reason": "logits: 3 times"}),
        families.Row(family="forward", **{**RIGHT, "gradients": None}),
        families.Row(family="absent", compiler="aot_eager", reason="ValueError: no"),
    ]
    lines = families.table(rows).splitlines()
    assert lines[0].startswith("5 families; in 1 the pass placed every MLP")
    assert "| good | aot_eager | 2 | 2 | 1.00 of 4 | 1.10 of 2 | 1.00 of 4 | yes | 0.0 |  |" in lines
    assert "| absent | aot_eager | 0 | 0 | – | – | – | no | 0.0 | ValueError: no |" in lines


def test_the_last_row_of_a_family_counts(families: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [families.Row(family="a", compiler="inductor", mlps=mlps) for mlps in (1, 2)]
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, rows)))
    monkeypatch.setattr(families, "ROWS", tmp_path / "rows.jsonl")
    assert {name: row.mlps for name, row in families.read().items()} == {"a": 2}


@pytest.mark.full
def test_a_model_is_judged_in_both_states(families: ModuleType) -> None:
    model = nn.Sequential(Plain(), Plain(bias=True))
    found = prove(Trial(model, "eager", compiler=families.by_aot), torch.randn(2, 32), rounds=0, trace=False)
    row = families.judged(families.Row(family="plain", compiler="aot_eager", mlps=2), found)
    assert row.right, row
