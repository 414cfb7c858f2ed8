"""Decodes the name of a kernel: which library made it, what kind of work it is, and what its tokens establish."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Literal

from mlpfusion.records import Decoded
from mlpfusion.trace import ops

Kind = Literal["gemm", "elementwise", "reduction", "memcpy", "memset", "other"]

_DTYPES: Final = {
    "__nv_bfloat16": "bfloat16",
    "c10::BFloat16": "bfloat16",
    "__hip_bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "c10::Half": "float16",
    "__half": "float16",
    "f16": "float16",
    "fp16": "float16",
    "float": "float32",
    "double": "float64",
}


def decode(name: str) -> Decoded:
    """What `name` says of a device kernel, an Inductor C++ kernel or a leaf operator.

    A token whose meaning is not established, or that this decoder does not know, leaves its field None.
    """
    for pattern, parse in _FAMILIES:
        match = pattern.search(name)
        if match:
            return parse(name, match)
    return Decoded()


def _memory(name: str, match: re.Match[str]) -> Decoded:
    return Decoded(library="runtime", kind="memset" if match[1] == "Memset" else "memcpy")


def _nvjet(name: str, match: re.Match[str]) -> Decoded:
    """`nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT`: cuBLAS on Hopper and later.

    The first tile number lies along cuBLAS's M, which is torch's N; `64x4` is the K tile and the stages. With `2cta`
    it is not established whether the tile is one CTA's or the pair's. The third letter of the layout is not either.
    """
    arch, types, along_n, along_m, deep, stages, rest = match.groups()
    layout = re.search(r"_([NT])([NT])[NT]{1,2}$", rest)
    return Decoded(
        library="cublas",
        kind="gemm",
        arch=arch,
        # Seen on an H200 with torch 2.11: `tst` for bf16 operands, `hsh` for fp16. Other letters are not established.
        dtype={"tst": "bfloat16", "hsh": "float16"}.get(types),
        tile=None if "2cta" in rest else f"{along_m}x{along_n}x{deep}",
        layout=(layout[1] + layout[2]).lower() if layout else None,
        stages=int(stages),
        # Seen there on every `addmm` and on no `mm`.
        fused_ops=("bias",) if "_bias_" in rest else (),
    )


def _nvjet_other(name: str, match: re.Match[str]) -> Decoded:
    arch = re.match(r"nvjet_(sm\d+)_", name)
    return Decoded(library="cublas", kind="gemm", arch=arch[1] if arch else None)


def _xmma(name: str, match: re.Match[str]) -> Decoded:
    """`sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_..._kernel__5x_cublas`."""
    types = re.search(r"_gemm_(bf16|f16|f32|e4m3|e5m2)(bf16|f16|f32|e4m3|e5m2)_", name)
    same = types is not None and types[1] == types[2]
    tile = re.search(r"_tilesize(\d+)x(\d+)x(\d+)_", name)
    stages = re.search(r"_stage(\d+)_", name)
    layout = re.search(r"_([nt]{2})_[nt]_", name)
    return Decoded(
        library="cublas",
        kind="gemm",
        arch=match[1],
        # f32 operands may run as TF32, which the name of the operand does not say.
        dtype={"bf16": "bfloat16", "f16": "float16"}.get(types[1]) if types and same else None,
        tile=_square(tile[1], tile[2], tile[3]) if tile else None,
        layout=layout[1] if layout else None,
        stages=int(stages[1]) if stages else None,
    )


def _cublas_named(name: str, match: re.Match[str]) -> Decoded:
    """`ampere_sgemm_128x128_tn`, `ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn`."""
    operands = re.search(r"_(bf16|fp16|f16)_", name)
    dtype = _DTYPES[operands[1]] if operands else {"sgemm": "float32", "hgemm": "float16"}.get(match[2])
    tile = re.search(r"_(\d+)x(\d+)_", name)
    deep = re.search(r"_stages_(\d+)x(\d+)_", name)
    layout = re.search(r"_([nt]{2})(_|$)", name)
    return Decoded(
        library="cublas",
        kind="gemm",
        arch=match[1],
        dtype=dtype,
        tile=_square(tile[1], tile[2], deep[1] if deep else None) if tile else None,
        layout=layout[1] if layout else None,
        stages=int(deep[2]) if deep else None,
    )


def _cutlass(name: str, match: re.Match[str]) -> Decoded:
    """`cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_32x1_nn_align8`; `32x1` is the K tile and the stages.

    `gemm_relu` in such a name does not mean that a relu was applied.
    """
    body = re.search(r"cutlass_(\d+)_\w*?gemm\w*?_(\d+)x(\d+)_(\d+)x(\d+)_([nt]{2})_align\d+", name)
    if not body:
        arch = re.search(r"cutlass3x_(sm\d+a?)_", name)
        return Decoded(library="cutlass", kind="gemm" if "gemm" in name else "other", arch=arch[1] if arch else None)
    arch_number, first, second, deep, stages, layout = body.groups()
    operands = re.search(r"_(bf16|f16)_\w*gemm", body[0])
    return Decoded(
        library="cutlass",
        kind="gemm",
        arch=f"sm{arch_number}",
        dtype=_DTYPES[operands[1]] if operands else ("float32" if "_simt_sgemm_" in body[0] else None),
        tile=_square(first, second, deep),
        layout=layout,
        stages=int(stages),
    )


def _square(first: str, second: str, deep: str | None) -> str | None:
    """A tile whose two sides are equal. Which side lies along torch's M is not established for these families."""
    if first != second:
        return None
    return f"{first}x{second}x{deep}" if deep else f"{first}x{second}"


def _gemv(name: str, match: re.Match[str]) -> Decoded:
    """A matrix times a vector, which is what a GEMM with one row becomes; `<int, int, operand types…`."""
    types = re.search(r"<int, int, (\w+), (\w+),", name)
    same = types is not None and types[1] == types[2]
    return Decoded(library="cublas", kind="gemm", dtype=_DTYPES.get(types[1]) if types and same else None)


def _split_k(name: str, match: re.Match[str]) -> Decoded:
    return Decoded(library="cublas", kind="reduction", fused_ops=("splitk_reduce",))


def _aten(name: str, match: re.Match[str]) -> Decoded:
    """`void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(…)::…{lambda(float)#1}>(…)`."""
    body = name[match.end() :]
    kind: Kind = "other"
    if "elementwise" in match[1] or "CatArray" in match[1]:
        kind = "elementwise"
    elif "reduce_kernel" in match[1] or "softmax" in match[1].lower():
        kind = "reduction"
    functor = _functor(body)
    return Decoded(library="aten", kind=kind, dtype=_aten_dtype(body), fused_ops=(functor,) if functor else ())


# Functors that do not spell their operator as `<Operator>Functor` or `<operator>_kernel…`.
_FUNCTORS: Final = {
    "GeluCUDAKernelImpl": "gelu",
    "GeluBackwardCUDAKernelImpl": "gelu_backward",
    "launch_clamp_scalar": "clamp",
    "direct_copy_kernel_cuda": "copy",
    "bfloat16tofloat32_copy_kernel_cuda": "copy",
    "bfloat16_copy_kernel_cuda": "copy",
    "float16_copy_kernel_cuda": "copy",
    "pow_tensor_scalar_kernel_impl": "pow",
    "CUDAFunctorOnSelf_add": "add",
    "CUDAFunctorOnOther_add": "add",
    "Copy": "copy",
}
_FUNCTOR: Final = re.compile(
    r"(?:::|^)(?:(?P<known>" + "|".join(_FUNCTORS) + r")\b"
    r"|CUDAFunctor_(?P<cuda>\w+)"
    r"|(?P<kernel>(?!gpu_|index_|vectorized_|unrolled_|elementwise_|reduce_)[a-z]\w*?)_kernel(?:_cuda|_impl)?(?=[(<])"
    r"|(?P<reduce>[a-z]\w*)_functor\b"
    r"|(?P<camel>[A-Z][A-Za-z]*?)(?:Functor|Ops)(?=[<(]))"
)
_WRAPPERS: Final = frozenset({"AUnary", "BUnary", "Binary", "Unary", "Reduce", "UnaryOp", "BinaryOp", "PointwiseOp"})


def _functor(body: str) -> str | None:
    for match in _FUNCTOR.finditer(body):
        if match["known"]:
            return _FUNCTORS[match["known"]]
        if match["camel"]:
            if match["camel"] in _WRAPPERS:
                continue
            return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", match["camel"]).lower()
        return match["cuda"] or match["kernel"] or match["reduce"]
    return None


def _aten_dtype(body: str) -> str | None:
    """The one type of the tensors. A functor's own argument is the type of the arithmetic and says nothing of them."""
    if "LoadWithCast" in body or "StoreWithCast" in body:
        return None
    functor = re.search(r"(?:AUnary|BUnary|Binary)Functor<([\w:]+), ([\w:]+),", body)
    if functor:
        return _DTYPES.get(functor[1]) if functor[1] == functor[2] else None
    plain = re.search(r"\bCUDAFunctor_\w+<([\w:]+)>|\bFillFunctor<([\w:]+)>", body)
    if plain:
        return _DTYPES.get(plain[1] or plain[2])
    arguments = re.search(r"\{lambda\(([\w:]+)(?:, \1)*\)#\d+\}", body)
    return _DTYPES.get(arguments[1]) if arguments else None


_TEMPLATES: Final[dict[str, Kind]] = {"poi": "elementwise", "red": "reduction", "per": "reduction"}


def _inductor(name: str, match: re.Match[str]) -> Decoded:
    """`triton_poi_fused__unsafe_view_gelu_mul_0`: `poi` pointwise, `red` and `per` reductions, `tem` a template."""
    fused = ops.split_fused(match[2])
    kind = _TEMPLATES.get(match[1], "other")
    if match[1] == "tem" and ops.GEMMS.intersection(fused):
        kind = "gemm"
    return Decoded(library="inductor", kind=kind, fused_ops=fused)


def _inductor_other(name: str, match: re.Match[str]) -> Decoded:
    template_gemm = re.match(r"triton_(tem_fused_|mm|addmm|bmm)", name) and re.search(r"_?(add|b)?mm(_|$)", name)
    return Decoded(library="inductor", kind="gemm" if template_gemm else "other")


def _inductor_cpp(name: str, match: re.Match[str]) -> Decoded:
    fused = ops.split_fused(match[1])
    kind: Kind = "other"
    if ops.GEMMS.intersection(fused):
        kind = "gemm"
    elif fused and all(op in ops.ELEMENTWISE or op in ops.VIEWS for op in fused):
        kind = "elementwise"
    return Decoded(library="inductor-cpp", kind=kind, fused_ops=fused)


def _liger(name: str, match: re.Match[str]) -> Decoded:
    activation = "silu" if match[1] == "swiglu" else "gelu"
    fused = (activation, "mul") if match[2] == "forward" else (f"{activation}_backward", "mul")
    return Decoded(library="liger", kind="elementwise", fused_ops=fused)


def _ours(name: str, match: re.Match[str]) -> Decoded:
    fused = ("act_mul_backward",) if match[1] else ("act_mul",)
    return Decoded(library="mlpfusion", kind="elementwise", fused_ops=fused)


def _operator(name: str, match: re.Match[str]) -> Decoded:
    """A leaf operator of a CPU run: `aten::mm`, `mkldnn::_linear_pointwise`."""
    space, op = match[1], match[2]
    kind: Kind = "other"
    if op in ops.GEMMS:
        kind = "gemm"
    elif op in ops.ELEMENTWISE:
        kind = "elementwise"
    elif op in ops.REDUCTIONS:
        kind = "reduction"
    return Decoded(library=space, kind=kind, fused_ops=() if kind == "gemm" else (op.rstrip("_"),))


def _plain(library: str, kind: Kind = "other") -> Callable[[str, re.Match[str]], Decoded]:
    return lambda name, match: Decoded(library=library, kind=kind)


_Parser = Callable[[str, re.Match[str]], Decoded]
# The first pattern that is found decides, so the more specific ones stand first.
_FAMILIES: Final[tuple[tuple[re.Pattern[str], _Parser], ...]] = tuple(
    (re.compile(pattern), parse)
    for pattern, parse in (
        (r"^(Memset|Memcpy)\b", _memory),
        (r"^(?:nvjet)_(?:(sm\d+)_)?([a-z]{3})_(\d+)x(\d+)_(\d+)x(\d+)(_.*)$", _nvjet),
        (r"^nvjet_", _nvjet_other),
        (r"^(sm\d+)_xmma_gemm_", _xmma),
        (r"^(volta|turing|ampere|hopper)_(?:\w*?_)?(\w*gemm)_", _cublas_named),
        (r"(?:^|[ :])splitKreduce_kernel<", _split_k),
        (r"^void (?:gemv\w*|dot_kernel|reduce_1Block_kernel)<|^(?:\S.*? )?internal::gemvx::kernel<", _gemv),
        (r"cudnn", _plain("cudnn")),
        (r"^void cutlass::Kernel2?<|^cutlass_\d+_|^cutlass3x_", _cutlass),
        (r"^ncclDev|^ncclKernel", _plain("nccl")),
        (r"^Cijk_", _plain("tensile", "gemm")),
        (r"^_ZN(2ck|7ck_tile)", _plain("ck")),
        (r"^void (?:at::native::(?:\(anonymous namespace\)::)?)(\w+)<", _aten),
        (r"^triton_(poi|red|per|tem)_fused_(\w+)_\d+$", _inductor),
        (r"^triton_(?:poi|red|per|tem|for|spl|mm|addmm|bmm|_0d1d|unk)", _inductor_other),
        (r"^(?:graph_\d+_)?cpp_fused_(\w+?)_\d+$", _inductor_cpp),
        (r"^(?:graph_\d+_)?cpp_fused", _plain("inductor-cpp")),
        (r"^_(geglu_tanh|geglu|swiglu)_(forward|backward)_kernel(?:_tiled)?$", _liger),
        (r"^act_mul_(backward_)?\w*kernel$", _ours),
        (r"^(aten|mkldnn|mkl|onednn)::(\w+)$", _operator),
    )
)
