"""Names of the products that TensorRT-LLM generates, made of their parts."""

from __future__ import annotations

import pytest

from mlpfusion.trace.names.decode import decode

TYPES = [("Bfloat16", "bfloat16"), ("E4m3", "float8_e4m3fn"), ("Fp16", "float16"), ("E2m1", "float4_e2m1fn_x2")]


@pytest.mark.parametrize(("spelled", "dtype"), TYPES)
@pytest.mark.parametrize(("word", "tile"), [("", "128x32x256"), ("_transOut", "32x128x256")])
@pytest.mark.parametrize(("epilogue", "ops"), [("", ()), ("_swiGlu", ("silu", "mul")), ("_geGlu", ("gelu", "mul"))])
def test_a_product(spelled: str, dtype: str, word: str, tile: str, epilogue: str, ops: tuple[str, ...]) -> None:
    found = decode(f"bmm_Bfloat16_{spelled}{spelled}_Fp32_t128x32x256_s4_cga1x1x2_TN{word}{epilogue}_sm100f")
    assert (found.library, found.kind, found.arch) == ("tensorrt-llm", "gemm", "sm100")
    assert (found.dtype, found.tile, found.layout, found.stages, found.cluster) == (dtype, tile, "tn", 4, "1x1x2")
    assert (found.epilogue, found.fused_ops) == (ops, ops)


def test_operands_of_two_types_have_none() -> None:
    assert decode("bmm_Bfloat16_E2m1E4m3_Fp32_t128x32x256_s4").dtype is None
    assert decode("gemm_Bfloat16_E4m3_Fp32_t128x32x256").dtype == "float8_e4m3fn"
