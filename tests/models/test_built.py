"""models.built: the MLP of a configuration is the one that transformers builds and `swap` would take."""

from __future__ import annotations

import json
import socket
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support.rings import only_first

from mlpfusion.errors import UsageError
from mlpfusion.models import built, known
from mlpfusion.spec import MLPSpec

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("transformers")
SMALL: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 2}
LLAMA = {"model_type": "llama", **SMALL}
MOE = {
    "model_type": "qwen2_moe",
    **SMALL,
    "num_experts": 4,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 24,
    "mlp_only_layers": [0],
}


def read(**values: Any) -> Any:
    return built.parse(values, name="model", source="config.json", dtype="float32")


def spec(hidden: int, intermediate: int, activation: Any = "silu", **more: Any) -> MLPSpec:
    return MLPSpec(hidden_size=hidden, intermediate_size=intermediate, activation=activation, dtype="float32", **more)


T5 = {"model_type": "t5", "d_model": 32, "d_ff": 48, "d_kv": 8, "num_heads": 2, "num_layers": 1}


@pytest.mark.parametrize(
    ("values", "expected", "inference_only"),
    only_first(
        [
            (LLAMA, spec(32, 48), False),
            ({**LLAMA, "mlp_bias": True, "hidden_act": "gelu"}, spec(32, 48, "gelu", bias=True), False),
            ({**LLAMA, "model_type": "gemma", "hidden_act": "gelu", "head_dim": 16}, spec(32, 48, "gelu_tanh"), False),
            ({**LLAMA, "model_type": "phi3", "pad_token_id": 0}, spec(32, 48), False),
            ({"model_type": "lfm2", **SMALL, "num_key_value_heads": 2}, spec(32, 256), False),
            ({**T5, "feed_forward_proj": "gated-gelu"}, spec(32, 48, "gelu_tanh"), True),
            ({**T5, "feed_forward_proj": "gated-silu", "dropout_rate": 0.0}, spec(32, 48), False),
            ({"model_type": "dinov2", **SMALL, "mlp_ratio": 3, "use_swiglu_ffn": True}, spec(32, 64, bias=True), False),
            ({"model_type": "gemma3", "text_config": {**SMALL, "head_dim": 16}}, spec(32, 48, "gelu_tanh"), False),
        ]
    ),
)
def test_the_mlp_that_the_library_builds(values: dict[str, Any], expected: MLPSpec, inference_only: bool) -> None:
    found = read(**values)
    assert found.spec == expected
    assert (found.inference_only is not None) is inference_only


def test_what_most_layers_have_and_all_else_in_notes() -> None:
    found = read(**MOE)
    assert found.spec == spec(32, 24)
    assert found.notes == (
        "2 of its MLPs are this one; it also has 1 of silu 32 x 48",
        "its 8 routed experts are one grouped operator, not a gated MLP",
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({**LLAMA, "model_type": "lama"}, r"model_type 'lama' is not known to transformers 5.*; nearest: llama, "),
        ({**LLAMA, "hidden_act": "xielu2"}, "transformers builds no model of it: KeyError: .*xielu2"),
        ({**LLAMA, "hidden_size": "32"}, "its values cannot be read: .*hidden_size"),
        ({**LLAMA, "num_hidden_layers": 10**9}, "num_hidden_layers must be an integer from 0 to 1000, got 1000000000"),
        ({**LLAMA, "num_hidden_layers": 0}, "model_type 'llama' has no gated MLP that a backend runs$"),
        (
            {**MOE, "model_type": "mixtral"},
            r"has no gated MLP that a backend runs: .* its 4 experts are 3-D parameters",
        ),
        (
            {"model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 2},
            r"h\.0\.mlp \(GPT2MLP\): it is not gated: c_fc",
        ),
        ({"model_type": "bitnet", **SMALL}, r"\(BitNetMLP\): .*extra maths; it has .*ffn_sub_norm"),
    ],
)
def test_what_is_refused_in_one_line(values: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        read(**values)
    assert len(str(caught.value).splitlines()) == 1


def test_half_precision_that_the_library_keeps_wide() -> None:
    with pytest.raises(UsageError, match="in float16 the library keeps wo in float32"):
        built.parse({**T5, "feed_forward_proj": "gated-gelu"}, name="m", source="c", dtype="float16")


def test_layers_that_are_alike_are_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from mlpfusion.models import swap

    judged = []
    examine = swap.examine
    monkeypatch.setattr(swap, "examine", lambda module: judged.append(type(module).__name__) or examine(module))
    read(**{**LLAMA, "model_type": "gemma", "head_dim": 16})
    assert judged.count("GemmaMLP") == 1


def test_a_file_runs_no_code_and_asks_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(socket, "socket", lambda *args, **options: pytest.fail("it asked the network"))
    monkeypatch.setattr("builtins.input", lambda *args: pytest.fail("it asked the user"))
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    code = {"auto_map": {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}, "custom_pipelines": {"a": "b"}}
    kernel = {"_attn_implementation": "some/kernel", "attn_implementation": "flash_attention_2"}
    text = json.dumps({**LLAMA, "dtype": "float32", **code, **kernel})
    (tmp_path / "config.json").write_text(text)
    assert known.find(tmp_path).spec == spec(32, 48)
    assert not (tmp_path / "ran").exists()
    assert capsys.readouterr().err == ""


def test_without_the_library_the_names_are_read_and_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "hidden_act": "silu", "dtype": "float32"}))
    with_library = known.find(tmp_path)
    monkeypatch.setitem(sys.modules, "transformers", None)
    without = known.find(tmp_path)
    assert without.spec == with_library.spec
    assert "read by its names alone, as transformers is not installed" in without.notes
