"""Decodes the names of AMD's kernels: Tensile's (hipBLASLt, rocBLAS) and Composable Kernel's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mlpfusion.records.profile import Decoded, Token
from mlpfusion.trace.names.libraries.heads import head_dim
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

if TYPE_CHECKING:
    from mlpfusion.records.traffic import WorkKind

_TYPES: Final = {"B": "bfloat16", "H": "float16", "S": "float32", "D": "float64", "C": "complex64", "I": "int32",
                 "Z": "complex128", "F8": "float8_e4m3fn", "B8": "float8_e5m2", "F8N": "float8_e4m3fnuz",
                 "B8N": "float8_e5m2fnuz", "I8": "int8", "F4": "float4_e2m1fn_x2", "X": "float32"}  # fmt: skip
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
    first, second = match[1], match[2]
    spelled = re.match(r"(\w+?)_BH(?=_|$)", name[match.start(3) :])
    types = spelled[1] if spelled and len(spelled[1]) < 12 else match[3]
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
    rest = name[match.start(3) + len(types) :].split("_")
    tokens += [unknown(word) for word in rest if word and word not in _KNOWN_FLAGS and _stem(word) not in said]
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


def partial_sums(name: str, match: re.Match[str]) -> Parsed:
    """`Cijk_BBS_BH_Bias_HAS_SAV_PostGSU8_VW4`: adds what a product split along K left, and ends its epilogue."""
    tokens = (
        established("Cijk", "a Tensile kernel (hipBLASLt or rocBLAS)"),
        established("PostGSU", "splitk_reduce: adds the partial sums of a product that is split along K"),
    )
    return Parsed(Decoded(library="tensile", kind="reduction", fused_ops=("splitk_reduce",)), tokens)


def _stem(word: str) -> str:
    return re.match(r"[A-Za-z]*", word)[0]  # type: ignore[index]  # an empty match is one, too


# Operands of one type or two, the result, the sums: `BBS`, `F8B8BS`; newer ones have an underscore before the result,
# `B_BS`.
_LETTERS: Final = r"F8N|B8N|F8|B8|I8|F4|[BHSDCZIX]"
_MIXED: Final = re.compile(rf"({_LETTERS})({_LETTERS})?_?({_LETTERS})([SDI])$")
_ONE: Final = re.compile(r"([HSDCZ])(B?)$")
_HIGH: Final = re.compile(r"([BH])B?H$")


def _types(types: str, arch: str | None) -> tuple[str | None, Token]:
    """`BBS` and `B_BS`: bf16 operands, bf16 result, sums in fp32; `SB`: fp32 throughout, batched."""
    high = _HIGH.match(types)
    if high:
        dtype = _TYPES[high[1]]
        return dtype, likely(types, f"{dtype} operands and result, batched, summed in higher precision")
    one = _ONE.match(types)
    if one:
        batched = ", batched" if one[2] else ""
        return _TYPES[one[1]], established(types, f"{_TYPES[one[1]]} throughout{batched}")
    mixed = _MIXED.match(types)
    if mixed is None:
        return None, unknown(types)
    first, second, result, sums = mixed.groups()
    names = [_operand(letter, arch) for letter in dict.fromkeys((first, second or first))]
    said = f"operands of {' and '.join(names)}, a result of {_operand(result, arch)}, computed in {_TYPES[sums]}"
    eight = any(letter in ("F8", "B8") for letter in (first, second))
    one_type = len(names) == 1 and not (eight and not _is_ocp(arch))
    return _TYPES[first] if one_type else None, (likely if eight else established)(types, said)


def _is_ocp(arch: str | None) -> bool:
    """Whether a card's 8-bit floats are OCP's: gfx94x has AMD's own (fnuz), gfx95x and gfx12xx have OCP's."""
    return arch is not None and arch.startswith(("95", "12"))


def _operand(letters: str, arch: str | None) -> str:
    if letters in ("F8", "B8") and not _is_ocp(arch):
        return "8-bit floats, AMD's own (fnuz) on gfx94x"
    return _TYPES[letters]


_CK_TYPES: Final = {"DF16b": "bfloat16", "std::bfloat16_t": "bfloat16", "_Float16": "float16"}
_CK_WORDS: Final[tuple[tuple[str, WorkKind, str, str], ...]] = (
    (r"[Cc]onv(?!ert)", "other", "convolution", "a convolution"),
    (r"MoeSorting", "other", "moe_routing", "sorts tokens by expert"),
    (r"[Ff]used_?[Mm]oe", "gemm", "", "matrix products of experts"),
    (r"Fmha\w*SplitKVCombine|FmhaFwdAppendKV|FmhaBwdOGradDotO|FmhaBwdConvert", "other", "attention_helper",
     "a step beside attention"),
    (r"FmhaBwd", "attention", "attention_backward", "attention, backward"),
    (r"Fmha", "attention", "attention", "attention"),
    (r"Rmsnorm|RMSNorm", "reduction", "rms_norm", "an RMS norm"),
    (r"Layernorm|LayerNorm", "reduction", "layer_norm", "a layer norm"),
    (r"[Tt]opkSoftmax", "other", "moe_routing", "chooses experts"),
    (r"[Ss]moothquant|[Qq]uant", "elementwise", "quantize", "quantises"),
    (r"[Ss]oftmax", "reduction", "softmax", "a softmax"),
    (r"[Bb]atch_?[Nn]orm", "reduction", "batch_norm", "a batch norm"),
    (r"[Gg]emm", "gemm", "", "a matrix product"),
    (r"[Ee]lementwise", "elementwise", "", "an elementwise kernel"),
    (r"[Rr]educe", "reduction", "", "a reduction"),
)  # fmt: skip


def composable(name: str, match: re.Match[str]) -> Parsed:
    """`ck::tensor_operation::device::kernel_gemm_xdl_cshuffle_v3<…>`, `ck_tile::kentry<1, Rmsnorm2dFwd<…>>`."""
    kind: WorkKind = "other"
    op = ""
    tokens = [established(match[1], "AMD's Composable Kernel library")]
    for pattern, of_kind, of_op, says in _CK_WORDS:
        found = re.search(pattern, name)
        if found:
            kind, op = of_kind, of_op
            tokens.append(likely(found[0], says))
            break
    fused: tuple[str, ...] = (op,) if op else ()
    if op == "rms_norm" and re.search(r"FusedAddEnum(?:\)[12]|E[12])", name):
        fused = ("add", "rms_norm")
        tokens.append(likely("FusedAdd", "adds a residual first"))
    if "xdl" in name:
        tokens.append(established("xdl", "runs on the matrix cores of CDNA cards"))
    if "wmma" in name:
        tokens.append(established("wmma", "runs on the matrix units of RDNA cards"))
    types = {dtype for text, dtype in _CK_TYPES.items() if text in name}
    if types:
        tokens += [likely(text, f"an element type, {dtype}") for text, dtype in _CK_TYPES.items() if text in name]
    head = head_dim(name) if kind == "attention" else None
    if head:
        tokens.append(likely(head[0], f"a head dimension of {head[1]}"))
    tokens.append(unknown("<…>", "the numbers among its template arguments: not established"))
    return Parsed(
        Decoded(
            library="ck",
            kind=kind,
            dtype=types.pop() if len(types) == 1 else None,
            fused_ops=fused,
            head_dim=head[1] if head else None,
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
