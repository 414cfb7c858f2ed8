"""What a study file says, and what is refused in it, by line and name."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import ROOT
from support.studies_made import TINY, read, written

from mlpfusion.errors import UsageError
from mlpfusion.spec import DTYPES, MODES
from mlpfusion.stages.sweep import study


def cells(found):
    return {
        (str(use), each.workload.tokens, each.workload.spec.dtype, each.workload.mode)
        for each in found.work
        for use in each.of
    }


def refused(folder, text):
    with pytest.raises(UsageError) as caught:
        read(folder, text)
    said = str(caught.value)
    assert len(said.splitlines()) == 1
    assert "small.toml" in said
    return said


def test_the_defaults_are_those_of_choose(tmp_path):
    found = read(tmp_path, 'models = ["article"]')
    assert found.name == "small"
    assert cells(found) == {("article", tokens, "bfloat16", "inference") for tokens in (1, 16, 256, 2048, 8192)}
    assert (found.settings.rounds, found.settings.processes, found.settings.gpus) == (60, 1, None)
    assert found.settings.backends[0] == "eager"


@given(
    tokens=st.sets(st.integers(1, 9999), min_size=1, max_size=4),
    dtypes=st.sets(st.sampled_from(DTYPES), min_size=1),
    modes=st.sets(st.sampled_from(MODES), min_size=1),
    tp=st.sets(st.sampled_from([1, 2, 4]), min_size=1),
)
def test_the_cells_are_the_product(tmp_path, tokens, dtypes, modes, tp):
    lists = {"tokens": sorted(tokens), "dtypes": sorted(dtypes), "modes": sorted(modes), "tp": sorted(tp)}
    text = "".join(f"{name} = {json.dumps(values)}\n" for name, values in lists.items())
    found = read(tmp_path, f'models = ["gemma-2b", {TINY}]\n{text}')
    assert len(cells(found)) == len(found.work) == 2 * len(tokens) * len(dtypes) * len(modes) * len(tp)
    assert {each.workload.spec.intermediate_size for each in found.work} == {
        size // part for size in (16384, 32) for part in tp
    }


def test_exclude_takes_cells_out_of_the_product_and_also_adds_others(tmp_path):
    text = f"""models = [{TINY}, "article"]
tokens = [1, 8]
modes = ["inference", "training"]
dtypes = ["fp32"]
[[exclude]]
models = ["article"]
modes = ["training"]
[[exclude]]
tokens = [8]
[[also]]
tokens = [8]
models = ["article"]
tp = [2]
modes = ["training"]
"""
    assert cells(read(tmp_path, text)) == {
        ("tiny", 1, "float32", "inference"),
        ("tiny", 1, "float32", "training"),
        ("article", 1, "float32", "inference"),
        ("article tp2", 8, "float32", "training"),
    }


def test_two_models_of_one_mlp_are_measured_once(tmp_path):
    found = read(tmp_path, 'models = ["llama-3.1-8b", "mistral-7b"]\ntokens = [1]')
    assert len(found.work) == 1
    assert [use.model for use in found.work[0].of] == ["llama-3.1-8b", "mistral-7b"]


def test_a_configuration_is_found_beside_the_study(tmp_path):
    config = {
        "model_type": "llama",
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "hidden_act": "silu",
        "dtype": "float32",
    }
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert [each.name for each in read(tmp_path, 'models = ["mine"]').models] == ["mine"]


WRONG = {
    "": "it names no models",
    "models = []": "line 1: models is empty",
    'models = ["nowhere"]': "line 1: models: unknown model 'nowhere'",
    'models = [\n"article",\n"article"\n]': "line 3: models has 'article' twice",
    f"models = [{TINY},\n{TINY.replace('64', '128')}]": "line 2: another model is named 'tiny' already",
    "models = [3]": "line 1: models: a model is a name, a path or a table of sizes, got 3",
    'models = ["article"]\ntoken = [1]': "line 2: unknown key 'token'; did you mean tokens? valid: models, tokens",
    'models = ["article"]\ntokens = []': "line 2: tokens is empty",
    'models = ["article"]\ntokens = [1,\n0]': "line 3: tokens: a number of tokens must be an integer from 1 to",
    'models = ["article"]\ntokens = [1, true]': "line 2: tokens: a number of tokens must be",
    'models = ["article"]\ntokens = ["1"]': "line 2: tokens: a number of tokens must be",
    'models = ["article"]\ntokens = [1, 1]': "line 2: tokens has 1 twice",
    'models = ["article"]\ndtypes = ["bf16", "bfloat16"]': "line 2: dtypes has 'bfloat16' twice",
    'models = ["article"]\ndtypes = ["int8"]': "line 2: dtypes: unknown dtype 'int8'; valid: bfloat16",
    'models = ["article"]\nmodes = ["decode"]': "line 2: modes: unknown mode 'decode'; valid: inference, training",
    'models = ["article"]\nbackends = []': "line 2: backends is empty",
    'models = ["article"]\nbackends = ["eager", "nope"]': "line 2: backends: unknown backend 'nope'; known: eager",
    'models = ["article"]\nbackends = [1]': "line 2: backends: a backend is a name, got 1",
    'models = ["article"]\n\ntp = [5]': "line 1: tp 5 does not divide the intermediate_size 3072 of article",
    'models = ["article"]\nrounds = 0': "line 2: rounds must be an integer from 1 to",
    'models = ["article"]\nprocesses = 31': "line 2: processes must be an integer from 1 to 30",
    'models = ["article"]\ncounters = 1': "line 2: counters must be true or false, got 1",
    'models = ["article"]\ntime_limit = nan': "line 2: time_limit must be a number of seconds",
    'models = ["article"]\ntime_limit = "600"': "line 2: time_limit must be a number of seconds",
    'models = ["article"]\ngpus = ["h2000"]': "line 2: gpus: unknown device 'h2000'; valid:",
    'models = ["article"]\ngpus = ["cuda"]': "line 2: gpus: unknown device 'cuda'; valid: cpu, or a card: a100-",
    'models = ["article"]\ngpus = []': "line 2: gpus is empty",
    'models = ["flan-t5-xxl"]\nmodes = ["training"]': "line 1: flan-t5-xxl is for inference alone",
    'models = ["article"]\n[[exclude]]\nbackends = ["eager"]': "line 3: unknown key 'backends' in [[exclude]]; valid:",
    'models = ["article"]\n[[exclude]]': "line 2: an empty [[exclude]] would exclude every cell",
    'models = ["article"]\n[[exclude]]\ntokens = [3]': "line 2: this [[exclude]] matches no cell",
    'models = ["article"]\ntokens = [3]\n[[exclude]]\ntokens = [3]': "line 3: no cell is left",
    'models = ["article"]\n[exclude]\ntokens = [3]': "line 2: exclude must be tables, as by [[exclude]]",
    'models = ["article"]\nexclude = []': "line 2: exclude is empty",
    'models = ["article"]\n[[also]]': "line 2: an empty [[also]] adds no cell",
    'models = ["article"]\n[[also]]\nrounds = 5': "line 3: unknown key 'rounds' in [[also]]",
    'models = ["article"]\n[[also]]\ntokens = [1]': "line 2: this [[also]] adds no cell",
    'models = ["article"]\n[[also]]\ntokens = [3,\n0]': "line 4: tokens: a number of tokens must be",
    'models = ["article"]\nmodels = ["article"]': "line 2: cannot overwrite a value",
    "models = [": "line 1: invalid value",
    'models = ["article"]\nx = ': "line 2: invalid value",
    'models = [{ hidden_size = 0, intermediate_size = 1, activation = "silu" }]': "line 1: models: hidden_size must be",
    'models = [{ hidden_size = 8, activation = "silu" }]': "line 1: models: a model of sizes needs intermediate_size",
    'models = [{ hidden_size = 8, intermediate_size = 8, activation = "x" }]': "line 1: models: unknown activation 'x'",
    "models = [{ hidden_size = 8, intermediate_size = 8, activation = 1 }]": "line 1: models: unknown activation 1",
    'models = [{ hidden_size = 8, intermediate_size = 8, activation = "silu", biass = true }]': "unknown key 'biass'",
    'models = [{ hidden_size = 8, intermediate_size = 8, activation = "silu", bias = 1 }]': "line 1: models: bias must",
    'models = [{ hidden_size = 8, intermediate_size = 8, activation = "silu", name = "" }]': "models: name must",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named_with_its_line(tmp_path, text):
    assert WRONG[text] in refused(tmp_path, text)


def test_a_study_that_is_none_is_refused(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        study.read(tmp_path / "none.toml")
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="no text in UTF-8: byte 0"):
        study.read(path)
    with pytest.raises(UsageError, match="is a directory"):
        study.read(tmp_path)


@given(st.text(max_size=60) | st.binary(max_size=60).map(lambda data: data.decode("latin-1")))
def test_any_text_is_a_study_or_refused_in_one_line(tmp_path, text):
    path = written(tmp_path, "")
    path.write_text(text, encoding="utf-8", errors="replace")
    with pytest.raises(UsageError) as caught:  # no text that short names a model
        study.read(path)
    assert len(str(caught.value).splitlines()) <= 1


def test_the_examples_have_the_cells_that_they_say():
    sizes = {path.stem: len(study.read(path).work) for path in sorted((ROOT / "examples/studies").glob("*.toml"))}
    assert sizes == {"article": 10, "decode": 49, "release": 66}  # two of decode's eight models have one MLP
