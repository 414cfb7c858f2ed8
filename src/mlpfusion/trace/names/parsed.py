"""The result of a parser of kernel names: fields and tokens, each with meaning and certainty."""

from __future__ import annotations

from typing import Final, NamedTuple

from mlpfusion.records.profile import Certainty, Decoded, Token

# Element types as libraries spell them; what is not here is not known.
DTYPES: Final = {
    "__nv_bfloat16": "bfloat16",
    "nv_bfloat16": "bfloat16",
    "__nv_bfloat162": "bfloat16",
    "bfloat16_t": "bfloat16",
    "c10::BFloat16": "bfloat16",
    "__hip_bfloat16": "bfloat16",
    "hip_bfloat16": "bfloat16",
    "cutlass::bfloat16_t": "bfloat16",
    "std::bfloat16_t": "bfloat16",
    "bf16": "bfloat16",
    "c10::Half": "float16",
    "__half": "float16",
    "half": "float16",
    "nv_half": "float16",
    "half_t": "float16",
    "_Float16": "float16",
    "cutlass::half_t": "float16",
    "f16": "float16",
    "fp16": "float16",
    "float": "float32",
    "f32": "float32",
    "fp32": "float32",
    "tf32": "float32",
    "double": "float64",
    "f64": "float64",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
    "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
    "c10::Float8_e4m3fnuz": "float8_e4m3fnuz",
    "c10::Float8_e5m2fnuz": "float8_e5m2fnuz",
    "__hip_fp8_e4m3_fnuz": "float8_e4m3fnuz",
    "__hip_fp8_e5m2_fnuz": "float8_e5m2fnuz",
    "__hip_fp8_e4m3": "float8_e4m3fn",
    "cutlass::float_e4m3_t": "float8_e4m3fn",
    "cutlass::float_e5m2_t": "float8_e5m2",
    "s8": "int8",
    "i8": "int8",
    "u8": "uint8",
    "s32": "int32",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "bool": "bool",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}

# What two letters of a BLAS layout say, in BLAS order: its first operand is torch's second one, since torch's
# row-major result is the transpose of the column-major one that BLAS writes.
LAYOUTS: Final = {
    "tn": "both operands are contiguous along K, as in x @ W.T, which is nn.Linear",
    "nn": "the first operand of torch is contiguous along K, the second one along N, as in a @ b of plain tensors",
    "nt": "neither operand is contiguous along K, as in dy.T @ x, which is a weight's gradient",
    "tt": "torch's first operand is contiguous along M, the second one along K",
}


class Parsed(NamedTuple):
    """The fields that a name settles, and its tokens in reading order."""

    decoded: Decoded
    tokens: tuple[Token, ...] = ()


def established(text: str, meaning: str) -> Token:
    """A token whose meaning its maker documents, or measurements agree on."""
    return Token(text=text, meaning=meaning, certainty="established")


def likely(text: str, meaning: str) -> Token:
    """A token whose meaning is inferred from the family's habits."""
    return Token(text=text, meaning=meaning, certainty="likely")


def unknown(text: str, meaning: str = "not established") -> Token:
    """A token of unknown meaning."""
    return Token(text=text, meaning=meaning, certainty="unknown")


def torch_tile(first: str, second: str, deep: str | None) -> str:
    """A column-major library's tile as torch's M x N (x K): its M is torch's N."""
    return f"{second}x{first}x{deep}" if deep else f"{second}x{first}"


def tile_token(text: str, tile: str, certainty: Certainty = "likely") -> Token:
    """The token of an output tile, in torch's order."""
    sides = tile.split("x")
    along_k = f", stepping {sides[2]} along K" if len(sides) == 3 else ""
    meaning = f"each block computes {sides[0]} rows (torch's M) by {sides[1]} columns (N) of the result{along_k}"
    return Token(text=text, meaning=meaning, certainty=certainty)


def layout_token(text: str, layout: str) -> Token:
    """The token of a BLAS layout."""
    return established(text, LAYOUTS[layout])
