"""Names of CUTLASS's kernels, made of their parts: 2.x and 3.x spellings, and the Python DSL's."""

from __future__ import annotations

import pytest

from mlpfusion.trace.names.decode import decode, parse

LAYOUTS = pytest.mark.parametrize("layout", ["tn", "nn", "nt", "tt"])
TYPES = pytest.mark.parametrize(("short", "dtype"), [("bf16", "bfloat16"), ("f16", "float16"), ("f32", "float32")])


@LAYOUTS
@TYPES
def test_version_2_has_its_tile_column_major(layout: str, short: str, dtype: str) -> None:
    found = decode(f"cutlass_80_tensorop_{short}_s16816gemm_{short}_256x64_32x6_{layout}_align8")
    assert (found.library, found.kind, found.arch, found.dtype) == ("cutlass", "gemm", "sm80", dtype)
    assert (found.tile, found.layout, found.stages) == ("64x256x32", layout, 6)
    assert (found.instruction, found.alignment, found.split_k) == ("16x8x16", 8, None)


@LAYOUTS
@TYPES
@pytest.mark.parametrize(("result", "tile"), [("t", "128x256x64"), ("n", "256x128x64")])
def test_version_3_says_how_its_result_lies(layout: str, short: str, dtype: str, result: str, tile: str) -> None:
    found = decode(
        f"cutlass3x_sm90_tensorop_s64x128x16gemm_{short}_{short}_f32_void_{short}_128x256x64_2x1x1_0_"
        f"{layout}{result}_align8_warpspecialized_pingpong"
    )
    assert (found.library, found.arch, found.dtype) == ("cutlass", "sm90", dtype)
    assert (found.tile, found.layout, found.cluster) == (tile, layout, "2x1x1")
    assert (found.instruction, found.alignment, found.stages) == ("64x128x16", 8, None)  # 0: as many as fit


def test_operands_of_two_types_have_none() -> None:
    name = "cutlass3x_sm90_tensorop_s64x128x16gemm_{}_{}_f32_void_bf16_128x256x64_2x1x1_0_tnt_align8"
    assert decode(name.format("e4m3", "e4m3")).dtype == "float8_e4m3fn"
    assert decode(name.format("e4m3", "bf16")).dtype is None


@pytest.mark.parametrize("split", ["splitKparallel", "splitKserial"])
def test_a_split_is_told(split: str) -> None:
    assert decode(f"cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_32x6_{split}_tn_align8").split_k


def test_a_name_that_is_cut_off_keeps_what_it_says() -> None:
    found = decode("cutlass_80_tensorop_bf16_s16816gemm_bf16")
    assert (found.library, found.kind, found.arch) == ("cutlass", "gemm", "sm80")
    assert (found.tile, found.layout) == (None, None)


@pytest.mark.parametrize(("kind", "epilogue"), [("Gated", "gated_activation"), ("Act", "activation")])
def test_the_python_dsl_names_its_epilogue(kind: str, epilogue: str) -> None:
    found = decode(f"kernel_cutlass_kernel_quackgemm_actGemm{kind}Sm90_object_at_0")
    assert (found.kind, found.arch, found.epilogue) == ("gemm", "sm90", (epilogue,))
    assert parse(f"kernel_cutlass_kernel_quackgemm_actGemm{kind}Sm90_object_at_0").tokens[0].text == "kernel_cutlass"
