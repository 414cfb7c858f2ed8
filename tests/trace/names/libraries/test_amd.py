"""Names of AMD's kernels, made of their parts: Tensile's products, and Composable Kernel's words."""

from __future__ import annotations

import pytest

from mlpfusion.trace.names.decode import decode


@pytest.mark.parametrize(
    ("operands", "layout"), [("Alik_Bljk", "tn"), ("Ailk_Bljk", "nn"), ("Ailk_Bjlk", "nt"), ("Alik_Bjlk", "tt")]
)
@pytest.mark.parametrize(
    ("types", "dtype"), [("BBS", "bfloat16"), ("HHS", "float16"), ("SB", "float32"), ("F8B8BS", None)]
)
def test_a_product_of_tensile(operands: str, layout: str, types: str, dtype: str | None) -> None:
    found = decode(f"Cijk_{operands}_{types}_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_ISA942_SK0_WG32")
    assert (found.library, found.kind, found.arch, found.dtype) == ("tensile", "gemm", "gfx942", dtype)
    assert (found.tile, found.layout, found.split_k) == ("192x256x64", layout, None)


@pytest.mark.parametrize(
    ("words", "split"), [("GSU1", None), ("GSU0", None), ("GSU4", True), ("SK3", True), ("SK0", None), ("", None)]
)
def test_k_may_be_split_over_blocks(words: str, split: bool | None) -> None:
    assert decode(f"Cijk_Alik_Bljk_BBS_BH_MT64x64x32_{words}_ISA942").split_k is split


@pytest.mark.parametrize(("arch", "dtype"), [("942", None), ("950", "float8_e4m3fn"), ("1200", "float8_e4m3fn")])
def test_eight_bit_floats_are_ocps_on_some_cards_alone(arch: str, dtype: str | None) -> None:
    assert decode(f"Cijk_Alik_Bljk_F8BS_BH_MT64x64x32_ISA{arch}").dtype == dtype


@pytest.mark.parametrize(
    ("word", "kind", "fused"),
    [
        ("kernel_gemm_xdl_cshuffle_v3", "gemm", ()),
        ("Rmsnorm2dFwd", "reduction", ("rms_norm",)),
        ("Layernorm2dFwd", "reduction", ("layer_norm",)),
        ("FmhaFwdKernel", "attention", ("attention",)),
        ("FmhaBwdDQDKDVKernel", "attention", ("attention_backward",)),
        ("MoeSortingKernel", "other", ("moe_routing",)),
    ],
)
@pytest.mark.parametrize("space", ["ck", "ck_tile"])
def test_composable_kernel_is_known_by_its_words(word: str, kind: str, fused: tuple[str, ...], space: str) -> None:
    found = decode(f"void {space}::{word}<1, 2>(int)")
    assert (found.library, found.kind, found.fused_ops) == ("ck", kind, fused)
