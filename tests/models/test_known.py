"""Models by name, by configuration and by sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.transformers_mlps import library

from mlpfusion.errors import UsageError
from mlpfusion.models import known
from mlpfusion.models.families import FAMILIES
from mlpfusion.spec import parse_activation


def test_a_known_name_is_not_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("gemma-2b").mkdir()
    assert known.find("gemma-2b").spec.intermediate_size == 16384
    with pytest.raises(UsageError, match=r"'gemma-2b/config.json' does not exist"):
        known.find("./gemma-2b")


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(UsageError, match=r"unknown model 'gemma-9t'.*; nearest: gemma-2-9b, gemma-7b, gemma-2b$"):
        known.find("gemma-9t")


def test_every_known_model_has_a_source():
    assert len(known.models()) == 24
    for model in known.models().values():
        assert model.source.startswith("https://huggingface.co/") or model.name == "article"
        assert model.spec.hidden_size % 16 == model.spec.intermediate_size % 16 == 0


def test_another_dtype_is_noted():
    model = known.find("gemma-2b", dtype="float16")
    assert model.spec.dtype == "float16"
    assert model.notes == ("float16 as requested instead of bfloat16",)
    assert known.find("gemma-2b", dtype="bfloat16") == known.find("gemma-2b")


# The library's conversion script takes its defaults for Gemma 7B; its documentation names Mistral 7B for Mistral's.
@pytest.mark.parametrize(("name", "kind"), [("gemma-7b", "gemma"), ("mistral-7b", "mistral")])
def test_a_known_model_that_is_the_librarys_default(name, kind):
    mapping, _ = library()
    model, default = known.find(name).spec, mapping[kind]()
    assert (model.hidden_size, model.intermediate_size) == (default.hidden_size, default.intermediate_size)
    assert model.activation == parse_activation(getattr(default, FAMILIES[kind].activation_key))
