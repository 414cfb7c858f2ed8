"""Reading a model's configuration: right as the library builds it, or refused by name."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.transformers_mlps import FEW, agrees_with_the_library, library, parsed

from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.models import known
from mlpfusion.models.families import FAMILIES, REFUSED, TEXT_OF
from mlpfusion.spec import MLPSpec, parse_activation

GEMMA = {
    "model_type": "gemma",
    "hidden_size": 2048,
    "intermediate_size": 16384,
    "hidden_act": "gelu",
    "torch_dtype": "bfloat16",
}


# ---- the library's own behaviour -------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["gelu", "gelu_pytorch_tanh"])
@pytest.mark.parametrize("activation", [None, "gelu", "gelu_pytorch_tanh"])
@pytest.mark.parametrize("kind", ["gemma", "gemma2"])
def test_hidden_act_against_hidden_activation(kind, act, activation):
    changes = {"hidden_act": act, **FEW}
    if activation is not None:
        changes["hidden_activation"] = activation
    agrees_with_the_library(kind, changes)


@pytest.mark.parametrize("projection", ["gated-gelu", "gated-silu", "gated-relu", "gated-gelu_new"])
def test_t5s_projections(projection):
    agrees_with_the_library("t5", {"feed_forward_proj": projection, "num_layers": 1})


@pytest.mark.parametrize("adjust", [True, False])
@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_lfm2_computes_its_width(adjust, factor):
    changes = {"block_auto_adjust_ff_dim": adjust, "block_ffn_dim_multiplier": factor, "block_ff_dim": 6656}
    agrees_with_the_library("lfm2", {**changes, **FEW})


@pytest.mark.parametrize("kind", sorted(TEXT_OF))
def test_the_part_that_is_the_language_model(kind):
    mapping, _ = library()
    inner = mapping[kind](text_config={"hidden_size": 512, "intermediate_size": 1536}).text_config
    mine = parsed({"model_type": kind, "text_config": {"hidden_size": 512, "intermediate_size": 1536}}, dtype="float32")
    assert inner.model_type == TEXT_OF[kind]
    assert (mine.spec.hidden_size, mine.spec.intermediate_size) == (512, 1536)
    theirs = getattr(inner, FAMILIES[TEXT_OF[kind]].activation_key)
    assert mine.spec.activation == parse_activation(theirs)


def test_an_older_file_without_that_part():
    mapping, _ = library()
    flat = {"hidden_size": 1536, "intermediate_size": 8960}
    inner = mapping["qwen2_vl"](**flat).text_config
    mine = parsed({"model_type": "qwen2_vl", **flat}, dtype="float32").spec
    assert (mine.hidden_size, mine.intermediate_size) == (inner.hidden_size, inner.intermediate_size) == (1536, 8960)


# ---- without the library ---------------------------------------------------------------------------------------------


def test_the_first_gemmas_gelu_is_tanh():
    model = parsed(GEMMA)
    assert model.spec == MLPSpec(hidden_size=2048, intermediate_size=16384)
    assert any("stands for tanh-GELU" in note for note in model.notes)
    assert known.find("gemma-2b").spec == model.spec


def test_gemma_3_says_its_sizes_alone():
    text = {"hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34}
    model = parsed({"model_type": "gemma3", "text_config": text, "torch_dtype": "bfloat16"})
    assert model.spec == known.find("gemma-3-4b").spec
    assert any("hidden_activation is not in the file" in note for note in model.notes)


def test_t5_trains_with_dropout_in_the_middle():
    t5 = {"model_type": "t5", "d_model": 2048, "d_ff": 5120, "feed_forward_proj": "gated-gelu", "dropout_rate": 0.1}
    model = parsed(t5, dtype="float32")
    assert model.spec == known.find("t5-v1.1-xl").spec
    assert model.inference_only == known.find("t5-v1.1-xl").inference_only
    assert parsed({**t5, "dropout_rate": 0.0}, dtype="float32").inference_only is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hidden_act": "xielu"}, "unknown activation 'xielu'; valid: gelu_tanh, gelu, silu, "),
        ({"hidden_act": ["gelu"]}, r"unknown activation \['gelu'\]"),
        ({"hidden_size": "2048"}, "hidden_size must be an integer from 1 to 2147483647, got '2048'"),
        ({"intermediate_size": 0}, "intermediate_size must be an integer from 1 to 2147483647, got 0"),
        ({"model_type": None}, "it has no model_type"),
        (
            {"model_type": "gemma9"},
            "model_type 'gemma9' is not known; nearest: gemma, gemma2, vaultgemma; or give the sizes",
        ),
        ({"model_type": "vision", "text_config": {}}, "model_type 'vision', of several parts, is not known; nearest: "),
        ({"model_type": "gemma3", "text_config": 3}, "text_config must be an object, got 3"),
        ({"num_experts": 8}, "num_experts says that its MLPs are experts"),
        ({"quantization_config": {"quant_method": "fp8"}}, "its weights are quantised"),
        ({"torch_dtype": "float8_e4m3fn"}, "unknown dtype 'float8_e4m3fn'; valid: bfloat16"),
        ({"torch_dtype": None}, "it names no dtype; give --dtype"),
        ({"model_type": "llama", "hidden_act": "silu", "mlp_bias": 3}, "mlp_bias must be true or false, got 3"),
        ({"model_type": "falcon_h1", "hidden_act": "silu", "mlp_multipliers": [0.5, 2.0]}, "extra maths: mlp_multip"),
        ({"model_type": "t5", "feed_forward_proj": "relu"}, "its MLP is not gated: feed_forward_proj 'relu'"),
        ({"model_type": "t5", "feed_forward_proj": "gated-gelu", "dtype": "float16"}, "keeps wo in float32"),
        ({"model_type": "gemma3n_text", "intermediate_size": [1, 2]}, "its layers have several sizes"),
    ],
)
def test_what_is_refused(changes, said):
    with pytest.raises(UsageError, match=said):
        parsed({**GEMMA, **changes})


@pytest.mark.parametrize("kind", sorted(REFUSED))
def test_a_model_without_one_gated_mlp(kind):
    with pytest.raises(UsageError, match=f"model_type '{kind}': ") as caught:
        parsed({**GEMMA, "model_type": kind})
    assert REFUSED[kind] in str(caught.value)


LEAVES = st.sampled_from(
    [None, True, False, 0, 1, -3, 16, 2**70, 0.5, float("inf"), float("nan"), "", "gelu", "bfloat16"]
)
JSON = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(st.sampled_from(["model_type", "x"]), LEAVES, max_size=2)
KEYS = sorted(
    {family.activation_key for family in FAMILIES.values()}
    | {"hidden_size", "intermediate_size", "d_model", "d_ff", "dtype", "torch_dtype", "text_config", "num_experts"}
    | {"mlp_bias", "use_bias", "mlp_multipliers", "block_multiple_of", "block_ffn_dim_multiplier", "dropout_rate"}
    | {"activation_sparsity_pattern", "block_ff_dim", "quantization_config"}
)


@given(
    kind=st.sampled_from(sorted(FAMILIES) + sorted(TEXT_OF)) | JSON,
    values=st.dictionaries(st.sampled_from(KEYS), JSON),
)
def test_whatever_a_file_holds_it_is_read_or_refused(kind, values):
    try:
        model = parsed({"model_type": kind, **values})
    except UsageError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017
    else:
        assert model.spec.hidden_size > 0


# ---- where it comes from ---------------------------------------------------------------------------------------------


def test_a_file_or_its_directory(tmp_path):
    folder = tmp_path / "my-gemma"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(GEMMA), encoding="utf-8")
    by_folder, by_file = known.find(folder), known.find(str(folder / "config.json"))
    assert by_folder == by_file
    assert (by_folder.name, by_folder.source) == ("my-gemma", "config.json")
    assert known.find(folder, dtype="float16").spec.dtype == "float16"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON, or cut short"),
        ("[]", "is no object of names and values"),
        ('"gemma"', "is no object"),
        ("\xff", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        (
            json.dumps({**GEMMA, "model_type": "gpt2", "n_head": 16, "n_layer": 1}),
            r"config.json': model_type 'gpt2' has no gated MLP .*it is not gated",
        ),
    ],
)
def test_a_file_that_is_none(tmp_path, text, said):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=said):
        known.find(tmp_path)


def test_it_needs_neither_torch_nor_transformers(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(GEMMA), encoding="utf-8")
    code = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from mlpfusion.models import known\n"
        f"print(known.find({str(tmp_path)!r}).spec.activation, known.find('article').spec.hidden_size)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["gelu_tanh", "768"]


def test_errors_are_ours():
    assert issubclass(UsageError, MlpfusionError)
