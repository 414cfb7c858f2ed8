"""Decodes the names of CUTLASS kernels: the 2.x and 3.x spellings, C++ templates, and the Python DSL's."""

from __future__ import annotations

import re
from typing import Final

from mlpfusion.records.profile import Decoded, Token
from mlpfusion.trace.names.computed import computed
from mlpfusion.trace.names.libraries.cublas import CORE, INSTRUCTIONS, core_token, split_token
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


def cutlass2(name: str, match: re.Match[str]) -> Parsed:
    """`cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_32x1_nn_align8`; `32x1` is the K tile and the stages.

    A type before the core is the result's, one after it the operands'; none means the type of the sums.
    `gemm_relu` in such a name does not mean that a relu was applied.
    """
    words = match[0].split("_")
    place = next((i for i, word in enumerate(words) if CORE.match(word)), None)
    pairs = [i for i, word in enumerate(words) if _PAIR.match(word)]
    if place is None or len(pairs) < 2:
        found = Decoded(library="cutlass", kind="gemm" if "gemm" in name else "other", arch=f"sm{match[1]}")
        return Parsed(found, (established("cutlass", "built from CUTLASS"), _word2(match[1], 1, -1, [-1, -1], "")))
    core = CORE.match(words[place])
    types = [word for word in words[place + 1 : pairs[0]] if word in DTYPES]
    (first, second), (deep, stages) = words[pairs[0]].split("x"), words[pairs[1]].split("x")
    tile = torch_tile(first, second, deep)
    layout = next((word for word in words[pairs[1] :] if word in LAYOUTS), None)
    aligned = re.match(r"align(\d{1,2})$", words[-1])
    dtype = DTYPES[types[0]] if types else {"s": "float32", "d": "float64", "h": "float16"}.get(core[1] if core else "")
    tokens = [
        _word2(word, index, place, pairs, tile) for index, word in enumerate(words) if word not in ("cutlass", "op")
    ]
    return Parsed(
        Decoded(
            library="cutlass",
            kind="gemm",
            arch=f"sm{match[1]}",
            dtype=dtype,
            tile=tile,
            layout=layout,
            stages=int(stages),
            instruction=INSTRUCTIONS.get(core[2]) if core else None,
            alignment=int(aligned[1]) if aligned else None,
            split_k=True if any(split_token(word) for word in words) else None,
            fused_ops=tuple(word for word in words if word in ("bgrada", "bgradb")),
            epilogue=tuple(word for word in words if word in ("bgrada", "bgradb")),
        ),
        (established("cutlass", "built from CUTLASS; cuBLAS ships such kernels"), *tokens),
    )


_WORDS2: Final = {
    "tensorop": established("tensorop", "runs on tensor cores"),
    "wmma": established("wmma", "through the warp matrix (WMMA) interface"),
    "simt": established("simt", "ordinary arithmetic, no tensor cores"),
    "relu": unknown("relu", "the epilogue has room for relu; the name does not say whether it was applied"),
    "grouped": established("grouped", "many products in one launch"),
    "bgrada": likely("bgrada", "the epilogue also sums the first operand up: the gradient of a bias"),
    "bgradb": likely("bgradb", "the epilogue also sums the second operand up: the gradient of a bias"),
}


def _word2(word: str, index: int, place: int, pairs: list[int], tile: str) -> Token:
    if index == 1:
        return established(word, f"written for compute capability {word[:-1]}.{word[-1]}; later cards run it too")
    if index == place:
        return core_token(word)
    if index == pairs[0]:
        return tile_token(word, tile)
    if index == pairs[1]:
        deep, stages = word.split("x")
        return established(word, f"steps of {deep} along K, {stages} of them in flight (stages)")
    if word in DTYPES:
        return likely(word, f"{'the result' if index < place else 'the operands'}: {DTYPES[word]}")
    if word in LAYOUTS:
        return layout_token(word, word)
    if re.match(r"align\d{1,2}$", word):
        return established(word, f"operands are read {word[5:]} elements at a time, which needs that alignment")
    return _WORDS2.get(word, split_token(word) or unknown(word))


# ---- 3.x: cutlass3x_sm90_tensorop_s64x128x16gemm_bf16_bf16_f32_void_bf16_128x128x64_2x1x1_0_tnn_align8_… -------------

_NAME3: Final = re.compile(
    r"cutlass3x_(?P<arch>sm\d{2,3}a?)_(?P<op>[a-z]{1,20})_(?:[a-z]?(?P<shape>\d{1,4}x\d{1,4}x\d{1,4}))?(?P<core>[a-z]?gemm\w{0,40}?)_"
    r"(?P<a>[a-z]\w{1,9}?)_(?P<b>[a-z]\w{1,9}?)_(?P<sum>[a-z]{1,4}\d{1,3})_(?P<c>[a-z][a-z0-9]{1,9})_"
    r"(?P<d>[a-z][a-z0-9]{1,9})_(?P<tile>\d{1,5}x\d{1,5}x\d{1,5})_(?P<cluster>\d{1,3}x\d{1,3}x\d{1,3})_(?P<stages>\d{1,3})_"
    r"(?P<layout>[nt]{2})(?P<result>[nt])_align(?P<align>\d{1,3})(?P<rest>\w*)"
)


def cutlass3(name: str, match: re.Match[str]) -> Parsed:
    """CUTLASS's own generator spells the operands', sums', C's and D's types, then tile, cluster, stages, layouts."""
    arch = re.search(r"cutlass3x_(sm\d{2,3}a?)_", name)
    found = _NAME3.search(name)
    if not found:
        plain = Decoded(library="cutlass", kind="gemm" if "gemm" in name else "other", arch=arch and arch[1])
        told = (established("cutlass3x", "built from CUTLASS 3"),)
        return Parsed(plain, (*told, established(arch[1], f"compiled for {arch[1]}")) if arch else told)
    first, second, deep = found["tile"].split("x")
    # A row-major result is torch's own; a column-major one is its transpose, whose M is torch's N.
    tile = f"{first}x{second}x{deep}" if found["result"] == "t" else torch_tile(first, second, deep)
    a, b, d = (DTYPES.get(found[key], found[key]) for key in ("a", "b", "d"))
    stages = int(found["stages"])
    rest = found["rest"].strip("_")
    tokens = [
        established("cutlass3x", "built from CUTLASS 3"),
        established(found["arch"], f"compiled for {found['arch']}"),
        established(
            found["op"], "runs on tensor cores" if found["op"] == "tensorop" else "the kind of arithmetic unit"
        ),
    ]
    if found["shape"]:
        tokens.append(established(found["shape"], f"tensor-core instructions of {found['shape']} (M x N x K)"))
    tokens += [
        established(f"{found['a']}_{found['b']}", f"operands of {a} and {b}"),
        established(found["sum"], f"summed in {DTYPES.get(found['sum'], found['sum'])}"),
        established(
            found["c"], "no matrix is added" if found["c"] == "void" else f"a matrix of {found['c']} can be added"
        ),
        established(found["d"], f"a result of {d}"),
        tile_token(found["tile"], tile, "established"),
        established(found["cluster"], "blocks of a cluster"),
        established(found["stages"], f"{stages} stages" if stages else "as many stages as fit in shared memory"),
        layout_token(found["layout"], found["layout"]),
        established(found["result"], "a row-major result" if found["result"] == "t" else "a column-major result"),
        established(f"align{found['align']}", f"operands are read {found['align']} elements at a time"),
        *(_word3(word) for word in rest.split("_") if word),
    ]
    return Parsed(
        Decoded(
            library="cutlass",
            kind="gemm",
            arch=found["arch"],
            dtype=a if found["a"] == found["b"] and found["a"] in DTYPES else None,
            tile=tile,
            layout=found["layout"],
            stages=stages or None,
            instruction=found["shape"],
            cluster=found["cluster"],
            alignment=int(found["align"]),
            split_k=True if "stream_k" in rest or any(split_token(word) for word in rest.split("_")) else None,
        ),
        tuple(tokens),
    )


_WORDS3: Final = {
    "warpspecialized": "some warps only load, others only compute",
    "pingpong": "two groups of warps take turns at the tensor cores, each with its own tile",
    "cooperative": "two groups of warps share one tile",
    "tma": "loads or stores through the tensor memory accelerator",
    "stream": "stream-K, which splits K where tiles do not fill the card",
    "k": "of stream-K",
    "epi": "what follows is the epilogue's way to store",
    "nosmem": "stores directly from registers",
}


def _word3(word: str) -> Token:
    return established(word, _WORDS3[word]) if word in _WORDS3 else split_token(word) or unknown(word)


# ---- C++ templates and the DSL ---------------------------------------------------------------------------------------

_MAINLOOP: Final = re.compile(r"Mainloop(Sm\d{2,3})(\w*?)<\(?(?:int\))?(\d{1,3})")
_CONSTANT: Final = r"cute::(?:C|Int)<\(?(?:int\))?(\d{1,5})>"
_SHAPE: Final = re.compile(rf"cute::tuple<{_CONSTANT}, ?{_CONSTANT}, ?{_CONSTANT} ?>")
_ELEMENT: Final = re.compile(r"cutlass::(?:bfloat16_t|half_t|float_e4m3_t|float_e5m2_t)\b")


def template(name: str, match: re.Match[str]) -> Parsed:
    """`void cutlass::device_kernel<… CollectiveMma<MainloopSm90TmaGmmaWarpSpecialized<4, cluster, …>, tile, …>`."""
    loop = _MAINLOOP.search(name)
    shapes = _SHAPE.findall(name[loop.end() :] if loop else name)
    element = _ELEMENT.search(name)
    tokens = [established(match[0].split("<")[0].strip(), "a kernel built from CUTLASS or one of its parts")]
    attention = re.search(r"[Ff]mha\w*", name)
    is_gemm = attention is None and ("gemm" in name.lower() or "Mma" in name)
    operator = f"attention{'_backward' if attention and re.search(r'Bwd|backward', name) else ''}"
    if attention:
        tokens.append(likely(attention[0], operator.replace("_", ", ")))
    tile = cluster = None
    if loop:
        tokens.append(established(loop[1] + loop[2], f"the loop over K written for {loop[1].lower()}"))
        tokens.append(likely(loop[3], f"{loop[3]} stages"))
    if loop and len(shapes) > 1:
        cluster = "x".join(shapes[0])
        first, second, deep = shapes[1]
        tile = f"{first}x{second}x{deep}" if first == second else None
        tokens.append(likely(cluster, "blocks of a cluster"))
        meaning = "the tile; its type does not determine which side is along torch's M"
        tokens.append(likely("x".join(shapes[1]), meaning))
    if element:
        tokens.append(likely(element[0], f"an element type, {DTYPES[element[0]]}"))
    return Parsed(
        Decoded(
            library="cutlass",
            kind="gemm" if is_gemm else "attention" if attention else "other",
            fused_ops=(operator,) if attention else (),
            arch=loop[1].lower() if loop else None,
            dtype=DTYPES[element[0]] if element else None,
            tile=tile,
            stages=int(loop[3]) if loop else None,
            cluster=cluster,
        ),
        tuple(tokens),
    )


_DSL_MAKERS: Final = (("quack", "quack"), ("flashinfer", "flashinfer"), ("flash_attn", "flash-attention"))
_DSL_OBJECT: Final = re.compile(r"_object_at_.*", re.DOTALL)
_DSL_ARCH: Final = re.compile(r"Sm(\d{2,3})(?!\d)")
# quack names a class after its epilogue: `GemmGatedSm90`, `GemmDActSm100`; since 0.6 after a function, a digest of it,
# and whether it takes the columns of a product by twos, gate and up (g), or a saved pair packed in one word (p).
_DSL_CLASS: Final = re.compile(r"Gemm(?P<backward>D?)(?P<kind>Gated|Act)", re.IGNORECASE)
_DSL_FUNCTION: Final = re.compile(
    r"GemmMod_(?P<function>\w{1,80}?)_[0-9a-f]{16}_(?P<pairs>g?p?)_\w{1,200}?_sm(?P<major>\d{1,2})(?!\d)"
)
_DSL_ACTIVATION: Final = re.compile(r"(?P<backward>d?)(?:act|gated|(?:sw?i|ge|re)?glu)$")


def dsl(name: str, match: re.Match[str]) -> Parsed:
    """`kernel_cutlass_kernel_quackgemm_actGemmGatedSm90…`: a kernel written in CUTLASS's Python DSL (CuTe)."""
    maker = next((library for word, library in _DSL_MAKERS if word in name), "cutlass")
    arch = _dsl_arch(name)
    is_gemm = re.search(r"gemm(?!align)", name[len("kernel_cutlass_") :].replace("gmem", ""), re.IGNORECASE) is not None
    work = None if is_gemm else computed(_DSL_OBJECT.sub("", name[len("kernel_cutlass_") :]))
    tokens = [established("kernel_cutlass", "compiled by CUTLASS's Python DSL")]
    if maker != "cutlass":
        tokens.append(likely(next(word for word, library in _DSL_MAKERS if library == maker), f"from {maker}"))
    token, epilogue = _dsl_epilogue(name)
    if epilogue:
        tokens.append(likely(token, f"a matrix product with the {epilogue[0].replace('_', ' ')} in its epilogue"))
    elif is_gemm:
        tokens.append(likely("gemm", "a matrix product"))
    elif work:
        tokens.append(likely(work.word, f"computes {' and '.join(work.ops)}"))
    if arch:
        tokens.append(likely(arch[0], f"written for {arch[1]}"))
    return Parsed(
        Decoded(
            library=maker,
            kind="gemm" if is_gemm else work.kind if work else "other",
            arch=arch and arch[1],
            fused_ops=work.ops if work else epilogue,
            epilogue=epilogue,
        ),
        tuple(tokens),
    )


def _dsl_arch(name: str) -> tuple[str, str] | None:
    """The token that names the card, and the card; a function's class has the major capability alone."""
    if made := _DSL_FUNCTION.search(name):
        return f"sm{made['major']}", f"sm{made['major']}0"
    arch = _DSL_ARCH.search(name)
    return arch and (arch[0], f"sm{arch[1]}")


def _dsl_epilogue(name: str) -> tuple[str, tuple[str, ...]]:
    """The token that names what a product's epilogue computes, and that: an activation, gated if of pairs."""
    if made := _DSL_FUNCTION.search(name):
        found = [act for word in made["function"].split("_") if (act := _DSL_ACTIVATION.match(word))]
        token, gated = made["function"], bool(made["pairs"])
    else:
        found = [act for act in [_DSL_CLASS.search(name)] if act]
        token, gated = (found[0][0], found[0]["kind"].lower() == "gated") if found else ("", False)
    if not found:  # other epilogues take pairs too: rotary embeddings do
        return "", ()
    backward = any(act["backward"] for act in found)
    return token, (f"{'gated_' if gated else ''}activation{'_backward' if backward else ''}",)
