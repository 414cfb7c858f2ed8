"""Decodes a kernel's name: its library, its kind of work, and the facts in its tokens."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion.records.profile import Decoded
from mlpfusion.trace.names import ops
from mlpfusion.trace.names.cpp import split
from mlpfusion.trace.names.demangle import demangle
from mlpfusion.trace.names.libraries import amd, aten, collectives, cublas, cutlass, triton, trtllm_gen
from mlpfusion.trace.names.libraries.makers import described, library_of
from mlpfusion.trace.names.parsed import DTYPES, Parsed, established

if TYPE_CHECKING:
    from mlpfusion.records.traffic import WorkKind

# The longest names of kernels in real traces have a few thousand characters.
_LIMIT: Final = 8_000


def decode(name: str) -> Decoded:
    """Decodes the name of a device kernel, an Inductor C++ kernel or a leaf operator.

    A token whose meaning is not established, or that this decoder does not know, leaves its field None; a tile is
    also given where its order is only likely.
    """
    return parse(name).decoded


@lru_cache(maxsize=2048)
def parse(name: str) -> Parsed:
    """The fields and the tokens of a kernel's name, mangled or not."""
    text = readable(name)
    for pattern, parser in _FAMILIES:
        match = pattern.search(text)
        if match:
            return parser(text, match)
    return _function(text)


def readable(name: str) -> str:
    """The name as C++ spells it, without what runtimes append; what is cut off keeps its mangled spelling behind it."""
    name = name[:_LIMIT].strip()
    name = re.sub(r"(?:\.kd| \[clone [\w.]{1,40}\])$", "", name)
    text = demangle(name)
    if text is None:
        return name
    return f"{text} {name}" if text.endswith("…") else text


def _memory(name: str, match: re.Match[str]) -> Parsed:
    """`Memset (Device)`, `Memcpy DtoD (Device -> Device)`: fills and copies that the driver makes."""
    kind: WorkKind = "memset" if match[1] == "Memset" else "memcpy"
    what = "fills memory" if kind == "memset" else "copies memory"
    tokens = [established(match[1], f"the driver {what}, no kernel of a library")]
    ways = {"DtoD": "within the device", "HtoD": "from host to device", "DtoH": "from device to host",
            "PtoP": "between devices", "HtoH": "within the host"}  # fmt: skip
    for way, meaning in ways.items():
        if way in name:
            tokens.append(established(way, meaning))
    if "Pageable" in name:
        tokens.append(established("Pageable", "memory that is not pinned, so the copy is staged and slower"))
    if "Pinned" in name:
        tokens.append(established("Pinned", "page-locked host memory"))
    return Parsed(Decoded(library="runtime", kind=kind), tuple(tokens))


def _operator(name: str, match: re.Match[str]) -> Parsed:
    """A leaf operator of a CPU run: `aten::mm`, `mkldnn::_linear_pointwise`."""
    space, op = match[1], match[2]
    kind: WorkKind = "other"
    if op in ops.GEMMS:
        kind = "gemm"
    elif op in ops.ELEMENTWISE:
        kind = "elementwise"
    elif op in ops.REDUCTIONS:
        kind = "reduction"
    tokens = (established(space, f"operators of {space}"), established(op, f"the operator {op}"))
    return Parsed(Decoded(library=space, kind=kind, fused_ops=() if kind == "gemm" else (op.rstrip("_"),)), tokens)


def _plain(library: str | None, meaning: str, kind: WorkKind = "other") -> Callable[[str, re.Match[str]], Parsed]:
    """A family of which only the library is known."""
    return lambda name, match: Parsed(
        Decoded(library=library, kind=kind), (established(match[0].strip(" :<("), meaning),)
    )


def _flash(name: str, match: re.Match[str]) -> Parsed:
    """`void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, …>, …>(…)` and the helpers beside it."""
    return described(name, split(name), "flash-attention")


def _efficient(name: str, match: re.Match[str]) -> Parsed:
    """`fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<…>::Params)`."""
    ours = "PyTorchMemEffAttention" in name
    told = established(match[0].removeprefix("void ").strip("_"), _EFFICIENT if ours else f"{_EFFICIENT}: PyTorch and "
                       "xformers both have it")  # fmt: skip
    words = re.match(r"(?:void )?fmha_cutlass([FB])_(bf16|f16|f32)_\w*?_sm(\d{2,3})", name)
    if words is None:
        return Parsed(Decoded(library="aten" if ours else None, kind="attention", fused_ops=("attention",)), (told,))
    backward = words[1] == "B"
    tokens = (
        told,
        established(f"cutlass{words[1]}", "backward" if backward else "forward"),
        established(words[2], f"{DTYPES[words[2]]} tensors"),
        established(f"sm{words[3]}", f"written for sm{words[3]}"),
    )
    fused = ("attention_backward",) if backward else ("attention",)
    arch = f"sm{words[3]}"
    found = Decoded(
        library="aten" if ours else None, kind="attention", arch=arch, dtype=DTYPES[words[2]], fused_ops=fused
    )
    return Parsed(found, tokens)


def _cudnn(name: str, match: re.Match[str]) -> Parsed:
    """cuDNN's kernels: its attention, its norms and convolutions by their words.

    `f16` of its generated attention says 16 bits: a model in bfloat16 runs kernels of that name.
    """
    cpp = split(name)
    found = described(name, cpp, "cudnn")
    if not found.decoded.fused_ops:
        return _plain("cudnn", "cuDNN")(name, match)
    if "_fort_native_sdpa_" not in name:
        return found
    tokens = (
        established("f16", "16-bit operands, float16 or bfloat16") if token.text == "f16" else token
        for token in found.tokens
    )
    return Parsed(msgspec.structs.replace(found.decoded, dtype=None), tuple(tokens))


def _function(name: str) -> Parsed:
    """Any other function: of a maker whose namespace or name it has, of PyTorch, or of nobody known."""
    cpp = split(name)
    if aten.is_own(name, cpp):
        found = aten.aten(name, cpp)
        by_words = described(name, cpp, "aten")
        vague = found.decoded.kind == "other" and not found.decoded.fused_ops
        return by_words if vague and by_words.decoded.kind != "other" else found
    library = library_of(cpp)
    if library is not None and cpp.function == "multi_tensor_apply_kernel":
        return aten.foreach(name, cpp, library)
    return described(name, cpp, library)


_Parser = Callable[[str, re.Match[str]], Parsed]
_GENERATIONS: Final = "maxwell|pascal|volta|turing|ampere|hopper|blackwell"
_FLASH: Final = (
    r"^(?:void )?(?:cutlass::device_kernel<)?(?:pytorch_)?flash(?:_attn)?(?:_\d)?::|^(?:void )?flash_(?:fwd|bwd)"
    r"|^(?:void )?cutlass::device_kernel<(?:\w{1,40}::)?enable_sm\w{1,20}<flash::"
)
_EFFICIENT: Final = "memory-efficient attention, built from CUTLASS"
# The first pattern that is found decides, so the more specific ones stand first.
_FAMILIES: Final[tuple[tuple[re.Pattern[str], _Parser], ...]] = tuple(
    (re.compile(pattern), parser)
    for pattern, parser in (
        (r"^(Memset|Memcpy)\b", _memory),
        (r"^__amd_rocclr_fillBuffer", _plain("runtime", "HIP fills memory by a kernel", "memset")),
        (r"^__amd_rocclr_copyBuffer", _plain("runtime", "HIP copies memory by a kernel", "memcpy")),
        (r"^nvjet_", cublas.nvjet),
        (r"^(sm\d{2,3})_xmma_(?:sparse_)?(?=gemm_)", cublas.xmma),
        (r"^sm\d{2,3}_xmma_\w*(?:fprop|dgrad|wgrad|conv)", _plain("cudnn", "a convolution of cuDNN")),
        (rf"^(?:trt_)?({_GENERATIONS})_(?!scudnn)\w*gemm_", cublas.generation),
        (r"(?:^|[ :])splitKreduce_kernel\b", cublas.split_k),
        (r"^(?:void )?(gemv\w*|gemmSN_\w*|gemmk1_kernel\w*)<", cublas.gemv),
        (r"^(?:void )?(dot_kernel|reduce_1Block_kernel)<(?=.{0,400}cublas)", cublas.gemv),
        (r"^(?:\S.{0,80}? )?(?:internal::)?gemvx::kernel<", cublas.gemv),
        (r"^(?:void )?rocblas_(\w{0,20}gemv\w*|dot_\w*)", amd.rocblas),
        (r"^(?:void )?cublas(?:Lt)?::", _plain("cublas", "a kernel of cuBLAS beside its products")),
        (r"cudnn|^(?:void )?(?:fft2d_|(?:im|ex|pre)plicit_|precomputed_conv|implicit_conv)", _cudnn),
        (r"cutlass_(\d{2,3})_(?:\w{1,200})", cutlass.cutlass2),
        (r"(?:^|[ <:])cutlass3x_", cutlass.cutlass3),
        (r"^kernel_cutlass_", cutlass.dsl),
        (r"^(?:void )?fmha_cutlass[FB]_", _efficient),
        (_FLASH, _flash),
        (r"^(?:void )?cutlass::(?:Kernel2?|device_kernel)<", cutlass.template),
        (collectives.NAME, collectives.collective),
        (trtllm_gen.NAME, trtllm_gen.generated),
        (r"^(?:Custom_)?Cijk_[A-Z0-9]{1,8}_\w{0,80}PostGSU\d", amd.partial_sums),
        (r"^(?:Custom_)?Cijk_(A\w{3})_(B\w{3})_([A-Z0-9]{1,8})", amd.tensile),
        (r"^(?:void )?(ck|ck_tile)::", amd.composable),
        (r"^triton_(poi|red|per|tem|for|spl|mix|unk)_fused(?:_(\w*?))?_?(\d{1,4})(?:_(?:\d{1,2}[dce]{1,2})+\d{0,2})?$",
         triton.inductor),
        (r"^triton__?(?:\d{1,2}[dce]|unk|\d+$)", triton.inductor_old),
        (r"^triton_(?:poi|red|per|tem|for|spl|mix|unk|mm|addmm|bmm|baddbmm)(?=_|$)", triton.inductor_gemm),
        (r"^(?:graph_\d+_)?cpp_fused(?:_(\w+?))?_\d+$", triton.inductor_cpp),
        (r"^(?:graph_\d+_)?cpp_fused", _plain("inductor-cpp", "a C++ kernel that Inductor generated")),
        (triton.LIGER, triton.liger),
        (r"^act_mul_(backward_)?\w*kernel$", triton.ours),
        (r"^(gate_up|down)_(backward_)?(\w*)_kernel$", triton.our_gemm),
        (r"^(aten|mkldnn|mkl|onednn)::(\w+)$", _operator),
    )
)  # fmt: skip
