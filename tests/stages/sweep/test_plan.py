"""What becomes of the cells of a study on the devices that are here, and how long they take."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.choices_made import HERE
from support.studies_made import SMALL, TINY, read

from mlpfusion.device import Device
from mlpfusion.errors import UsageError
from mlpfusion.records.sweep.cells import Cell
from mlpfusion.records.sweep.study import Attempt, Kept
from mlpfusion.stages.sweep import cells, plan

H200 = Device(kind="cuda", name="NVIDIA H200", runtime="cuda", capability=(9, 0), free_bytes=140 * 10**9)
A100 = replace(H200, name="NVIDIA A100-SXM4-80GB", capability=(8, 0))
SHARED = replace(H200, name="NVIDIA H200 MIG 1g.18gb", free_bytes=10**9)


def test_a_cell_for_each_kind_that_is_here(tmp_path):
    found = plan.plan(read(tmp_path), [H200, H200, A100])
    assert [each.cell.gpu for each in found] == ["NVIDIA H200", "NVIDIA A100-SXM4-80GB"] * 2
    assert {plan.state(each, read(tmp_path).settings, None) for each in found} == {plan.MEASURED}


def test_a_kind_that_is_named_and_not_here_waits(tmp_path):
    asked = read(tmp_path, f'gpus = ["h200", "a100-80gb"]\n{SMALL}')
    found = plan.plan(asked, [H200])
    states = {each.cell.gpu: plan.state(each, asked.settings, None) for each in found}
    assert states == {"h200": plan.MEASURED, "a100-80gb": "waiting: no a100-80gb is here"}


def test_the_cpu_is_a_kind_and_no_card_is_one(tmp_path):
    asked = read(tmp_path, f'gpus = ["cpu", "h200"]\n{SMALL}')
    assert [plan.state(each, asked.settings, None) for each in plan.plan(asked, [HERE])][0::2] == [plan.MEASURED] * 2
    assert plan.plan(asked, [H200])[0].away


def test_memory_is_compared_with_the_cards(tmp_path):
    asked = read(tmp_path, f'models = [{TINY}, "gemma-7b"]\ntokens = [8192]\nbackends = ["eager"]')
    first, second = (plan.state(each, asked.settings, None) for each in plan.plan(asked, [SHARED]))
    assert first == plan.MEASURED
    assert second.startswith("refused: batch 1 x seq 8192")
    assert "GB; NVIDIA H200 MIG 1g.18gb has 1.0 GB free" in second


def test_sizes_that_no_backend_takes_are_refused_by_line_and_name(tmp_path):
    asked = read(tmp_path, f'models = [\n{TINY},\n"article"]\ntokens = [1]\nbackends = ["fused"]\ndtypes = ["float16"]')
    old = replace(H200, capability=(5, 2))
    with pytest.raises(UsageError) as caught:
        plan.plan(asked, [old])
    assert "line 2: no backend takes tiny on NVIDIA H200: fused: " in str(caught.value)


def test_the_cells_of_other_shards_are_not_measured(tmp_path):
    asked = read(tmp_path, SMALL.replace("[1, 4]", "[1, 2, 3, 4, 5, 6, 7]"))
    found = plan.plan(asked, [HERE])
    states = [[plan.state(each, asked.settings, cells.Shard(part, 2)) for each in found] for part in (1, 2)]
    assert all(sorted(pair) == ["of another shard", plan.MEASURED] for pair in zip(*states, strict=True))


def test_the_longest_cells_come_first(tmp_path):
    found = [each.cell for each in plan.plan(read(tmp_path, SMALL.replace("[1, 4]", "[4, 1, 9]")), [HERE])]
    assert [each.work.workload.tokens for each in plan.longest_first(found)] == [9, 4, 1]


def kept(each, seconds, state="finished"):
    attempts = (Attempt(node="node 1", started="2026-01-01T00:00:00+00:00", seconds=seconds),)
    return Kept(cell=each, digest="0", state=state, attempts=attempts)


def test_time_is_estimated_from_finished_cells_or_assumed(tmp_path):
    asked = read(tmp_path)
    cell = plan.plan(asked, [HERE])[0].cell
    assert plan.estimate([cell] * 3, asked.settings) == (12.0, "assuming 4 s a backend, as on an H200")
    assert plan.estimate([cell] * 3, replace(asked.settings, processes=2)).seconds == 24.0
    before = [kept(cell, 1.0), kept(cell, 5.0), kept(cell, 2.0), kept(cell, 99.0, "failed")]
    assert plan.estimate([cell] * 3, asked.settings, before) == (6.0, "by the median of the 3 cells finished so far")


def test_a_mode_or_gpu_of_which_no_cell_is_finished_is_assumed(tmp_path):
    asked = read(
        tmp_path, SMALL.replace('["eager"]', '["eager", "compile-max-autotune"]') + 'modes = ["inference", "training"]'
    )
    calls, steps = plan.plan(asked, [HERE])[0].cell, plan.plan(asked, [HERE])[-1].cell
    assert plan.estimate([calls, steps], asked.settings) == (
        4 * 4.0 + 15.0 + 60.0,
        "assuming 4 s a backend, compile-max-autotune 15 s more in inference and 60 s more in training, as on an H200",
    )
    assert plan.estimate([calls, steps, steps], asked.settings, [kept(steps, 200.0)]) == (
        23.0 + 400.0,
        "by the median of the 1 cell finished so far, the others assuming 4 s a backend, "
        "compile-max-autotune 15 s more in inference, as on an H200",
    )
    elsewhere = kept(Cell(work=calls.work, gpu="NVIDIA H200"), 1.0)
    assert plan.estimate([calls], asked.settings, [elsewhere]).seconds == 23.0
    assert plan.estimate([], asked.settings).seconds == 0


def test_how_far_a_run_is():
    assert plan.said(0, 4, plan.Estimate(240.0, ""), 2) == "0 of 4 cells, about 2 min left"
    assert plan.said(4, 4, plan.Estimate(0.0, ""), 0) == "4 of 4 cells"
