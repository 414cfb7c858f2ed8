"""`mlpfusion choose --from STUDY` writes the choices of a study, and takes nothing that the study has settled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command import refused, run
from support.studies_made import SMALL, workers, written

from mlpfusion.storage import results

__all__ = ["workers"]


@pytest.fixture
def study(tmp_path, monkeypatch, capsys, workers):
    monkeypatch.chdir(tmp_path)
    second = '{ name = "other", hidden_size = 64, intermediate_size = 48, activation = "silu", dtype = "float32" }'
    path = written(tmp_path, SMALL.replace("models = [", f"models = [{second}, "))
    assert run(capsys, "sweep", str(path), "--device", "cpu")[0] == 0
    return "sweeps/small"


def test_every_model_has_a_choice(study, capsys):
    code, out, err = run(capsys, "choose", "--from", study)
    assert code == 0
    assert out.count("tiny") >= 1
    assert err.splitlines() == [f"saved in choices/{name}-float32/choice.json" for name in ("other", "tiny")]
    assert results.load_choice("choices/tiny-float32/choice.json").model.name == "tiny"
    _, out, _ = run(capsys, "choose", "--from", study, "--format", "json")
    assert [each["model"]["name"] for each in json.loads(out)] == ["other", "tiny"]


def test_one_model_has_its_choice(study, capsys):
    code, out, _ = run(
        capsys, "choose", "tiny", "--from", study, "--out", "mine", "--clock", "wall_us", "--format", "json"
    )
    assert (code, json.loads(out)["kind"]) == (0, "choice")
    assert [str(path) for path in Path("mine").rglob("*.json")] == ["mine/tiny-float32/choice.json"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--tokens", "4"), "--tokens does not go with --from: the study has settled it"),
        (("--hidden-size", "4"), "--hidden-size does not go with --from"),
        (("--fresh",), "--fresh does not go with --from"),
        (("nowhere",), "has no model 'nowhere'; valid: other, tiny"),
        (("--clock", "cycles"), "unknown clock 'cycles'"),
    ],
)
def test_what_does_not_go_with_it_is_refused(study, capsys, arguments, said):
    assert said in refused(capsys, "choose", *arguments, "--from", study)
