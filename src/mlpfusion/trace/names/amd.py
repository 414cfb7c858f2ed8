"""Decodes the names of AMD's kernels: Tensile's (hipBLASLt, rocBLAS) and Composable Kernel's."""

from __future__ import annotations

import re
from typing import Final

from mlpfusion.records.profile import Decoded, Token
from mlpfusion.trace.names.parsed import (
    LAYOUTS,
    Parsed,
    established,
    layout_token,
    likely,
    tile_token,
    torch_tile,
    unknown,
)

_TYPES: Final = {"B": "bfloat16", "H": "float16", "S": "float32", "D": "float64", "C": "complex64", "I": "int32",
                 "F8": "float8_e4m3fn", "B8": "float8_e5m2"}  # fmt: skip
_KNOWN_FLAGS: Final = {
    "Bias": likely("Bias", "can add a bias in the epilogue"),
    "HA": likely("HA", "can apply an activation in the epilogue"),
    "HAS": likely("HAS", "can apply an activation in the epilogue"),
    "AS": likely("AS", "can apply an activation in the epilogue"),
    "SAV": likely("SAV", "can scale by a vector in the epilogue"),
    "UserArgs": established("UserArgs", "takes its arguments from memory, for grouped products"),
}


def tensile(name: str, match: re.Match[str]) -> Parsed:
    """`Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_…_ISA942_…`.

    `Alik`: A's indices, the first one contiguous; `l` is summed over. `MT` is the tile, column-major.
    """
    first, second, types = match[1], match[2], match[3]
    letters = ("t" if first == "Alik" else "n") + ("t" if second == "Bjlk" else "n")
    words = name.split("_")
    tile = re.search(r"_MT(\d{1,4})x(\d{1,4})x(\d{1,4})(?=_|$)", name)
    instruction = re.search(r"_MI(\d{1,3}(?:x\d{1,3}){2,3})(?=_|$)", name)
    arch = re.search(r"_ISA(\d{2,4}[a-c]?)(?=_|$)", name)
    dtype, type_token = _types(types, arch[1] if arch else None)
    torch = torch_tile(tile[1], tile[2], tile[3]) if tile else None
    tokens = [
        established("Cijk", "a Tensile kernel (hipBLASLt or rocBLAS), computing C[i, j] in batches k"),
        established(f"{first}_{second}", "which index of each operand is contiguous; l is summed over"),
        layout_token(f"{first}_{second}", letters) if letters in LAYOUTS else unknown(letters),
        type_token,
        *(_KNOWN_FLAGS[word] for word in words if word in _KNOWN_FLAGS),
    ]
    if tile and torch:
        tokens.append(tile_token(tile[0].strip("_"), torch))
    if instruction:
        meaning = f"matrix instructions of {'x'.join(instruction[1].split('x')[:2])} (M x N)"
        tokens.append(established(instruction[0].strip("_"), meaning))
    if arch:
        tokens.append(established(arch[0].strip("_"), f"compiled for gfx{arch[1]}"))
    split = re.search(r"_GSU(\d{1,3})(?=_|$)", name)
    stream_k = re.search(r"_SK([1-9]\d?)(?=_|$)", name)
    if split and split[1] != "0":
        tokens.append(established(split[0].strip("_"), f"K is split over {split[1]} groups of blocks"))
    if stream_k:
        tokens.append(established(stream_k[0].strip("_"), "stream-K: tiles are split along K to fill the card"))
    said = {"MT", "MI", "ISA", "GSU", "SK"}
    tokens += [unknown(word) for word in words[4:] if word and word not in _KNOWN_FLAGS and _stem(word) not in said]
    return Parsed(
        Decoded(
            library="tensile",
            kind="gemm",
            arch=f"gfx{arch[1]}" if arch else None,
            dtype=dtype,
            tile=torch,
            layout=letters if letters in LAYOUTS else None,
            split_k=True if stream_k or (split and split[1] not in ("0", "1")) else None,
        ),
        tuple(tokens),
    )


def _stem(word: str) -> str:
    return re.match(r"[A-Za-z]*", word)[0]  # type: ignore[index]  # an empty match is one, too


def _types(types: str, arch: str | None) -> tuple[str | None, Token]:
    """`BBS`: bf16 operands, bf16 result, sums in fp32; `SB`: fp32 throughout, batched."""
    high = re.match(r"([BH])BH$", types)
    if high:
        dtype = _TYPES[high[1]]
        return dtype, likely(types, f"{dtype} operands and result, batched, summed in higher precision")
    mixed = re.match(r"([BHSDI])([BHSDI])([SDI])$", types)
    if mixed:
        dtype, result, sums = (_TYPES[letter] for letter in mixed.groups())
        return dtype, established(types, f"operands of {dtype}, a result of {result}, computed in {sums}")
    one = re.match(r"([HSDC])(B?)$", types)
    if one:
        batched = ", batched" if one[2] else ""
        return _TYPES[one[1]], established(types, f"{_TYPES[one[1]]} throughout{batched}")
    eight = re.match(r"(F8|B8)([BHS])(S)$", types)
    if eight:
        # gfx94x has AMD's own fp8 (fnuz), gfx95x and gfx12xx have OCP's; the name alone does not determine which.
        standard = _TYPES[eight[1]] if arch and arch.startswith(("95", "12")) else None
        operands = standard or "8-bit floats, AMD's own (fnuz) on gfx94x"
        return standard, likely(types, f"operands of {operands}, a result of {_TYPES[eight[2]]}, computed in float32")
    return None, unknown(types)


_CK_TYPES: Final = {"DF16b": "bfloat16", "std::bfloat16_t": "bfloat16", "_Float16": "float16"}
_CK_WORDS: Final = (
    ("conv", "other", "a convolution"),
    ("Fmha", "other", "attention"),
    ("Rmsnorm", "reduction", "an RMS norm"),
    ("Layernorm", "reduction", "a layer norm"),
    ("gemm", "gemm", "a matrix product"),
    ("Gemm", "gemm", "a matrix product"),
)


def composable(name: str, match: re.Match[str]) -> Parsed:
    """`ck::tensor_operation::device::kernel_gemm_xdl_cshuffle_v3<…>`, `ck_tile::kentry<1, Rmsnorm2dFwd<…>>`."""
    kind, word, meaning = "other", "", ""
    for text, of_kind, says in _CK_WORDS:
        if text in name:
            kind, word, meaning = of_kind, text, says
            break
    tokens = [established(match[1], "AMD's Composable Kernel library")]
    if word:
        tokens.append(likely(word, meaning))
    if "xdl" in name:
        tokens.append(established("xdl", "runs on the matrix cores of CDNA cards"))
    if "wmma" in name:
        tokens.append(established("wmma", "runs on the matrix units of RDNA cards"))
    types = {dtype for text, dtype in _CK_TYPES.items() if text in name}
    if types:
        tokens += [likely(text, f"an element type, {dtype}") for text, dtype in _CK_TYPES.items() if text in name]
    tokens.append(unknown("<…>", "the numbers among its template arguments: not established"))
    return Parsed(
        Decoded(
            library="ck",
            kind="gemm" if kind == "gemm" else "reduction" if kind == "reduction" else "other",
            dtype=types.pop() if len(types) == 1 else None,
        ),
        tuple(tokens),
    )


def rocblas(name: str, match: re.Match[str]) -> Parsed:
    """`rocblas_gemvt_warp_reduce_kernel<…>`, `rocblas_gemvt_sn_reduce<…>`, `rocblas_dot_kernel<…>`."""
    what = match[1]
    second = what.endswith("_reduce")
    meaning = "a matrix times a vector" if "gemv" in what else "a dot product"
    token = established(what, f"the second step of {meaning}, which adds partial sums" if second else meaning)
    product = "gemv" in what and not second
    found = Decoded(library="rocblas", kind="gemm" if product else "reduction")
    return Parsed(found, (established("rocblas", "AMD's rocBLAS"), token))
