"""Decodes the matrix products that TensorRT-LLM generates for Blackwell: `bmm_Bfloat16_E4m3E4m3_Fp32_t128x32x256_…`."""

from __future__ import annotations

import re
from typing import Final

from mlpfusion.records.profile import Decoded
from mlpfusion.trace.names.parsed import Parsed, established, layout_token, likely, tile_token, torch_tile, unknown

_TYPES: Final = {
    "E4m3": "float8_e4m3fn", "E5m2": "float8_e5m2", "MxE4m3": "float8_e4m3fn", "E2m1": "float4_e2m1fn_x2",
    "MxE2m1": "float4_e2m1fn_x2", "MxInt4": "int4", "Int8": "int8", "Bfloat16": "bfloat16", "Fp16": "float16",
    "Fp32": "float32", "Tf32": "float32",
}  # fmt: skip
_TYPE: Final = "|".join(sorted(_TYPES, key=len, reverse=True))
# The result's type, the operands', the sums'.
NAME: Final = (
    rf"^(bmm|gemm|gatedAct\w{{0,20}}?|batchedGemm)_({_TYPE})_({_TYPE})({_TYPE})?(?:_cast\w{{3,8}}?)?_(Fp32|Fp16)(?=_|$)"
)
_TILE: Final = re.compile(r"_t(\d{1,4})x(\d{1,4})x(\d{1,4})(?:u\d{1,2})?(?=_|$)")
_WORDS: Final = {
    "TN": layout_token("TN", "tn"),
    "transOut": established("transOut", "computes the transposed result, whose rows are the weights'"),
    "dynBatch": established("dynBatch", "how many tokens each product has, the device finds out"),
    "dsFp8": likely("dsFp8", "scales of 8-bit floats as DeepSeek has them, one for each block"),
    "swiGlu": established("swiGlu", "SiLU of the gate times up in the epilogue"),
    "geGlu": established("geGlu", "GELU of the gate times up in the epilogue"),
    "relu2": established("relu2", "squared relu in the epilogue"),
    "ldgsts": likely("ldgsts", "loads by ordinary copies to shared memory"),
    "tma": likely("tma", "loads through the tensor memory accelerator"),
}
_EPILOGUES: Final = {"swiGlu": ("silu", "mul"), "geGlu": ("gelu", "mul"), "relu2": ("relu_squared",)}


def generated(name: str, match: re.Match[str]) -> Parsed:
    """One product for each expert (`bmm`) or a single one (`gemm`): types, tile, stages, cluster, epilogue."""
    words = name[: name.find("(")].split("_") if "(" in name else name.split("_")
    types = [_TYPES[match[3]], _TYPES[match[4] or match[3]]]
    tile = _TILE.search(name)
    stages = re.search(r"_s(\d{1,2})(?=_|$)", name)
    cluster = re.search(r"_c(?:ga)?(\d{1,2}x\d{1,2}x\d{1,2})(?=_|$)", name)
    arch = re.search(r"_sm(\d{2,3})([af]?)(?=_|$|\()", name)
    epilogue = next((_EPILOGUES[word] for word in words if word in _EPILOGUES), ())
    transposed = "transOut" in words
    tokens = [
        established(match[1], "one product for each expert or batch" if match[1] != "gemm" else "a matrix product"),
        likely(match[2], f"a result of {_TYPES[match[2]]}"),
        likely(match[3] + (match[4] or ""), f"operands of {' and '.join(dict.fromkeys(types))}"),
        likely(match[5], f"summed in {_TYPES[match[5]]}"),
    ]
    shape = None
    if tile:
        shape = torch_tile(*tile.groups()) if transposed else "x".join(tile.groups())
        tokens.append(tile_token(tile[0].strip("_"), shape))
    if stages:
        tokens.append(likely(stages[0].strip("_"), f"{stages[1]} steps along K in flight"))
    if cluster:
        tokens.append(likely(cluster[0].strip("_"), "blocks of a cluster"))
    if arch:
        tokens.append(established(arch[0].strip("_"), f"compiled for sm{arch[1]}"))
    said = {token.text for token in tokens}
    rest = name[match.end() :].split("(", maxsplit=1)[0].strip("_").split("_")
    tokens += [_WORDS.get(word, unknown(word)) for word in rest if word and word not in said]
    return Parsed(
        Decoded(
            library="tensorrt-llm",
            kind="gemm",
            arch=f"sm{arch[1]}" if arch else None,
            dtype=types[0] if types[0] == types[1] else None,
            tile=shape,
            layout="tn" if "TN" in words else None,
            stages=int(stages[1]) if stages else None,
            cluster=cluster[1] if cluster else None,
            fused_ops=epilogue,
            epilogue=epilogue,
        ),
        tuple(tokens),
    )
