"""Decodes kernels that are named by what they compute: vLLM's, FlashInfer's, TensorRT-LLM's, AITER's and others'.

The maker is in the namespace or in a name that nobody else uses; the rest is in the words of the function.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mlpfusion.records.profile import Decoded
from mlpfusion.trace.names.computed import activation, computed, operand_type, snake
from mlpfusion.trace.names.libraries.heads import head_dim
from mlpfusion.trace.names.parsed import Parsed, established, likely, unknown

if TYPE_CHECKING:
    from mlpfusion.records.profile import Token
    from mlpfusion.trace.names.computed import Computed
    from mlpfusion.trace.names.cpp import Cpp

# Namespaces and whose they are; the outermost one of a name decides.
_NAMESPACES: Final = {
    "vllm": "vllm",
    "marlin": "marlin",
    "marlin_moe_wna16": "marlin",
    "marlin_moe": "marlin",
    "marlin_24": "marlin",
    "marlin_dense": "marlin",
    "gptq_marlin": "marlin",
    "gptq_marlin_24": "marlin",
    "machete": "machete",
    "sgl_hip": "sglang",
    "sgl_kernel": "sglang",
    "sglang": "sglang",
    "flashinfer": "flashinfer",
    "tensorrt_llm": "tensorrt-llm",
    "trtllm": "tensorrt-llm",
    "deep_gemm": "deepgemm",
    "deep_ep": "deepep",
    "transformer_engine": "transformer-engine",
    "aiter": "aiter",
    "rocprim": "rocprim",
    "hipcub": "rocprim",
    "cub": "cub",
    "thrust": "cub",
    "xformers": "xformers",
    "natten": "natten",
    "fbgemm_gpu": "fbgemm",
    "onnxruntime": "onnxruntime",
    "nvshmem": "nvshmem",
    "ggml": "ggml",
}
# Functions in no namespace whose names nobody else uses.
_FUNCTIONS: Final = tuple(
    (re.compile(pattern), library)
    for pattern, library in (
        (r"k(?:gemm_\dbit|Quantize|Dequantize|Optimizer|PreconditionOptimizer|Int8VectorQuant|dequant_mm|DoubleRowCol"
         r"|TransformRowToFormat|getColRowStats|EstimateQuantiles|PercentileClipping|spmm_coo|ExtractOutliers)",
         "bitsandbytes"),
        (r"cuApply(?:Layer|RMS)Norm$|cuCompute(?:GradInput|PartGradGammaBeta|GradGammaBeta)$|multi_tensor_apply_kernel$"
         r"|scaled_(?:upper_triang_|aligned_causal_)?(?:masked_)?softmax_warp_(?:forward|backward)$", "apex"),
        (r"selective_scan_(?:fwd|bwd)_kernel$|_(?:chunk_scan|chunk_state|chunk_cumsum|state_passing|bmm_chunk"
         r"|selective_scan_update)\w*kernel", "mamba"),
        (r"causal_conv1d_\w+$", "causal-conv1d"),
        (r"(?:chunk|fused_recurrent)_(?:gated_)?(?:delta_rule|gla|kda|retention|rwkv\d|simple_gla|dplr|linear_attn)\w*$"
         r"|chunk_(?:fwd|bwd)_kernel_\w+$|chunk_scaled_dot_kkt\w+$|recompute_w_u_\w+$|solve_tril_\w+$"
         r"|merge_16x16_to_\w+$|chunk_local_cumsum\w+$|fused_recurrent_(?:fwd|bwd)_kernel$|l2norm_(?:fwd|bwd)_kernel\d?$"
         r"|fused_gdn_gating_kernel$|parallel_nsa_\w+$|layer_norm_gated_(?:fwd|bwd)_kernel\d?$", "fla"),
        (r"attn_fwd$|bwd_kernel_(?:dk_dv|dq|fuse)$|bwd_preprocess(?:_varlen)?$|attn_bwd\w*$", "aotriton"),
        (r"fmhaSm\d{2,3}\w*Kernel_|fmha_v2_\w+|kernel_mha$", "tensorrt-llm"),
        (r"paged_attention_ll4mi_\w+|wvSplitK\w*|LLGemm1_kernel$|LLMM1_kernel$", "vllm"),
        (r"(?i:miopen)\w+|igemm_\w*gtc\w*|naive_conv_\w+|gridwise_convolution\w+|SubTensorOp\w+|Im2d2Col$|Op\dTensor\w+",
         "miopen"),
        (r"gen_conv\w*$|micro_sdpa\w*$|(?:xe_?hpc?|gen9|gen12lp|xe2?)_\w+$|jit:\w+", "onednn"),
        (r"nvshmem\w*", "nvshmem"),
        (r"userbuffers_\w+", "transformer-engine"),
        (r"mscclKernel\w*|mscclpp\w*", "mscclpp"),
    )
)  # fmt: skip
# Namespaces of which some kernel names tell the rest: TensorRT-LLM's own for experts, and Apex's of one directory.
_DEV: Final = {("moe", "dev"): "tensorrt-llm", ("layer_norm",): "apex", ("fused_softmax",): "transformer-engine"}
_MEANINGS: Final = {
    "vllm": "vLLM's own kernel",
    "marlin": "Marlin, which vLLM and SGLang ship: a product with weights of 4 or 8 bits",
    "machete": "Machete, vLLM's product with quantised weights for Hopper",
    "sglang": "SGLang's own kernel",
    "flashinfer": "FlashInfer",
    "tensorrt-llm": "TensorRT-LLM, whose kernels FlashInfer ships too",
    "deepgemm": "DeepGEMM",
    "deepep": "DeepEP, which sends tokens between experts",
    "transformer-engine": "NVIDIA's Transformer Engine",
    "aiter": "AMD's AITER library",
    "rocprim": "AMD's rocPRIM or hipCUB, building blocks that PyTorch and others call",
    "cub": "NVIDIA's CUB or Thrust, building blocks that PyTorch and others call",
    "bitsandbytes": "bitsandbytes",
    "apex": "Apex, from which others copied",
    "mamba": "Mamba's state-space models",
    "causal-conv1d": "causal-conv1d, which Mamba uses",
    "fla": "flash-linear-attention",
    "aotriton": "AOTriton, with which PyTorch ships attention for AMD",
    "miopen": "AMD's MIOpen",
    "onednn": "oneDNN for Intel's GPUs",
}
# The card that a function or a class is written for.
_SM: Final = re.compile(r"(?<![a-z0-9])sm_?(\d{2,3})(?!\d)|Sm(\d{2,3})(?!\d)")


def library_of(cpp: Cpp) -> str | None:
    """The library whose namespace or function this is."""
    scope = cpp.named_scope
    for length in (2, 1):
        if scope[:length] in _DEV:
            return _DEV[scope[:length]]
    for name in scope:
        library = _NAMESPACES.get(name)
        if library or name.startswith(("CUB_", "THRUST_")):
            return library or "cub"
    if scope:
        return None
    return next((library for pattern, library in _FUNCTIONS if pattern.match(cpp.function)), None)


def described(name: str, cpp: Cpp, library: str | None) -> Parsed:
    """What a function's words say, with the maker, or only likely and without plain words where that is not known."""
    cpp = _inner(cpp)
    found = computed(cpp.function, (*cpp.outer, *cpp.arguments))
    if library is None and (found is None or found.plain):
        return Parsed(Decoded())
    tokens = [_maker(cpp, library)] if library is not None else []
    if found is None:
        return Parsed(Decoded(library=library), (*tokens, unknown(cpp.function)))
    say = established if library is not None else likely
    tokens.append(say(cpp.function, _meaning(found)))
    dtype = operand_type(cpp.function, (*cpp.outer, *cpp.arguments))
    if dtype:
        tokens.append(likely(dtype[0], f"an operand's type, {dtype[1]}"))
    head = head_dim(name) if found.ops[0].startswith("attention") else None
    if head:
        tokens.append(likely(head[0], f"a head dimension of {head[1]}"))
    arch = _SM.search(cpp.qualified)
    number = (arch[1] or arch[2]) if arch else None
    if arch and number:
        tokens.append(established(arch[0], f"written for sm{number}"))
    is_gemm = found.kind == "gemm"
    epilogue = _epilogue(cpp) if is_gemm else ()
    if epilogue:
        tokens.append(likely(epilogue[0], f"{' and '.join(epilogue)} in the epilogue"))
    if found.form:
        tokens.append(say(found.form, f"{found.ops[0]} in its {found.form} form"))
    return Parsed(
        Decoded(
            library=library,
            kind=found.kind,
            arch=f"sm{number}" if number else None,
            dtype=dtype[1] if dtype else None,
            fused_ops=epilogue if is_gemm else found.ops,
            epilogue=epilogue,
            head_dim=head[1] if head else None,
            form=found.form,
        ),
        tuple(tokens),
    )


# Functions that only call the class that is their argument.
_SHELLS: Final = frozenset({"device_kernel", "Kernel", "Kernel2", "kentry", "kernel"})
_CLASS: Final = re.compile(r"(?<!\w)(?:\w{1,60}::){0,6}(?!enable_|sequence|tuple)(\w{1,120})<")


def _inner(cpp: Cpp) -> Cpp:
    """The class that a shell such as `cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<…>>>` runs."""
    if cpp.function not in _SHELLS:
        return cpp
    text = ", ".join(cpp.arguments)[:2000]
    for found in _CLASS.finditer(text):
        if computed(found[1]) is not None:
            return cpp._replace(function=found[1], arguments=(text[found.end() :],))
    return cpp


def _maker(cpp: Cpp, library: str) -> Token:
    meaning = _MEANINGS.get(library, library)
    scope = cpp.named_scope
    if scope:
        return established("::".join(scope), meaning)
    return likely(cpp.function, f"{meaning}, by the name alone")


def _meaning(found: Computed) -> str:
    if found.ops == ("moe",):
        return "matrix products of experts (a mixture of experts)"
    if found.kind == "gemm":
        return "a matrix product"
    return f"computes {' and '.join(found.ops)}"


def _epilogue(cpp: Cpp) -> tuple[str, ...]:
    """The activation in a product's name, with the multiplication where the product is of gate and up."""
    words = snake(cpp.function)
    act = activation(words)
    gated = re.search(r"(?<![a-z])(?:g1u1|swi_?glu|ge_?glu|gated|glu)(?![a-z])", words)
    if act is None:
        return ("gated_activation",) if gated else ()
    return (act[0], "mul") if gated else (act[0],)
