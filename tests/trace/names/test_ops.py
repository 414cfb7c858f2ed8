"""Operators in Inductor's names: told apart although they have underscores too."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.trace.names.ops import read_fused, split_fused


@given(st.lists(st.sampled_from(["_unsafe_view", "gelu", "mul", "gelu_backward", "native_layer_norm"]), max_size=6))
def test_operators_with_underscores_are_told_apart(parts: list[str]) -> None:
    assert list(split_fused("_".join(parts))) == parts


def test_words_that_are_no_operators_are_kept_apart() -> None:
    assert read_fused("constant_pad_nd_moe_forward_mul") == (
        ("constant_pad_nd", True),
        ("moe_forward", False),
        ("mul", True),
    )
    assert split_fused("constant_pad_nd_moe_forward_mul") == ()
