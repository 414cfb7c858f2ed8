"""Explaining kernel names: the sentence says what the fields say, and names what is in doubt."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import DATA

from mlpfusion.trace.names.explain import explain

NAMES = [line.split("\t")[0] for line in (DATA / "kernel_names.tsv").read_text().splitlines()]
SAID = {
    "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT": (
        "A matrix product by cuBLAS written for sm90 on bfloat16 operands, for operands that are both contiguous along "
        "K (tn, as nn.Linear gives); each block makes 128 rows by 256 columns of the result in steps of 64 along K, "
        "4 steps in flight; only likely: `tst`, `1x2`; not established: `h`, `bz`, `coopA`, `T`."
    ),
    "triton_poi_fused__unsafe_view_gelu_mul_0": (
        "An elementwise kernel by torch.compile (Inductor) that fuses gelu and mul (_unsafe_view moves no data)."
    ),
    "_geglu_tanh_forward_kernel": (
        "An elementwise kernel by Liger that fuses gelu and mul, in its tanh form; only likely: `_geglu_tanh`."
    ),
    "Memcpy DtoD (Device -> Device)": (
        "A copy of memory within the device that the driver makes, no kernel of a library."
    ),
    "act_mul_flat_kernel": "An elementwise kernel by mlpfusion that computes act_mul.",
    "gate_up_wide_kernel": "A matrix product by mlpfusion; it fuses act_mul.",
    "gate_up_backward_pointer_kernel": "A matrix product by mlpfusion; it fuses act_mul_backward.",
    "down_decode_kernel": "A matrix product by mlpfusion.",
    "their_kernel": "The name follows no convention known here, so this kernel is not explained.",
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_says(name: str) -> None:
    assert explain(name).sentence == SAID[name]


def test_a_product_with_one_row_is_a_matrix_times_a_vector() -> None:
    name = "void gemvNSP_kernel<__half, __half, __half, float, 1, 32, 4, 1024, false, P>(P)"
    assert explain(name).sentence.startswith("A matrix times a vector by cuBLAS on float16 operands")


def test_a_mangled_name_is_spelled_out() -> None:
    found = explain("_ZN7cutlass7Kernel2I55cutlass_80_tensorop_s1688gemm_128x128_32x3_tn_align1234EEvNT_6ParamsE")
    assert found.demangled
    assert found.decoded.library == "cutlass"
    assert explain("aten::mm").demangled is None


@pytest.mark.parametrize("name", NAMES, ids=[name[:60] for name in NAMES])
def test_every_real_name_has_one_sentence_and_tokens_with_meaning(name: str) -> None:
    found = explain(name)
    assert found.sentence.endswith(".")
    assert found.sentence.count(". ") == 0
    assert bool(found.tokens) == ("is not explained" not in found.sentence)
    assert all(token.text and token.meaning for token in found.tokens)


@given(st.text(max_size=300))
def test_any_text_is_explained(name: str) -> None:
    assert explain(name).sentence
