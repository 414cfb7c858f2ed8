"""`mlpfusion prove` on models that cannot be built, read or run: one line and an exit code, no traceback."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.choices_made import a_choice, part
from support.plain_mlp import Plain
from support.tiny_models import SIZES
from torch import nn

from mlpfusion.backends.auto import Auto
from mlpfusion.cli import main
from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.models.swap import swap
from mlpfusion.spec import MLPSpec
from mlpfusion.stages.prove.run import prove

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("transformers")
LLAMA = {"model_type": "llama", **SIZES}


def said(folder: Path, capsys: Any, *options: str) -> str:
    """The one line that a refused proof ends with."""
    code = main.main(["prove", str(folder), "--backend", "eager", "--rounds", "0", "--device", "cpu", *options])
    last: str = capsys.readouterr().err.splitlines()[-1]
    assert code == 2
    assert last.startswith("mlpfusion: ")
    return last


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"hidden_size": "x"}, "hidden_size"),
        ({"hidden_size": -1}, "hidden size"),
        ({"hidden_act": "nope"}, "nope"),
        ({"num_attention_heads": 0}, "cannot be read: ZeroDivisionError"),
        ({"dtype": "nope"}, "nope"),
        ({"vocab_size": 0, "pad_token_id": None}, "vocab_size must be an integer from 1 to 2147483647, got 0"),
        ({"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}, "its weights are quantised"),
    ],
)
def test_a_config_that_builds_nothing(changes: dict[str, Any], expected: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, **changes}), encoding="utf-8")
    assert expected in said(tmp_path, capsys)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("damage", ["short", "index", "others"])
def test_weights_that_cannot_be_read(damage: str, saved: Path, tmp_path: Path, capsys: Any) -> None:
    from safetensors.torch import load_file, save_file

    file = tmp_path / "model.safetensors"
    shutil.copy(saved / "config.json", tmp_path)
    if damage == "short":
        file.write_bytes((saved / file.name).read_bytes()[:100])
    elif damage == "index":
        (tmp_path / "model.safetensors.index.json").write_text("{}", encoding="utf-8")
    else:  # as of a model with several parts: the language model's names are longer there
        whole = load_file(saved / file.name)
        save_file({f"text.{name}": value for name, value in whole.items()}, file, metadata={"format": "pt"})
    expected = {
        "short": "its weights cannot be read",
        "index": "has no weight_map of names and files",
        "others": "its weights lack 21 of the model's",
    }
    assert expected[damage] in said(tmp_path, capsys)


def test_inputs_that_do_not_fit_and_bad_rounds(saved: Path, capsys: Any) -> None:
    assert "--seq must be an integer from 1 to 2147483647" in said(saved, capsys, "--seq", "99999999999999")
    assert "batch 1 x seq 2147483647 with a vocabulary of" in said(saved, capsys, "--seq", "2147483647")
    assert "--rounds must be an integer from 0 to 100000, got '-1'" in said(saved, capsys, "--rounds", "-1")


def test_by_which_way_the_backend_comes_in(saved: Path, capsys: Any) -> None:
    assert "unknown how 'magic'; valid: swap, inductor" in said(saved, capsys, "--how", "magic")
    assert "--where is for --how swap" in said(saved, capsys, "--how", "inductor", "--where", "model.*")


@pytest.mark.full  # Inductor compiles the model in two states, with gradients and without
def test_a_model_is_compiled_with_the_pass_and_without(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    given = ("--backend", "eager", "--layers", "1", "--seq", "8", "--rounds", "0", "--no-trace", "--device", "cpu")
    code = main.main(["prove", str(tmp_path), *given, "--how", "inductor", "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [each["name"] for each in found["swapped"]] == ["model.layers.0.mlp"]
    assert [each["name"] for each in found["layers"]] == ["model.layers.0.mlp"]
    assert found["how"] == "inductor"


def test_a_model_that_does_not_run_as_it_was() -> None:
    handle = swap(nn.Sequential(Plain(), nn.Linear(5, 5)), "eager")
    with pytest.raises(UsageError, match=r"the model does not run on these inputs: RuntimeError: .*mat1 and mat2"):
        prove(handle, torch.randn(2, 32))


@pytest.mark.parametrize("given", [None, [1], "ids"])
def test_inputs_of_a_wrong_kind(given: Any) -> None:
    with swap(Plain(), "eager") as handle, pytest.raises(UsageError, match="inputs must be a tensor or keyword arg"):
        prove(handle, given)


def test_each_part_stays_in_its_mode() -> None:
    model = nn.Sequential(Plain(), nn.Dropout(0.5)).train()
    model[1].eval()
    with swap(model, "eager") as handle:
        prove(handle, torch.randn(2, 32), rounds=0, trace=False)
    assert [module.training for module in model] == [True, False]


@pytest.mark.full  # it proves a module with its traces, in a minute on a busy machine
def test_a_choice_of_eager_may_run_the_same_kernels() -> None:
    spec = MLPSpec(hidden_size=32, intermediate_size=48, activation="silu", dtype="float32")
    ranges = part("eager"), part("eager", mode="training")
    with swap(Plain(), Auto(a_choice(*ranges, spec=spec))) as handle:
        proof = prove(handle, torch.randn(2, 32), rounds=0)
    assert proof.kernels
    assert proof.holds, proof.failures


def test_no_memory_is_one_line() -> None:
    class Greedy:
        name = "greedy"

        def unsupported(self, spec: object, device: object) -> str | None:
            return None

        def bind(self, mlp: Any) -> Any:
            def forward(x: torch.Tensor) -> torch.Tensor:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")

            return forward

    with (
        swap(Plain(), Greedy()) as handle,
        pytest.raises(MlpfusionError, match="too little memory for the proof: CUDA"),
    ):
        prove(handle, torch.randn(2, 32))
