"""The head dimension in the many spellings of attention kernels."""

from __future__ import annotations

import pytest

from mlpfusion.trace.names.libraries.heads import head_dim

SPELLINGS = [
    "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<{}, 64, 128, 8, cutlass::half_t>, true>(int)",
    "void flash::flash_bwd_kernel<Flash_bwd_kernel_traits<{}, 64, 128, 8>>(int)",
    "void vllm::paged_attention_v1_kernel<unsigned short, unsigned short, {}, 16, 128>(int)",
    "fmhaSm100aKernel_QkvBfloat16OBfloat16H{}PagedKv",
    "fmha_v2_flash_attention_bf16_64_64_S_q_k_v_{}_causal_sm90",
    "aiter_fmha_fwd_hd{}_bf16_causal",
    "attn_fwd_d{}_bf16",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("dimension", [64, 96, 128, 256])
def test_a_head_dimension_is_read_in_each_spelling(spelling: str, dimension: int) -> None:
    assert head_dim(spelling.format(dimension)) == (str(dimension), dimension)


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("dimension", [8, 9999])
def test_what_no_model_has_is_none(spelling: str, dimension: int) -> None:
    assert head_dim(spelling.format(dimension)) is None


@pytest.mark.parametrize("name", ["", "attn_fwd", "void f<128>(int)", "gemm_128x64"])
def test_where_no_spelling_says_it(name: str) -> None:
    assert head_dim(name) is None
