"""Decodes a kernel's name: its library, its kind of work, and the facts in its tokens."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal

from mlpfusion.records.profile import Decoded
from mlpfusion.trace.names import amd, aten, cublas, cutlass, ops, triton
from mlpfusion.trace.names.demangle import demangle
from mlpfusion.trace.names.parsed import Parsed, established, likely

Kind = Literal["gemm", "elementwise", "reduction", "memcpy", "memset", "other"]

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
    return Parsed(Decoded())


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
    kind: Kind = "memset" if match[1] == "Memset" else "memcpy"
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
    kind: Kind = "other"
    if op in ops.GEMMS:
        kind = "gemm"
    elif op in ops.ELEMENTWISE:
        kind = "elementwise"
    elif op in ops.REDUCTIONS:
        kind = "reduction"
    tokens = (established(space, f"operators of {space}"), established(op, f"the operator {op}"))
    return Parsed(Decoded(library=space, kind=kind, fused_ops=() if kind == "gemm" else (op.rstrip("_"),)), tokens)


def _plain(library: str | None, meaning: str, kind: Kind = "other") -> Callable[[str, re.Match[str]], Parsed]:
    """A family of which only the library is known."""
    return lambda name, match: Parsed(
        Decoded(library=library, kind=kind), (established(match[0].strip(" :<("), meaning),)
    )


def _nccl(name: str, match: re.Match[str]) -> Parsed:
    """`ncclDevKernel_AllReduce_Sum_f32_RING_LL(…)`."""
    tokens = [established("nccl", "communication between devices")]
    words = re.split(r"[_(]", name)[1:]
    meanings = {"RING": "around a ring", "TREE": "along a tree", "NVLS": "through NVLink's switch",
                "LL": "the low-latency protocol", "LL128": "the 128-byte low-latency protocol",
                "SIMPLE": "the protocol for large messages"}  # fmt: skip
    if words and words[0]:
        tokens.append(established(words[0], f"the collective {words[0]}"))
    tokens += [likely(word, meanings[word]) for word in words[1:] if word in meanings]
    return Parsed(Decoded(library="nccl", kind="other"), tuple(tokens))


_Parser = Callable[[str, re.Match[str]], Parsed]
_ATEN_NAMED: Final = (
    r"^(?:void )?(?:at::native::|\(anonymous namespace\)::|at::|\w*cuda_detail::cub::|cub::|<unnamed>::){1,6}"
    r"(?:\w+::){0,3}(\w+)[<(]"
)
_GENERATIONS: Final = "maxwell|pascal|volta|turing|ampere|hopper|blackwell"
_FLASH: Final = r"(?<!\w)(?:pytorch_)?flash(?:_attn)?::|^(?:void )?flash_(?:fwd|bwd)|(?<!\w)fmha_"
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
        (r"cudnn|^(?:void )?(?:fft2d_|(?:im|ex|pre)plicit_|precomputed_conv|implicit_conv)", _plain("cudnn", "cuDNN")),
        (r"cutlass_(\d{2,3})_(?:\w{1,200})", cutlass.cutlass2),
        (r"(?:^|[ <:])cutlass3x_", cutlass.cutlass3),
        (r"^kernel_cutlass_", cutlass.dsl),
        (r"(?<!\w)aiter::", _plain("aiter", "AMD's AITER library")),
        (r"^(?:void )?fmha_cutlass[FB]_(?=.*PyTorchMemEffAttention)", _plain("aten", _EFFICIENT)),
        (r"^(?:void )?fmha_cutlass[FB]_", _plain(None, f"{_EFFICIENT}: PyTorch and xformers both have it")),
        (_FLASH, _plain("flash-attention", "attention")),
        (r"^(?:void )?cutlass::(?:Kernel2?|device_kernel)<", cutlass.template),
        (r"^nccl(?:DevKernel|Kernel|Dev)", _nccl),
        (r"^(?:Custom_)?Cijk_(A\w{3})_(B\w{3})_([A-Z0-9]{1,8})", amd.tensile),
        (r"^(?:void )?(ck|ck_tile)::", amd.composable),
        (r"(?<!\w)flashinfer::", _plain("flashinfer", "FlashInfer")),
        (r"(?<!\w)vllm::", _plain("vllm", "vLLM's own kernel")),
        (_ATEN_NAMED, aten.aten),
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
