"""Decodes the names of cuBLAS kernels: nvjet, xmma, the generation-named ones, matrix-vector products, split-K."""

from __future__ import annotations

import re
from typing import Final, Literal

from mlpfusion.records.profile import Decoded, Token
from mlpfusion.trace.names.parsed import (
    DTYPES,
    LAYOUTS,
    Parsed,
    established,
    layout_token,
    likely,
    tile_token,
    torch_tile,
    unknown,
)

_PAIR: Final = re.compile(r"(\d{1,5})x(\d{1,5})$")

# ---- nvjet -----------------------------------------------------------------------------------------------------------

# Seen with torch 2.11 on an H200: `tst` for bf16 operands, `hsh` for fp16. Five letters are two operands, what is
# added, the sums, the result; `q` is an 8-bit float, of which form is not known.
_JET_LETTERS: Final = {"t": "bfloat16", "h": "float16", "s": "float32", "q": "float8"}
_JET_TYPES: Final = re.compile(r"(?:tst|hsh|(?P<operand>[qth])(?P=operand)[tsh]s(?P<result>[tshq]))$")


def nvjet(name: str, match: re.Match[str]) -> Parsed:
    """`nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT`: cuBLAS on Hopper and later.

    The first tile number is along cuBLAS's M, which is torch's N; `64x4` is the K tile and the stages. With `2cta`
    it is not established whether the tile is one block's or the pair's. The sm120 form (`mma`) is another language.
    """
    words = name.split("_")
    numbers = [word for word in words if _PAIR.match(word)]
    plain = "mma" not in words and len(numbers) >= 2
    first, second = (numbers[0].split("x"), numbers[1].split("x")) if plain else (["", ""], ["", ""])
    tile = torch_tile(first[0], first[1], second[0]) if plain and "2cta" not in words else None
    jet = _Jet(numbers if plain else [], tile)
    tokens = tuple(token for word in words for token in jet.token(word))
    layout = re.match(r"([NT]{2})[NT]{1,2}$", words[-1])
    return Parsed(
        Decoded(
            library="cublas",
            kind="gemm",
            arch=next((word for word in words if re.match(r"sm\d{2,3}$", word)), None),
            dtype=next((types[0] for word in words[1:3] if (types := _jet_types(word))), None) if plain else None,
            tile=tile,
            layout=layout[1].lower() if layout and plain else None,
            stages=int(second[1]) if plain else None,
            fused_ops=("bias",) if "bias" in words else (),
            cluster=numbers[2] if len(numbers) > 2 and plain else None,
            split_k=True if "splitK" in words else None,
            epilogue=("bias",) if "bias" in words else (),
        ),
        tokens,
    )


def _jet_types(word: str) -> tuple[str, str] | None:
    """The operands' type and the result's, where a word of letters tells both and the operands have one type."""
    found = _JET_TYPES.match(word)
    return found and (_JET_LETTERS[found["operand"] or word[0]], _JET_LETTERS[found["result"] or word[-1]])


_JET_WORDS: Final = {
    "nvjet": established("nvjet", "cuBLAS's kernel family for Hopper and later"),
    "splitK": established("splitK", "K is split over blocks, whose partial sums are then added"),
    "bias": likely("bias", "a bias is added in the epilogue: observed on every addmm and on no mm"),
    "2cta": likely("2cta", "two blocks of a cluster work as a pair and each holds half of the second operand"),
    "mma": unknown("mma", "not established; the numbers of this form are not either"),
    "h": unknown("h"),
    "v": unknown("v"),
    "bz": unknown("bz"),
}


class _Jet:
    """Says each word of an nvjet name; the place of a number pair among its like decides what it is."""

    def __init__(self, pairs: list[str], tile: str | None) -> None:
        self.pairs = pairs
        self.tile = tile
        self.seen = 0

    def token(self, word: str) -> list[Token]:
        if word in _JET_WORDS:
            return [_JET_WORDS[word]]
        if re.match(r"sm\d{2,3}$", word):
            return [established(word, f"compiled for compute capability {word[2:-1]}.{word[-1]}")]
        types = _jet_types(word)
        if types:
            result = "" if types[0] == types[1] else f", a result of {types[1]}"
            which = " (8 bits; which form, is not established)" if types[0] == "float8" else ""
            return [likely(word, f"{types[0]} operands{which}{result}: observed, letters not documented")]
        if self.pairs and _PAIR.match(word):
            self.seen += 1
            return [self.pair(word)]
        layout = re.match(r"([NT]{2})([NT]{1,2})$", word)
        if layout and self.pairs:
            return [layout_token(layout[1], layout[1].lower()), unknown(layout[2], "letters after the second: unknown")]
        return [unknown(word)] if word else []

    def pair(self, word: str) -> Token:
        if self.seen == 1:
            if self.tile:
                return tile_token(word, self.tile, "established")
            return unknown(word, "the tile of one block or of the pair, which is not established")
        if self.seen == 2:
            deep, stages = word.split("x")
            return established(word, f"steps of {deep} along K, {stages} of them in flight (stages)")
        return likely(word, "the blocks of a thread-block cluster") if self.seen == 3 else unknown(word)


# ---- xmma ------------------------------------------------------------------------------------------------------------

_XMMA_TYPE: Final = r"(bf16|f16|f32|f64|tf32|e4m3|e5m2|i8|s8|u8|i32|s32)"
_XMMA_TYPES: Final = re.compile(rf"_gemm_{_XMMA_TYPE}{_XMMA_TYPE}_{_XMMA_TYPE}{_XMMA_TYPE}_{_XMMA_TYPE}(?=_|$)")
_MAKERS: Final = {"trt": "tensorrt", "cudnn": "cudnn"}


def xmma(name: str, match: re.Match[str]) -> Parsed:
    """`sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize96x128x32_stage4_warpsize2x2x1_tensor16x8x16_kernel`.

    The types: an operand's, the result's; what is multiplied, what sums have; the epilogue's arithmetic.
    """
    types = _XMMA_TYPES.search(name)
    dtype = DTYPES.get(types[1]) if types and DTYPES.get(types[1]) == DTYPES.get(types[3]) else None
    tokens = [
        established(match[1], f"compiled for compute capability {match[1][2:-1]}.{match[1][-1]}"),
        established("xmma", "NVIDIA's precompiled matrix kernels, in cuBLAS and TensorRT"),
    ]
    rest = name[match.end() :]
    if types:
        told = [DTYPES.get(types[number], types[number]) for number in range(1, 6)]
        tokens.append(likely(types[1], f"the operands' type, {told[0]}"))
        tokens.append(likely(types[2], f"the result's type, {told[1]}"))
        through = "" if types[1] == types[3] else f", which the operands become ({types[3]})"
        tokens.append(likely(types[3], f"what is multiplied, {told[2]}{through}"))
        tokens.append(likely(types[4], f"what is summed in, {told[3]}"))
        tokens.append(unknown(types[5], "the epilogue's arithmetic, by its place"))
        rest = name[types.end() :]
    numbers: dict[str, str] = {}
    for word in rest.strip("_").split("_"):
        tokens += _xmma_word(word, numbers)
    epilogue = tuple(word for word in ("bias", "relu", "gelu") if word in rest.split("_"))
    tile = numbers.get("tilesize")
    maker = next((_MAKERS[word] for word in rest.split("_") if word in _MAKERS), "cublas")
    return Parsed(
        Decoded(
            library=maker,
            kind="gemm",
            arch=match[1],
            dtype=dtype,
            tile=torch_tile(*tile.split("x")) if tile else None,
            layout=numbers.get("layout"),
            stages=int(numbers["stage"]) if "stage" in numbers else None,
            fused_ops=epilogue,
            instruction=numbers.get("tensor"),
            cluster=numbers.get("cgasize"),
            alignment=int(numbers["aligna"]) if "aligna" in numbers else None,
            split_k=True if any(split_token(word) for word in rest.split("_")) else None,
            epilogue=epilogue,
        ),
        tuple(tokens),
    )


_XMMA_NUMBER: Final = re.compile(r"([a-z]+?)(\d{1,5}(?:x\d{1,5}){0,2})$")
# How many numbers stand behind a word; one where it is omitted.
_XMMA_SIDES: Final = {"tilesize": 3, "tensor": 3, "warpsize": 3, "warpgroupsize": 3, "cgasize": 3}
_XMMA_WORDS: Final = {
    "ffma": likely("ffma", "plain fused multiply-adds, no tensor cores"),
    "5x": established("5x", "a build for a library, named next"),
    "cublas": established("cublas", "part of cuBLAS"),
    "trt": established("trt", "part of TensorRT"),
    "cudnn": established("cudnn", "part of cuDNN"),
    "bias": likely("bias", "a bias is added in the epilogue"),
    "relu": likely("relu", "relu is applied in the epilogue"),
    "gelu": likely("gelu", "gelu is applied in the epilogue"),
    "kernel": established("kernel", "the end of the name proper"),
    "n": likely("n", "the result is column-major for cuBLAS, which is torch's row-major"),
    "t": likely("t", "the result is row-major for cuBLAS"),
}


def _xmma_word(word: str, numbers: dict[str, str]) -> list[Token]:
    if word in LAYOUTS and "layout" not in numbers:
        numbers["layout"] = word
        return [layout_token(word, word)]
    if word in _XMMA_WORDS:
        return [_XMMA_WORDS[word]]
    number = _XMMA_NUMBER.match(word)
    if not number:
        return [split_token(word) or unknown(word)] if word else []
    what, value = number.groups()
    if _XMMA_SIDES.get(what, 1) != value.count("x") + 1:
        return [unknown(word)]
    numbers[what] = value
    if what == "tilesize":
        return [tile_token(word, torch_tile(*value.split("x")))]
    known = {
        "stage": established(word, f"{value} steps along K in flight"),
        "tensor": established(word, f"tensor-core instructions of {value} (M x N x K)"),
        "warpsize": likely(word, "the warps of a block along its tile's sides and K"),
        "warpgroupsize": likely(word, "the warp groups of a block along its tile's sides and K"),
        "cgasize": likely(word, "the blocks of a thread-block cluster"),
        "aligna": likely(word, f"the first operand is read {value} elements at a time"),
        "alignc": likely(word, f"the result is written {value} elements at a time"),
    }
    return [known.get(what, unknown(word))]


# ---- named after a GPU generation ------------------------------------------------------------------------------------

INSTRUCTIONS: Final = {
    "884": "8x8x4", "1688": "16x8x8", "16816": "16x8x16", "16832": "16x8x32", "16864": "16x8x64", "161616": "16x16x16",
    "8816": "8x8x16", "8832": "8x8x32", "161608": "16x16x8", "83216": "8x32x16", "32816": "32x8x16",
}  # fmt: skip
CORE: Final = re.compile(r"([a-z]{1,2})(\d{0,6})((?:tf32|bf16|f16)?)gemm$")
_SIMPLE: Final = {"s": "float32", "d": "float64", "h": "float16", "c": "complex64", "z": "complex128"}


def generation(name: str, match: re.Match[str]) -> Parsed:
    """`ampere_sgemm_128x64_tn`, `ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn`."""
    words = name[match.start(1) :].split("_")
    place = next((i for i, word in enumerate(words) if CORE.match(word)), 0)
    core = CORE.match(words[place])
    shape = INSTRUCTIONS.get(core[2]) if core else None
    before = next((word for word in words[1:place] if word in DTYPES), None)
    after = words[place + 1] if place + 1 < len(words) and words[place + 1] in DTYPES else None
    dtype = DTYPES.get(after or before or "")
    if dtype is None and core:
        # Without a type of their own, operands have the type of the sums, which is telling for fp16 only.
        dtype = _SIMPLE.get(core[1]) if not core[2] else {"h": "float16"}.get(core[1])
    walker = _Generation(words)
    tokens = [token for index in range(len(words)) for token in walker.token(index, place)]
    if match[0].startswith("trt_"):
        tokens.insert(0, established("trt", "part of TensorRT"))
    tile = walker.tile
    aligned = re.search(r"_ldg(\d{1,2})(?=_|$)", name)
    return Parsed(
        Decoded(
            library="tensorrt" if match[0].startswith("trt_") else "cublas",
            kind="gemm",
            arch=match[1],
            dtype=dtype,
            tile=torch_tile(tile[0], tile[1], walker.deep) if tile else None,
            layout=walker.layout,
            stages=walker.stages,
            instruction=shape,
            alignment=int(aligned[1]) if aligned else None,
            split_k=True if any(split_token(word) for word in words) else None,
        ),
        tuple(tokens),
    )


class _Generation:
    """Says each word of such a name and keeps what its numbers settle."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self.tile: tuple[str, str] | None = None
        self.layout: str | None = None
        stages = words.index("stages") + 1 if "stages" in words else 0
        pair = _PAIR.match(words[stages]) if 0 < stages < len(words) else None
        self.deep = pair[1] if pair else None
        self.stages = int(pair[2]) if pair else None
        self.stages_at = stages if pair else -1

    def token(self, index: int, place: int) -> list[Token]:
        word = self.words[index]
        if index == 0:
            return [established(word, f"written for the {word.title()} generation")]
        if index == place:
            return [core_token(word)]
        if index == self.stages_at:
            return [established(f"stages_{word}", f"steps of {self.deep} along K, {self.stages} of them in flight")]
        pair = _PAIR.match(word)
        if pair and self.tile is None:
            self.tile = (pair[1], pair[2])
            return [tile_token(word, torch_tile(pair[1], pair[2], self.deep))]
        if word in LAYOUTS and self.layout is None:
            self.layout = word
            return [layout_token(word, word)]
        if word in DTYPES:
            meaning = "the result's type" if index < place else "the operands' type"
            return [likely(word, f"{meaning}, {DTYPES[word]}")]
        return [] if word == "stages" and self.stages is not None else [_generation_word(word)]


def core_token(word: str) -> Token:
    """`s16816gemm`: how products are accumulated, and by which instruction."""
    core = CORE.match(word)
    if core is None:
        return unknown(word)
    if not core[2]:
        meaning = f"a matrix product in {_SIMPLE[core[1]]}" if core[1] in _SIMPLE else "a matrix product"
        return established(word, meaning)
    sums = {"s": "float32", "h": "float16", "i": "int32", "d": "float64"}.get(core[1], "sums of an unknown type")
    shape = INSTRUCTIONS.get(core[2])
    if shape is None:
        return likely(word, f"a matrix product summed in {sums}")
    return established(word, f"a matrix product by tensor-core instructions of {shape} (M x N x K), summed in {sums}")


def _generation_word(word: str) -> Token:
    if re.match(r"ldg\d{1,2}$", word):
        return likely(word, f"operands are read {word[3:]} elements at a time, which needs that alignment")
    if re.match(r"sliced\d+x\d+$", word):
        return likely(word, "the warps of a block share out K among them and add up at the end")
    if word in ("relu", "bias", "gelu"):
        return unknown(word, f"the epilogue has room for {word}; the name does not say whether it was applied")
    return split_token(word) or unknown(word)


def split_token(word: str) -> Token | None:
    """The token of a word such as `splitK`, None for another one."""
    if not re.match(r"split[kK]", word):
        return None
    return likely(word, "K is split over blocks, whose partial sums are then added")


# ---- matrix times vector, split-K ------------------------------------------------------------------------------------

_TEMPLATE: Final = re.compile(r"<([^()]{0,400})")


def _operand_types(name: str) -> tuple[str | None, list[Token]]:
    """The two operands' types of `<int, int, T, T, …>` or `<T, T, …>`, if they are one type."""
    arguments = _TEMPLATE.search(name)
    words = [word.strip() for word in arguments[1].split(",")] if arguments else []
    types = words[2:] if words[:2] == ["int", "int"] else words
    if not types or types[0] not in DTYPES:
        return None, []
    other = types[1] if len(types) > 1 and types[1] in DTYPES else types[0]
    dtype = DTYPES[types[0]] if types[0] == other else None
    return dtype, [likely(types[0], f"the first operand's type, {DTYPES[types[0]]}")]


def gemv(name: str, match: re.Match[str]) -> Parsed:
    """A matrix times a vector, which is what a GEMM with one row becomes: `gemv2T_kernel_val<int, int, float, …`."""
    dtype, tokens = _operand_types(name[match.end() - 1 :])
    what = match[1] if match.lastindex else "gemvx"
    meaning = "a matrix times a vector"
    if what.startswith("gemmSN"):
        meaning = "a matrix product with a small N"
    elif what.startswith("gemmk1"):
        meaning = "a matrix product with K = 1, an outer product"
    elif what.startswith(("dot_kernel", "reduce_1Block")):
        meaning = "a dot product" if what.startswith("dot") else "the second step of a dot product"
    layout = re.match(r"gemmSN_([NT]{2})_kernel", what)
    kind: Literal["gemm", "reduction"] = "reduction" if what.startswith(("dot_kernel", "reduce_1Block")) else "gemm"
    return Parsed(
        Decoded(library="cublas", kind=kind, dtype=dtype, layout=layout[1].lower() if layout else None),
        (established(what, meaning), *tokens),
    )


def split_k(name: str, match: re.Match[str]) -> Parsed:
    """`cublasLt::splitKreduce_kernel<…>`: adds the partial sums of a product whose K was split."""
    found = Decoded(library="cublas", kind="reduction", fused_ops=("splitk_reduce",), split_k=True)
    return Parsed(found, (established("splitKreduce", "adds the partial sums of a product that was split along K"),))
