"""What a kernel computes is read from the words of its function, whoever made it."""

from __future__ import annotations

import pytest

from mlpfusion.trace.names.computed import activation, computed, operand_type, snake


@pytest.mark.parametrize(
    ("name", "words"),
    [("FusedAddRMSNormKernel", "fused_add_rms_norm_kernel"), ("rms_norm_kernel", "rms_norm_kernel"), ("", "")],
)
def test_words_of_a_name(name: str, words: str) -> None:
    assert snake(name) == words


@pytest.mark.parametrize(
    ("function", "kind", "ops"),
    [
        ("rms_norm_kernel", "reduction", ("rms_norm",)),
        ("RMSNormKernel", "reduction", ("rms_norm",)),
        ("fused_add_rms_norm_kernel", "reduction", ("add", "rms_norm")),
        ("layer_norm_bwd_kernel", "reduction", ("layer_norm_backward",)),
        ("silu_and_mul_kernel", "elementwise", ("silu", "mul")),
        ("act_and_mul_kernel", "elementwise", ("act_mul",)),
        ("topk_softmax", "other", ("moe_routing",)),
    ],
)
def test_a_word_says_it(function: str, kind: str, ops: tuple[str, ...]) -> None:
    found = computed(function)
    assert found is not None
    assert (found.kind, found.ops) == (kind, ops)


def test_the_activation_may_be_among_the_arguments() -> None:
    found = computed("act_and_mul_kernel", ["c10::Half", "&(vllm::silu_kernel<c10::Half>)"])
    assert found is not None
    assert found.ops == ("silu", "mul")


@pytest.mark.parametrize("function", ["", "foo", "kernel", "xyz123"])
def test_what_no_word_says_is_nothing(function: str) -> None:
    assert computed(function) is None


@pytest.mark.parametrize("text", ["silu", "gelu_tanh", "relu"])
def test_an_activation_by_its_name(text: str) -> None:
    found = activation(text)
    assert found is not None
    assert found[0] == text.partition("_")[0]
    assert activation("nothing") is None


@pytest.mark.parametrize(
    ("arguments", "dtype"),
    [
        (["c10::BFloat16", "float"], "bfloat16"),
        (["int", "c10::Half"], "float16"),  # an index is no operand
        (["&(c10::Half f<c10::Half>)", "float"], "float32"),  # nor is a function
        (["3", "true"], None),
    ],
)
def test_the_first_type_that_is_an_operands(arguments: list[str], dtype: str | None) -> None:
    found = operand_type("kernel", arguments)
    assert (found and found[1]) == dtype
