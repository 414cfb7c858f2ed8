"""Decoding kernel names: what is claimed of real names is right, and what a token does not establish is None."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.records import Decoded
from mlpfusion.trace.names import decode
from mlpfusion.trace.ops import split_fused

NAMES = [line.split("\t") for line in (Path(__file__).parent / "data" / "kernel_names.tsv").read_text().splitlines()]
# What the list of real names calls a family, and the libraries of ours that it may be.
LIBRARIES = {
    "aiter": {None},
    "aten-reduce": {"aten", None},
    "aten-unrolled": {"aten"},
    "aten-vec": {"aten"},
    "ck": {"ck"},
    "cublas-ampere": {"cublas"},
    "cublas-gemv": {"cublas"},
    "cublas-volta": {"cublas"},
    "cublas-xmma": {"cublas"},
    "cudnn": {"cudnn"},
    "cutlass2": {"cutlass"},
    "flash": {None},
    "inductor": {"inductor"},
    "nccl": {"nccl"},
    "nvjet": {"cublas"},
    "splitKreduce": {"cublas"},
    "tensile": {"tensile"},
    "triton-user": {"liger", None},
}


@pytest.mark.parametrize(("name", "family"), NAMES, ids=[name[:60] for name, _ in NAMES])
def test_real_names_have_the_right_library(name: str, family: str) -> None:
    decoded = decode(name)
    assert decoded.library in LIBRARIES[family]
    assert (decoded.kind == "gemm") == (
        family in ("cublas-ampere", "cublas-gemv", "cublas-volta", "cublas-xmma", "cutlass2", "nvjet", "tensile")
    )


ATEN = "void at::native::vectorized_elementwise_kernel<8, at::native::"
BF16 = "c10::BFloat16"
DECODED = {
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT": Decoded(
        library="cublas", kind="gemm", arch="sm90", dtype="bfloat16", tile="128x256x64", layout="tn", stages=4
    ),
    "nvjet_sm90_hsh_192x128_64x5_1x2_h_bz_coopB_bias_NTT": Decoded(
        library="cublas", kind="gemm", arch="sm90", dtype="float16", tile="128x192x64", layout="nt", stages=5,
        fused_ops=("bias",),
    ),
    "nvjet_sm100_tst_64x16_64x16_2x4_2cta_h_bz_splitK_TNT": Decoded(
        library="cublas", kind="gemm", arch="sm100", dtype="bfloat16", layout="tn", stages=16
    ),
    "nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN": Decoded(
        library="cublas", kind="gemm", arch="sm120"
    ),
    "nvjet_sm90_qqq_256x128_64x4_1x2_h_bz_TNT": Decoded(
        library="cublas", kind="gemm", arch="sm90", tile="128x256x64", layout="tn", stages=4
    ),
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn": Decoded(
        library="cublas", kind="gemm", arch="ampere", dtype="bfloat16", tile="128x128x64", layout="tn", stages=3
    ),
    "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_tn": Decoded(
        library="cublas", kind="gemm", arch="ampere", dtype="bfloat16", layout="tn", stages=3
    ),
    "ampere_sgemm_128x64_nn": Decoded(library="cublas", kind="gemm", arch="ampere", dtype="float32", layout="nn"),
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas": Decoded(  # noqa: E501 (a real name)
        library="cublas", kind="gemm", arch="sm80", tile="128x128x8", layout="tn", stages=3
    ),
    "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_32x1_nn_align8>(P)": Decoded(
        library="cutlass", kind="gemm", arch="sm80", dtype="bfloat16", tile="16x16x32", layout="nn", stages=1
    ),
    "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_32x6_tn_align8": Decoded(
        library="cutlass", kind="gemm", arch="sm80", dtype="bfloat16", layout="tn", stages=6
    ),
    ATEN + "GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#1}::operator()() const"
    f"::{{lambda()#4}}::operator()() const::{{lambda({BF16})#1}}, std::array<char*, 2ul> >(int)": Decoded(
        library="aten", kind="elementwise", dtype="bfloat16", fused_ops=("gelu",)
    ),
    ATEN + "GeluBackwardCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#1}::operator()() "
    f"const::{{lambda({BF16}, {BF16})#1}}, std::array<char*, 3ul> >(int)": Decoded(
        library="aten", kind="elementwise", dtype="bfloat16", fused_ops=("gelu_backward",)
    ),
    ATEN + f"BinaryFunctor<{BF16}, {BF16}, {BF16}, at::native::binary_internal::MulFunctor<float> >, "
    "std::array<char*, 3ul> >(int)": Decoded(
        library="aten", kind="elementwise", dtype="bfloat16", fused_ops=("mul",)
    ),
    ATEN + f"(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{{lambda({BF16})#1}}, std::array >(int)":
        Decoded(library="aten", kind="elementwise", dtype="bfloat16", fused_ops=("silu",)),
    "triton_poi_fused__unsafe_view_gelu_mul_0": Decoded(
        library="inductor", kind="elementwise", fused_ops=("_unsafe_view", "gelu", "mul")
    ),
    "triton_poi_fused_unheard_of_gelu_0": Decoded(library="inductor", kind="elementwise"),
    "triton_tem_fused__unsafe_view_mm_t_3": Decoded(
        library="inductor", kind="gemm", fused_ops=("_unsafe_view", "mm", "t")
    ),
    "triton_mm": Decoded(library="inductor", kind="gemm"),
    "triton_per_fused_sum_2": Decoded(library="inductor", kind="reduction", fused_ops=("sum",)),
    "triton__0d1d2d": Decoded(library="inductor"),
    "cpp_fused_gelu_mul_0": Decoded(library="inductor-cpp", kind="elementwise", fused_ops=("gelu", "mul")),
    "graph_1_cpp_fused_gelu_gelu_backward_mul_0": Decoded(
        library="inductor-cpp", kind="elementwise", fused_ops=("gelu", "gelu_backward", "mul")
    ),
    "_geglu_tanh_forward_kernel": Decoded(library="liger", kind="elementwise", fused_ops=("gelu", "mul")),
    "_swiglu_forward_kernel": Decoded(library="liger", kind="elementwise", fused_ops=("silu", "mul")),
    "_swiglu_backward_kernel_tiled": Decoded(library="liger", kind="elementwise", fused_ops=("silu_backward", "mul")),
    "act_mul_flat_kernel": Decoded(library="mlpfusion", kind="elementwise", fused_ops=("act_mul",)),
    "act_mul_backward_rows_kernel": Decoded(library="mlpfusion", kind="elementwise", fused_ops=("act_mul_backward",)),
    "Memset (Device)": Decoded(library="runtime", kind="memset"),
    "Memcpy DtoD (Device -> Device)": Decoded(library="runtime", kind="memcpy"),
    "aten::mm": Decoded(library="aten", kind="gemm"),
    "aten::gelu": Decoded(library="aten", kind="elementwise", fused_ops=("gelu",)),
    "mkldnn::_linear_pointwise": Decoded(library="mkldnn", kind="gemm"),
    "their_kernel": Decoded(),
    "": Decoded(),
}  # fmt: skip


@pytest.mark.parametrize("name", DECODED, ids=lambda name: name[:60])
def test_decodes(name: str) -> None:
    assert decode(name) == DECODED[name]


@given(st.text(max_size=200))
def test_any_text_is_decoded(name: str) -> None:
    assert decode(name).kind


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), st.data())
def test_any_mixture_of_real_names_is_decoded(parts: list[list[str]], data: st.DataObject) -> None:
    name = "".join(part[: data.draw(st.integers(0, len(part)))] for part, _ in parts)
    assert decode(name).kind


@given(st.lists(st.sampled_from(["_unsafe_view", "gelu", "mul", "gelu_backward", "native_layer_norm"]), max_size=6))
def test_operators_with_underscores_are_told_apart(parts: list[str]) -> None:
    assert list(split_fused("_".join(parts))) == parts
