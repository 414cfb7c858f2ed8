"""Families of models: every default is the library's own."""

from __future__ import annotations

import itertools

import pytest
from support.transformers_mlps import FEW, agrees_with_the_library

from mlpfusion.models.families import FAMILIES
from mlpfusion.spec import TABLE

GATED = {"feed_forward_proj": "gated-gelu"}


@pytest.mark.parametrize("kind", sorted(FAMILIES))
def test_every_default_is_the_librarys(kind):
    t5 = FAMILIES[kind].activation_key == "feed_forward_proj"
    agrees_with_the_library(kind, {**GATED, "num_layers": 1} if t5 else FEW)


ACTS = itertools.cycle(row.hidden_act for row in TABLE)


@pytest.mark.parametrize(("kind", "act"), [(kind, next(ACTS)) for kind in sorted(FAMILIES)])
def test_what_a_file_says_counts(kind, act):
    family = FAMILIES[kind]
    sizes = {family.hidden_key: 256, family.intermediate_key: 640}
    more = {"num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64, **FEW}
    if family.activation_key == "feed_forward_proj":
        more = {"num_layers": 1, "num_heads": 4, "feed_forward_proj": "gated-silu"}
    elif family.activation_key:
        more[family.activation_key] = act
    if family.bias_key:
        more[family.bias_key] = True
    agrees_with_the_library(kind, {**sizes, **more})
