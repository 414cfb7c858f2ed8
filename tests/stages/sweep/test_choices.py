"""Choices of a study are those that measuring alone would give, for what the cells were measured with."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.studies_made import SMALL, host, read, result, workers

from mlpfusion.errors import UsageError
from mlpfusion.stages.sweep import folder, run
from mlpfusion.stages.sweep.choices import choices
from mlpfusion.storage import results

__all__ = ["workers"]


def sweep(tmp_path, text=SMALL):
    return run.sweep(read(tmp_path, text), host(), out=tmp_path / "out")


def test_a_choice_for_each_model_share_and_dtype(tmp_path, workers):
    study = sweep(tmp_path, SMALL.replace("rounds", 'tp = [1, 2]\ndtypes = ["float32", "float16"]\nrounds'))
    found = choices(str(tmp_path / "out"))
    assert {(each.model.name, each.tp, each.model.spec.dtype) for each in found} == {
        ("tiny", tp, dtype) for tp in (1, 2) for dtype in ("float32", "float16")
    }
    for each in found:
        assert [(part.backend, part.first, part.last) for part in each.ranges] == [("eager", 1, None)]
        assert [point.tokens for point in each.points] == [1, 4]
        assert each.spec == replace(each.model.spec, intermediate_size=32 // each.tp)
        assert (each.clock, each.rounds) == ("wall_us", 5)
        assert each.created == result().created  # when it was measured, not when it was chosen
        assert each.holds.versions["torch"] == study.nodes["node 1"].versions["torch"]
        assert {"torch", "triton", "mlpfusion", "mlpfusion_kernels"} <= set(each.holds.versions)


def test_what_is_not_there_is_refused(tmp_path, workers):
    with pytest.raises(UsageError, match="is no study's folder"):
        choices(str(tmp_path))
    study = sweep(tmp_path)
    with pytest.raises(UsageError, match="study 'small' has no model 'article'; valid: tiny"):
        choices(str(tmp_path / "out"), model="article")
    with pytest.raises(UsageError, match="clock 'event_us' needs a GPU"):
        choices(str(tmp_path / "out"), clock="event_us")
    unfinished = replace(study, cells=tuple(replace(each, state="failed") for each in study.cells))
    results.save(unfinished, tmp_path / "out" / folder.STUDY_NAME)
    with pytest.raises(UsageError, match="study 'small' has no finished cell of tiny"):
        choices(str(tmp_path / "out"), model="tiny")


def test_cells_of_different_versions_make_no_choice(tmp_path, workers):
    study = sweep(tmp_path)
    holds = study.nodes["node 1"]
    cells = (study.cells[0], replace(study.cells[1], node="node 2"))
    other = replace(holds, versions={**holds.versions, "torch": "1.0"})
    results.save(
        replace(study, cells=cells, nodes={"node 1": holds, "node 2": other}), tmp_path / "out" / folder.STUDY_NAME
    )
    with pytest.raises(UsageError, match="measured with different versions"):
        choices(str(tmp_path / "out"))
