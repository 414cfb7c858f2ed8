"""What `mlpfusion choose` prints, in four formats, what it writes and what it refuses."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from support import in_this_process
from support.choices_made import SPEC, Bench

from mlpfusion import GatedMLP
from mlpfusion.__main__ import main as run_main
from mlpfusion.storage import results
from mlpfusion.workers import supervise

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the choice without a GPU")


def cli(monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["mlpfusion", "choose", *arguments])
    return run_main()


@pytest.mark.full  # a whole measurement
def test_the_command_measures_and_what_it_writes_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervise, "run", in_this_process.run)
    config = {
        "model_type": "gemma",
        "hidden_size": 16,
        "intermediate_size": 64,
        "hidden_act": "gelu",
        "dtype": "float32",
    }
    Path("tiny").mkdir()
    Path("tiny", "config.json").write_text(json.dumps(config), encoding="utf-8")
    asked = ("tiny", "--tp", "2", "--tokens", "1,4", "--backends", "eager,fused", "--rounds", "20", "--device", "cpu")
    assert cli(monkeypatch, *asked) == 0
    out, err = capsys.readouterr()
    assert "gelu_tanh" in out
    assert "steps, about" in err
    path = Path("choices", "tiny-float32-tp2", "choice.json")
    made = results.load_choice(path)
    assert (made.spec, made.tp, made.clock) == (replace(SPEC, intermediate_size=32), 2, "wall_us")
    assert [(each.backend, each.first, each.last) for each in made.ranges] == [("eager", 1, None)]
    mlp, x = GatedMLP(made.spec, backend=f"auto:{path}"), torch.randn(3, 16)
    with torch.no_grad():
        assert torch.equal(mlp(x), copy.deepcopy(mlp).set_backend("eager")(x))
    assert cli(monkeypatch, *asked, "--format", "csv") == 0
    out, err = capsys.readouterr()
    assert "qualify" not in err
    assert out.startswith("model,device,torch,")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            (),
            "no model: give a config.json, its directory, --hidden-size and --intermediate-size, or article, gemma-2b",
        ),
        (("--hidden-size", "64"), "--hidden-size needs --intermediate-size too, or name a model"),
        (("gemma-2b", "--intermediate-size", "64"), "--intermediate-size does not go with a model"),
        (("nowhere",), "unknown model 'nowhere'"),
        (("article", "--tokens", "1,,2"), "--tokens '1,,2' has an empty name"),
        (("article", "--tokens", "0"), "--tokens must be an integer from 1 to 2147483647, got '0'"),
        (("article", "--mode", "decode"), "unknown mode 'decode'"),
        (
            ("article", "--device", "a100-80gb"),
            "nothing to predict NVIDIA A100-SXM4-80GB from: no GPU is here to measure",
        ),
        (("article", "--device", "a100-80gb", "--dtype", "float32"), "float32 has no peak among the known cards"),
        (
            ("article", "--device", "a100-80gb", "--clock", "wall_us"),
            "--clock wall_us does not go with --device a100-80gb",
        ),
        (("article", "--format", "html"), "unknown format 'html'"),
    ],
)
def test_a_bad_command_is_one_line_and_writes_nothing(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert cli(monkeypatch, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_command_says_what_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Bench(monkeypatch, stop_after=(1, "eager"))
    asked = (
        "--hidden-size",
        "16",
        "--intermediate-size",
        "32",
        "--tokens",
        "1",
        "--backends",
        "eager,compile",
        "--device",
        "cpu",
    )
    assert cli(monkeypatch, *asked) == 130
    assert "what was finished is in choices/16x32-gelu_tanh-bfloat16" in capsys.readouterr().err
