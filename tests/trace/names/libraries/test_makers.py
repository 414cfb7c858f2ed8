"""Who made a kernel: by its namespace for certain, by a function's name where nobody else uses it."""

from __future__ import annotations

import pytest

from mlpfusion.trace.names.cpp import split
from mlpfusion.trace.names.decode import decode, parse
from mlpfusion.trace.names.libraries.makers import library_of

SPACES = {
    "vllm": "vllm",
    "flashinfer::norm": "flashinfer",
    "tensorrt_llm::kernels": "tensorrt-llm",
    "deep_gemm": "deepgemm",
    "transformer_engine": "transformer-engine",
    "sgl_kernel": "sglang",
    "aiter": "aiter",
    "CUB_200802_SM_90": "cub",
}


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("function", ["rms_norm_kernel", "made_up_kernel"])
def test_a_namespace_tells_the_maker(space: str, function: str) -> None:
    assert library_of(split(f"void {space}::{function}<float>(float*)")) == SPACES[space]


@pytest.mark.parametrize(
    ("function", "library"),
    [
        ("kQuantizeBlockwise", "bitsandbytes"),
        ("causal_conv1d_fwd_kernel", "causal-conv1d"),
        ("cuApplyLayerNorm", "apex"),
    ],
)
def test_a_function_that_nobody_else_has_tells_it_too(function: str, library: str) -> None:
    assert library_of(split(f"void {function}<float>(float*)")) == library
    assert library_of(split(f"void somebody::{function}<float>(float*)")) is None


def test_a_namespace_is_certain_and_a_name_alone_is_likely() -> None:
    own = parse("void vllm::rms_norm_kernel<c10::Half>(c10::Half*)")
    assert [token.certainty for token in own.tokens[:2]] == ["established", "established"]
    alone = parse("void cuApplyLayerNorm<float>(float*)")
    assert alone.tokens[0].certainty == "likely"


def test_of_nobody_known_only_telling_words_are_read() -> None:
    found = parse("void rms_norm_kernel<c10::Half>(c10::Half*)")
    assert (found.decoded.library, found.decoded.fused_ops) == (None, ("rms_norm",))
    assert {token.certainty for token in found.tokens} == {"likely"}
    assert decode("void copy_kernel<c10::Half>(c10::Half*)").fused_ops == ()  # a word of daily use


def test_what_a_maker_does_not_say_is_unknown() -> None:
    found = parse("void vllm::made_up_kernel<float>(float*)")
    assert (found.decoded.library, found.decoded.kind, found.decoded.fused_ops) == ("vllm", "other", ())
    assert found.tokens[-1].certainty == "unknown"
