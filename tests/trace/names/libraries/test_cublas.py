"""Names of cuBLAS's kernels, made of their parts: tile, layout, types, stages; letters nobody documents are unknown."""

from __future__ import annotations

import pytest

from mlpfusion.trace.names.decode import decode, parse
from mlpfusion.trace.names.libraries.cublas import core_token, split_token

LAYOUTS = pytest.mark.parametrize("layout", ["tn", "nn", "nt"])
TILES = pytest.mark.parametrize("tile", [(256, 128), (64, 32), (192, 8)])


@LAYOUTS
@TILES
@pytest.mark.parametrize(
    ("types", "dtype"), [("tst", "bfloat16"), ("hsh", "float16"), ("qqtst", "float8"), ("xyz", None)]
)
def test_nvjet(layout: str, tile: tuple[int, int], types: str, dtype: str | None) -> None:
    n, m = tile  # cuBLAS's M is torch's N
    found = decode(f"nvjet_sm90_{types}_{n}x{m}_64x4_1x2_h_bz_coopA_{layout.upper()}T")
    assert (found.library, found.kind, found.arch, found.dtype) == ("cublas", "gemm", "sm90", dtype)
    assert (found.tile, found.layout, found.stages, found.cluster) == (f"{m}x{n}x64", layout, 4, "1x2")
    assert (found.split_k, found.epilogue) == (None, ())


def test_nvjet_with_more_words() -> None:
    found = decode("nvjet_sm90_tst_128x64_64x4_1x2_h_bz_coopA_bias_splitK_TNT")
    assert (found.split_k, found.epilogue, found.fused_ops) == (True, ("bias",), ("bias",))
    assert decode("nvjet_sm100_tst_128x64_64x4_2x1_2cta_v_bz_TNT").tile is None  # of one block, or of the pair?
    assert decode("nvjet_sm120_tst_mma_128x64_64x4_TNT").tile is None  # another language


@LAYOUTS
@TILES
@pytest.mark.parametrize("generation", ["ampere", "hopper", "blackwell"])
def test_names_of_a_generation(layout: str, tile: tuple[int, int], generation: str) -> None:
    n, m = tile
    found = decode(f"{generation}_bf16_s16816gemm_bf16_{n}x{m}_ldg8_f2f_stages_64x3_{layout}")
    assert (found.library, found.kind, found.arch, found.dtype) == ("cublas", "gemm", generation, "bfloat16")
    assert (found.tile, found.layout, found.stages) == (f"{m}x{n}x64", layout, 3)
    assert (found.instruction, found.alignment) == ("16x8x16", 8)


@pytest.mark.parametrize(("letter", "dtype"), [("s", "float32"), ("d", "float64"), ("h", "float16")])
def test_a_simple_product_has_the_type_of_its_letter(letter: str, dtype: str) -> None:
    assert decode(f"volta_{letter}gemm_128x64_tn").dtype == dtype


@LAYOUTS
@pytest.mark.parametrize(("short", "dtype"), [("f16", "float16"), ("bf16", "bfloat16"), ("f32", "float32")])
def test_xmma(layout: str, short: str, dtype: str) -> None:
    found = decode(
        f"sm80_xmma_gemm_{short}{short}_{short}f32_f32_{layout}_n_tilesize96x128x32_stage4_warpsize2x2x1_tensor16x8x16_kernel"
    )
    assert (found.arch, found.dtype, found.layout) == ("sm80", dtype, layout)
    assert (found.tile, found.stages, found.instruction) == ("128x96x32", 4, "16x8x16")


@pytest.mark.parametrize(("word", "says"), [("s16816gemm", "16x8x16"), ("sgemm", "float32"), ("s1688gemm", "16x8x8")])
def test_the_core_of_a_name(word: str, says: str) -> None:
    found = core_token(word)
    assert (found.certainty, says in found.meaning) == ("established", True)


def test_what_is_no_core_is_unknown() -> None:
    assert core_token("gem").certainty == "unknown"


@pytest.mark.parametrize("word", ["splitK", "splitk", "splitKreduce"])
def test_a_split_is_told(word: str) -> None:
    found = split_token(word)
    assert found is not None
    assert "split over blocks" in found.meaning
    assert split_token("stages") is None


@pytest.mark.parametrize(
    "name",
    [
        "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT",
        "nvjet_sm90_hsh_192x128_64x5_1x2_v_bz_coopB_TNN",
    ],
)
def test_letters_that_nobody_documents_are_unknown(name: str) -> None:
    certainty = {token.text: token.certainty for token in parse(name).tokens}
    assert {certainty[text] for text in ("h", "v", "bz", "coopA", "coopB") if text in certainty} == {"unknown"}
