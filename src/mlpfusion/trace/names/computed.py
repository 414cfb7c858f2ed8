"""Says what a kernel computes from the words of its function's name, whoever made it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.trace.names.parsed import DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlpfusion.records.traffic import WorkKind


class Computed(NamedTuple):
    """What a kernel computes: the word that says it, its kind, its operators, which form of them.

    `plain` is a word of daily use (copy, add), which says something only where the maker is known.
    """

    word: str
    kind: WorkKind
    ops: tuple[str, ...]
    form: str | None = None
    plain: bool = False


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    kind: WorkKind
    op: str
    plain: bool = False


def _rule(words: str, kind: WorkKind, op: str, *, plain: bool = False) -> _Rule:
    """A rule that holds where one of the words stands by itself."""
    return _Rule(re.compile(rf"(?<![a-z])(?:{words})(?![a-z])"), kind, op, plain)


# Words of which the first rule that is found decides: what prepares or ends an operator stands before the operator.
_RULES: Final = (
    _rule(r"prepare_varlen\w*|\w{0,30}schedul(?:e|er|ing)|\w{0,30}metadata|num_blocks", "other",
          "attention_scheduling"),
    _rule(r"fwd_splitkv_combine|combine_attn\w*|merge_(?:attn_)?states?\w*|attn_fwd_combine|flash_attn_fwd_combine"
          r"|mla_combine\w*|stage2|splitkv_mla_combine|paged_attention\w{0,30}_reduce|attention_reduce"
          r"|fmha_reduction|mla_reduce\w*|\w{0,20}reduce_segments", "reduction", "attention_combine"),
    _rule(r"bwd_preprocess\w*|bwd_postprocess\w*|dot_do_o|convert_dq|convert_dkv|clear_dq\w*|bwd_convert_dq",
          "other", "attention_backward_helper"),
    _rule(r"\w{0,30}repack\w*", "other", "repack"),
    _rule(r"finalize_?moe\w*", "reduction", "moe_combine"),
    _rule(r"moe_align\w*|count_and_sort_expert\w*|moe_sort\w*|expert_prefix_sum\w*|expert_offsets?|expert_map\w*"
          r"|\w{0,20}routing\w*|topk_?gating\w*|topk_softmax|topk_sigmoid|grouped_topk\w*|moe_topk\w*|moe_fused_gate"
          r"|topk_transform\w*|deepseek_\w*topk\w*|bitmatrix\w*|sum_bitmatrix\w*|compute_problem_sizes|compute_expert\w*",
          "other", "moe_routing"),
    _rule(r"moe_sum\w*|finalize_(?:moe|kernel)\w*|moe_reduction\w*|moe_combine|unpermute\w*"
          r"|moe_unpermute\w*|moe_reduce", "reduction", "moe_combine"),
    _rule(r"expand_input_rows\w*|permute_rows|shuffle_rows|moe_permute|permute_\w*token\w*|permute_input\w*",
          "other", "moe_permute"),
    _rule(r"reshape_and_cache\w*|store_?kv\w*|concat_and_cache\w*|copy_blocks|set_kv\w*|append_paged\w*|kv_indices"
          r"|\w{0,30}kv_?cache_(?:write|store|update|copy)|write_kv\w*|gather_(?:and_\w*)?cache|store_cache",
          "other", "kv_cache"),
    _rule(r"all_?reduce\w*|cross_device_reduce\w*|\w{0,12}shot_all_?reduce", "communication", "all_reduce"),
    _rule(r"reduce_?scatter\w*", "communication", "reduce_scatter"),
    _rule(r"all_?gather\w*", "communication", "all_gather"),
    _rule(r"all_?to_?all\w*|a2a", "communication", "all_to_all"),
    _rule(r"send_?recv", "communication", "send_recv"),
    _rule(r"(?:\w{0,30}_)?dispatch", "communication", "dispatch", plain=True),
    _rule(r"(?:\w{0,30}_)?combine", "communication", "combine", plain=True),
    _rule(r"userbuffers_\w*sum_\w*rr_rs\w*", "communication", "reduce_scatter"),
    _rule(r"userbuffers_\w*rr_ag\w*", "communication", "all_gather"),
    _rule(r"userbuffers_\w*sum_\w*", "communication", "all_reduce"),
    _rule(r"userbuffers_\w*(?:send|recv)\w*", "communication", "send_recv"),
    _rule(r"multimem\w*|userbuffers\w*|nvshmem\w*|barrier_all\w*|signal_wait", "communication", "synchronise"),
    _rule(r"igemm_(?:fwd|bwd|wrw)\w*", "other", "convolution"),
    _rule(r"(?:silu|gelu|relu)_(?:and_)?mul_\w*quant\w*", "elementwise", "act_mul"),
    _rule(r"rms_?(?:layer_?)?norm\w*|qk_?rms_?norm\w*|fused_rms_\w*"
          r"|t5_?layer_?norm|rms_?n(?:orm)?2d\w*|qk_?norm\w*|rmsn", "reduction", "rms_norm"),
    _rule(r"layer_?norm\w*|ln_(?:fwd|bwd|parallel)|layernorm2d\w*|cu_apply_layer_norm"
          r"|cu_compute_(?:part_)?grad_(?:input|gamma_beta)\w*", "reduction", "layer_norm"),
    _rule(r"group_?norm\w*", "reduction", "group_norm"),
    _rule(r"batch_?norm\w*|bn_(?:fw|bw|fwd|bwd)\w*|batch_?norm(?:fwd|bwd)\w*", "reduction", "batch_norm"),
    _rule(r"l2_?norm\w*|multi_tensor_l2norm", "reduction", "l2_norm"),
    _rule(r"scaled_(?:upper_triang_|aligned_)?(?:causal_)?(?:masked_)?softmax\w*", "reduction", "softmax"),
    _rule(r"cross_?entropy\w*|nll_loss\w*", "reduction", "cross_entropy"),
    _rule(r"causal_?conv1d\w*", "other", "causal_conv1d"),
    _rule(r"selective_?scan\w*|selective_state_update\w*|chunk_scan\w*|chunk_state\w*|state_passing\w*|bmm_chunk\w*"
          r"|chunk_cumsum\w*|chunk_local_cumsum\w*|ssd_\w*|delta_rule\w*|gated_delta\w*|fused_recurrent\w*|chunk_fwd\w*"
          r"|chunk_bwd\w*|chunk_gated\w*|chunk_scaled_dot_kkt\w*|recompute_w_u\w*|solve_tril\w*|merge_16x16\w*|wkv\d?\w*"
          r"|lightning_attn\w*|linear_attn\w*|chunk_gla\w*|chunk_delta\w*|chunk_kda\w*|gdn_gating\w*|kda_\w*"
          r"|retention\w*|parallel_scan", "other", "scan"),
    _rule(r"rotary\w*|m?rope\w*|\w{0,20}_rope\w*|apply_rope\w*", "elementwise", "rope"),
    _rule(r"(?:\w{0,20}_)?attention\w*|attn|attn_(?:fwd|bwd)\w*|\w{0,12}fmha\w*|mha|mqa|mla|sdpa|xqa|flash_(?:fwd|bwd)\w*"
          r"|flash_attn\w*|flash_mla\w*|(?:batch|single|paged|ragged)_?(?:prefill|decode|pod)\w*|prefill_with\w*"
          r"|decode_with\w*|pa|bwd_kernel_(?:dk_dv|dq|fuse)|kernel_mha|mha_\w*|mla_\w*|mqa_\w*|pa_\w*"
          r"|fwd_(?:grouped_)?kernel_stage1|flashattn\w*|extend_attn\w*", "attention", "attention"),
    _rule(r"k?dequant_mm_int\w*", "elementwise", "dequantize"),
    _rule(r"fused_?moe\w*|fmoe\w*|\w{0,12}mfma_moe\w*|moe_?gemm\w*|moe_wna16\w*|grouped_?(?:gemm|mm|matmul)\w*|group_?(?:gemm|mm)\w*"
          r"|marlin\w*|machete\w*|moe_kernel\w*|moe_mlp\w*|moe_fused\w*|batched_moe\w*|fused_experts\w*",
          "gemm", "moe"),
    _rule(r"\w{0,40}gemm\w*|\w{0,30}gemv\w*|\w{0,30}matmul\w*|bmm|mm|mmq|mmvq|wv_?split_?k\w*|\w{0,20}skinny\w*"
          r"|scaled_mm\w*|linear_kernel\w*|mul_mat\w*|ll_?mm\d?\w*|mm_\w*"
          r"|lora_(?:shrink|expand)\w*|[bs]gmv\w*", "gemm", "gemm"),
    _rule(r"act_?and_?mul\w*|act_?mul\w*|silu_?and_?mul\w*|gelu_?(?:tanh_)?and_?mul\w*|silu_mul\w*|mul_and_silu"
          r"|gelu_mul\w*|swi_?glu\w*|ge_?glu\w*|re_?glu\w*|d?gated_?act\w*|glu_(?:fwd|bwd|forward|backward)|glu"
          r"|swiglu_?oai\w*|gated_?gelu|gated_?silu", "elementwise", "act_mul"),
    _rule(r"log_?softmax\w*", "reduction", "log_softmax"),
    _rule(r"soft_?max\w*", "reduction", "softmax"),
    _rule(r"\w{0,30}sampl(?:e|er|ing)\w*|top_?k_?(?:top_?p|mask|renorm)\w*|radix_?top_?k_?(?:mask|renorm)\w*|top_?p\w*|min_?p\w*"
          r"|rejection_\w*|apply_\w*penalt\w*", "reduction", "sampling"),
    _rule(r"\w{0,20}top_?k\w*", "reduction", "topk"),
    _rule(r"argmax\w*", "reduction", "argmax"),
    _rule(r"dequant\w*|\w{0,8}dequantize\w*", "elementwise", "dequantize"),
    _rule(r"cast_transpose\w*|cast_\w*fp8\w*|\w{0,8}quantize\w*|\w{0,30}quant|quant_\w*|mxfp\d\w*|nvfp4\w*|\w{0,20}_quant\w*"
          r"|cvt_\w*to_(?:fp|int)\d\w*|convert_fp8\w*",
          "elementwise", "quantize"),
    _rule(r"\w{0,20}adam\w*|lamb\w*|lion|adagrad\w*|sgd\w*|rmsprop\w*|muon\w*|optimizer\w*", "other", "optimizer"),
    _rule(r"\w{0,20}conv(?:olution)?(?:\d?d)?(?:_\w*)?|im2col|im2d2col|winograd\w*", "other", "convolution"),
    _rule(r"embedding\w*|embed_\w*", "other", "embedding"),
    _rule(r"\w{0,20}sort\w*", "other", "sort"),
    _rule(r"\w{0,20}scan\w*|cumsum\w*|cumprod", "other", "scan"),
    _rule(r"dropout\w*", "elementwise", "dropout", plain=True),
    _rule(r"histogram\w*", "other", "histogram", plain=True),
    _rule(r"\w{0,20}transpose\w*|permute\w*", "elementwise", "transpose", plain=True),
    _rule(r"multi_tensor_scale", "elementwise", "mul", plain=True),
    _rule(r"\w{0,20}copy\w*|cast\w*|convert\w*|reorder\w*", "elementwise", "copy", plain=True),
    _rule(r"fill\w*|zero\w*|memset\w*", "elementwise", "fill", plain=True),
    _rule(r"gather\w*|scatter\w*|index\w*", "other", "gather", plain=True),
    _rule(r"\w{0,20}reduce\w*|reduction\w*", "reduction", "reduce", plain=True),
)  # fmt: skip
# What stands beside such an operator in one kernel.
_BESIDE: Final = (
    ("rms_norm", re.compile(r"(?<![a-z])(?:add|residual|fused_add)(?![a-z])|add_?rms|residual_"), "add", True),
    ("layer_norm", re.compile(r"(?<![a-z])(?:add|residual)(?![a-z])|add_?layer"), "add", True),
    ("rms_norm", re.compile(r"quant|fp8|int8|mxfp|nvfp"), "quantize", False),
    ("layer_norm", re.compile(r"quant|fp8|int8|mxfp"), "quantize", False),
    ("rms_norm", re.compile(r"rope|rotary"), "rope", False),
    ("all_reduce", re.compile(r"rms_?norm"), "rms_norm", False),
    ("act_mul", re.compile(r"quant|fp8|int8|mxfp|nvfp"), "quantize", False),
    ("quantize", re.compile(r"transpose"), "transpose", False),
)
_BACKWARD: Final = re.compile(r"(?<![a-z])(?:bwd|backward|grad|dgrad|wgrad|dq|dkv|dk_dv|bprop|dgated_?act\w*)(?![a-z])")
# Activations as makers spell them, more specific ones first; a name without its form is that of its library's default.
_ACTIVATIONS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), op, form)
    for pattern, op, form in (
        (r"gelu_?tanh|tanh_?gelu|gelu_?new|gelu_?fast|gelu_?taylor|gelu_?pytorch_?tanh|geglu_?tanh", "gelu", "tanh"),
        (r"gelu_?quick|quick_?gelu|qgelu|qgeglu", "gelu", "quick"),
        (r"gelu_?erf|gelu_?none", "gelu", "erf"),
        (r"gelu|(?<![a-z])d?geglu", "gelu", None),
        (r"swi_?glu|silu|swish", "silu", None),
        (r"relu2|relu_?squared?|squared?_?relu|(?<![a-z])d?srelu", "relu_squared", None),
        (r"leaky_?relu", "leaky_relu", None),
        (r"relu|reglu", "relu", None),
        (r"sigmoid", "sigmoid", None),
        (r"(?<![a-z])tanh", "tanh", None),
        (r"(?<![a-z])identity(?![a-z])", "identity", None),
    )
)
_CAMEL: Final = re.compile(r"(?<=[a-z\d])(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Arguments that no operand of a kernel is of.
_INDICES: Final = frozenset({"int32", "int64", "bool", "int16"})
_TYPE: Final = re.compile(r"(?<![\w:])(?:[a-z_]\w{0,24}::){0,2}[A-Za-z_]\w{0,24}(?: char| long)?(?!\w)")
# Words of a function's own name that tell its operands' type.
_WORDS: Final = re.compile(
    r"(?<![a-z])(bf16|fp16|f16|f32|fp32|fp8|e4m3|e5m2|fp4|e2m1|int8|i8|bfloat16|float16|half)(?![a-z])",
    re.IGNORECASE,
)
# How TensorRT-LLM's attention spells the type of queries.
_NVIDIA: Final = re.compile(r"_Q(?:kv)?(E4m3|E5m2|Bfloat16|Fp16)")
_WORD_TYPES: Final = {"bfloat16": "bfloat16", "float16": "float16", "half": "float16", "fp8": "float8", "int8": "int8",
                      "i8": "int8", "fp4": "float4", "e2m1": "float4"}  # fmt: skip


def snake(name: str) -> str:
    """`FusedAddRMSNormKernel` -> `fused_add_rms_norm_kernel`."""
    return _CAMEL.sub("_", name[:400]).lower()


def computed(function: str, arguments: Iterable[str] = ()) -> Computed | None:
    """What a function computes by its name and its template's arguments, or None if no word says it."""
    words = snake(function)
    inner = " ".join(arguments)
    for rule in _RULES:
        found = rule.pattern.search(words)
        if found is None:
            continue
        if rule.op == "act_mul":
            return _act_mul(found[0], words, f"{function} {inner}")
        ops = [rule.op]
        for op, pattern, other, before in _BESIDE:
            if op == rule.op and pattern.search(words):
                ops = [other, *ops] if before else [*ops, other]
        return Computed(found[0], rule.kind, _directed(ops, rule.op, words), plain=rule.plain)
    return _activation(words, f"{function} {inner}")


def _directed(ops: list[str], op: str, words: str) -> tuple[str, ...]:
    """The operators, with the direction of the one that the rule is about."""
    if op == "attention_backward_helper" or not _BACKWARD.search(words):
        return tuple(ops)
    return tuple(f"{each}_backward" if each == op else each for each in ops)


def activation(text: str) -> tuple[str, str | None] | None:
    """The activation that a text spells, and its form."""
    return next(((op, form) for pattern, op, form in _ACTIVATIONS if pattern.search(text)), None)


def _act_mul(word: str, words: str, text: str) -> Computed:
    act = activation(text)
    ops = [act[0], "mul"] if act else ["act_mul"]
    if _BACKWARD.search(words) or word.startswith("dgated"):
        ops[0] = f"{ops[0]}_backward"
    if re.search(r"quant|fp8|int8|mxfp|nvfp", words):
        ops.append("quantize")
    return Computed(word, "elementwise", tuple(ops), act[1] if act else None)


def _activation(words: str, text: str) -> Computed | None:
    """A kernel that is one activation, by its own name (`vllm::gelu_new_kernel`) or by its argument's."""
    by_argument = re.search(r"(?<![a-z])(?:d?act(?:ivation)?|unary)(?![a-z])", words)
    act = activation(text if by_argument else words)
    if by_argument and re.search(r"(?<![a-z])GLU|[Gg]ated|(?<![a-z])glu", text):
        return _act_mul(by_argument[0], words, text)
    if act is None:
        return None
    op = f"{act[0]}_backward" if _BACKWARD.search(words) else act[0]
    return Computed(by_argument[0] if by_argument else act[0], "elementwise", (op,), act[1], plain=not by_argument)


def operand_type(function: str, arguments: Iterable[str]) -> tuple[str, str] | None:
    """The type of a kernel's first operand as it is spelled, and what it is: the first type of its template that is
    none of an index, else a word of its function's name."""
    plain = list(arguments)
    functions = [place for place, argument in enumerate(plain) if argument.startswith("&") or "(*)" in argument]
    found = _first_type(one for place, one in enumerate(plain) if place not in functions)
    if functions and (found is None or found[1] == "float32"):
        # Before a function, such as the activation, stands the type that it computes in.
        found = _first_type(plain[functions[-1] + 1 :]) or found
    if found:
        return found
    word = _NVIDIA.search(function) or _WORDS.search(snake(function))
    if word:
        dtype = _WORD_TYPES.get(word[1].lower(), DTYPES.get(word[1].lower()))
        if dtype:
            return word[1], dtype
    return None


def _first_type(arguments: Iterable[str]) -> tuple[str, str] | None:
    for argument in arguments:
        for found in _TYPE.finditer(argument[:400]):
            dtype = DTYPES.get(found[0])
            if dtype and dtype not in _INDICES:
                return found[0], dtype
    return None
