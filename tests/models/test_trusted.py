"""models.trusted: a model's folder runs no code, asks no network, and every way to have it do so is refused by name."""

from __future__ import annotations

import json
import os
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support.tiny_models import SIZES

from mlpfusion.cli import main
from mlpfusion.models import load, trusted

if TYPE_CHECKING:
    from collections.abc import Callable

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("model")
    LlamaForCausalLM(LlamaConfig(**SIZES)).save_pretrained(folder)
    return folder


@pytest.fixture
def evil(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's folder with code that would be seen to run, where neither the network nor the user may be asked."""
    folder = Path(shutil.copytree(saved, tmp_path / "model"))
    (folder / "evil.py").write_text(f"open({str(ran(folder))!r}, 'w')\n")
    monkeypatch.setattr(socket, "socket", lambda *args, **options: pytest.fail("it asked the network"))
    monkeypatch.setattr("builtins.input", lambda *args: pytest.fail("it asked the user"))
    return folder


def ran(folder: Path) -> Path:
    """What the code in this folder makes."""
    return folder.parent / "ran"


def refused(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    assert main.main(["prove", str(folder), "--backend", "eager", "--device", "cpu", "--rounds", "0", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    return str(err)


def changed(file: str, **values: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / file
        before = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**before, **values}))

    return change


def index(*names: str) -> Callable[[Path], None]:
    return changed("model.safetensors.index.json", weight_map={f"w{place}": name for place, name in enumerate(names)})


KERNELS = [
    *("org/repo", "org/repo@main", "org/repo:function", "org/repo@v1:function", "paged|org/repo", "a/b/c"),
    *("flash_attention_2", "flash_attention_3", "paged|flash_attention_4", "deepgemm", "sonicmoe", "another"),
]
OWN = {"auto_map": {"AutoConfig": "evil.Config"}}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (changed("config.json", **OWN), "give a copy of the model without this key"),
        (changed("config.json", text_config=OWN), "give a copy of the model without this key"),
        (changed("generation_config.json", **OWN), "give a copy of the model without this key"),
        (changed("config.json", transformers_weights="evil.bin"), "evil.bin"),
        *[
            ((lambda folder, n=name: (folder / n).write_bytes(b"\x80\x04.")), name)
            for name in (
                *(
                    "pytorch_model.bin",
                    "pytorch_model-00001-of-00002.bin",
                    "model.pt",
                    "last.ckpt",
                    "w.pth",
                    "w.pickle",
                ),
                *("PYTORCH_MODEL.BIN", "W.Pt"),
            )
        ],
        (changed("adapter_config.json", base_model_name_or_path="org/other"), "adapter_config.json"),
        (index("../other/model.safetensors"), "../other/model.safetensors"),
        (index("/etc/model.safetensors"), "/etc/model.safetensors"),
        (index("missing.safetensors"), "missing.safetensors"),
        (index("model.bin"), "model.bin"),
        (changed("model.safetensors.index.json", weight_map=[]), "weight_map"),
    ],
)
def test_what_would_run_or_fetch_something_is_refused_by_name(
    evil: Path, capsys: pytest.CaptureFixture[str], change: Callable[[Path], Any], name: str
) -> None:
    change(evil)
    assert name in refused(evil, capsys)
    assert not ran(evil).exists()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("config.json", lambda kernel: {"attn_implementation": kernel}),
        ("config.json", lambda kernel: {"_attn_implementation": kernel}),
        ("config.json", lambda kernel: {"text_config": {"attn_implementation": kernel}}),
        ("config.json", lambda kernel: {"attn_implementation": {"text_config": kernel}}),
        ("config.json", lambda kernel: {"experts_implementation": kernel}),
        ("generation_config.json", lambda kernel: {"attn_implementation": kernel}),
    ],
)
def test_a_kernel_to_be_fetched_is_refused_by_name(
    evil: Path, capsys: pytest.CaptureFixture[str], file: str, values: Callable[[str], dict[str, Any]], kernel: str
) -> None:
    changed(file, **values(kernel))(evil)
    assert kernel in refused(evil, capsys)
    assert not ran(evil).exists()


@pytest.mark.parametrize(
    "name",
    ["pytorch_model.bin", "pytorch_model.bin.index.json", "model.gguf", "Model.GGUF", "w.npz", "model.onnx", "rust.ot"],
)
def test_other_weights_without_safetensors_are_not_taken_for_no_weights(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    folder = Path(shutil.copytree(saved, tmp_path / "model"))
    (folder / "model.safetensors").rename(folder / name)
    assert repr(name) in refused(folder, capsys)


@pytest.mark.parametrize("name", ["model.gguf", "w.npz", "model.onnx", "tokenizer.model", "notes.txt"])
def test_what_runs_no_code_may_lie_beside_safetensors(saved: Path, tmp_path: Path, name: str) -> None:
    folder = Path(shutil.copytree(saved, tmp_path / "model"))
    (folder / name).write_bytes(b"\x80\x04.")
    trusted.check_weights(folder)


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
@pytest.mark.parametrize("value", ["eager", "sdpa", "paged|eager", None])
def test_what_the_library_itself_runs_is_taken(saved: Path, tmp_path: Path, key: str, value: str | None) -> None:
    folder = Path(shutil.copytree(saved, tmp_path / "model"))
    changed("config.json", **{key: value})(folder)
    trusted.check_configs(folder, folder / "config.json")
    trusted.check_weights(folder)


def test_links_and_what_a_trainer_left_are_read(saved: Path, tmp_path: Path) -> None:
    for path in saved.iterdir():  # as in the cache of the Hub
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "training_args.bin").write_bytes(b"")
    assert load.load_model(tmp_path, device="cpu", dtype=None, layers=None, seed=0)


def test_offline_is_for_the_time_of_the_load_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    before = constants.HF_HUB_OFFLINE
    with trusted.offline():
        assert os.environ["HF_HUB_OFFLINE"] == os.environ["TRANSFORMERS_OFFLINE"] == "1"
        assert constants.HF_HUB_OFFLINE
    assert (os.environ["HF_HUB_OFFLINE"], constants.HF_HUB_OFFLINE) == ("0", before)
