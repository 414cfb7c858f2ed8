"""What a spec accepts, and the formulas on it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.errors import UsageError
from mlpfusion.spec import ACTIVATIONS, DTYPES, MLPSpec, Workload, parse_activation, parse_dtype

ARTICLE = Workload(spec=MLPSpec(hidden_size=768, intermediate_size=3072), batch=64, seq=128)


@pytest.mark.parametrize("value", [0, -1, 3.0, "8", None, True, 10**30 * -1])
def test_sizes_must_be_positive_integers(value):
    for field in ("hidden_size", "intermediate_size"):
        sizes = {"hidden_size": 8, "intermediate_size": 8, field: value}
        with pytest.raises(UsageError, match=f"{field} must be an integer from 1 to 2147483647, got {value!r}"):
            MLPSpec(**sizes)
    for field in ("batch", "seq"):
        sizes = {"batch": 8, "seq": 8, field: value}
        with pytest.raises(UsageError, match=field):
            Workload(spec=ARTICLE.spec, **sizes)


@pytest.mark.parametrize(
    ("field", "value", "valid"),
    [("activation", "tanh", ACTIVATIONS), ("dtype", "float64", DTYPES), ("activation", 3, ACTIVATIONS)],
)
def test_a_bad_choice_is_named_with_the_valid_ones(field, value, valid):
    with pytest.raises(UsageError) as caught:
        MLPSpec(hidden_size=8, intermediate_size=8, **{field: value})
    assert repr(value) in str(caught.value)
    assert all(name in str(caught.value) for name in valid)
    assert "\n" not in str(caught.value)


def test_names_of_hugging_face_configs_are_understood():
    assert parse_activation("gelu_pytorch_tanh") == "gelu_tanh"
    assert parse_activation("gelu") == "gelu"
    assert parse_activation("swish") == "silu"
    assert parse_dtype("bf16") == "bfloat16"
    with pytest.raises(UsageError, match="gelu_10"):
        parse_activation("gelu_10")


def test_the_article_shape_has_the_published_figures():
    assert ARTICLE.tokens == 8192
    assert ARTICLE.flops == 6 * 8192 * 768 * 3072
    assert ARTICLE.minimum_bytes == 2 * (3 * 768 * 3072 + 2 * 8192 * 768)


def test_the_memory_that_a_run_needs_counts_the_oracle_too():
    m, d, h = 8192, 768, 3072
    weights = 2 * 3 * d * h
    assert ARTICLE.resident_bytes == 2 * weights + 8 * (3 * d * h + 2 * m * d) + 2 * (2 * m * d + 4 * m * h)


def test_training_costs_three_times_the_forward():
    training = Workload(spec=ARTICLE.spec, batch=64, seq=128, mode="training")
    assert training.flops == 3 * ARTICLE.flops
    assert training.resident_bytes > ARTICLE.resident_bytes


@given(
    st.builds(
        MLPSpec,
        hidden_size=st.integers(1, 10**6),
        intermediate_size=st.integers(1, 10**6),
        activation=st.sampled_from(ACTIVATIONS),
        dtype=st.sampled_from(DTYPES),
        bias=st.booleans(),
    )
)
def test_a_spec_survives_json(spec):
    assert msgspec.json.decode(msgspec.json.encode(spec), type=MLPSpec) == spec


def test_json_is_checked_like_arguments():
    with pytest.raises(msgspec.ValidationError, match="hidden_size must be an integer from 1 to 2147483647"):
        msgspec.json.decode(b'{"hidden_size": 0, "intermediate_size": 8}', type=MLPSpec)
