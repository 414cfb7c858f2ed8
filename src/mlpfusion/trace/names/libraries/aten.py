"""Decodes the names of PyTorch's own kernels: how they are built, which functor they run, on what elements."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion.records.profile import Decoded, Token
from mlpfusion.trace.names import ops
from mlpfusion.trace.names.computed import operand_type
from mlpfusion.trace.names.parsed import DTYPES, Parsed, established, likely, unknown

if TYPE_CHECKING:
    from mlpfusion.records.traffic import WorkKind
    from mlpfusion.trace.names.cpp import Cpp

_MORE: Final = {"long long": "int64", "unsigned int": "uint32", "unsigned long": "uint64"}
# How a kernel walks over its tensors.
_WALKS: Final = {
    "vectorized_elementwise_kernel": "an elementwise kernel on contiguous tensors, with vector loads and stores",
    "unrolled_elementwise_kernel": "an elementwise kernel, unrolled without vector accesses (other types or alignment)",
    "elementwise_kernel": "an elementwise kernel for strided or broadcast tensors",
    "legacy_elementwise_kernel": "an elementwise kernel for strided or broadcast tensors",
    "elementwise_kernel_with_index": "an elementwise kernel that computes values from the index",
    "index_elementwise_kernel": "an elementwise kernel over indexed places",
    "_scatter_gather_elementwise_kernel": "a gather or scatter",
    "distribution_elementwise_grid_stride_kernel": "an elementwise kernel that draws random numbers",
    "unrolled_elementwise_kernel_for_multi_outputs": "an elementwise kernel with several results",
    "reduce_kernel": "a reduction",
    "multi_tensor_apply_kernel": "one launch for a list of tensors (foreach)",
    "VectorizedElementwiseKernel": "an elementwise kernel on contiguous tensors, with vector loads and stores (XPU)",
    "UnrolledElementwiseKernel": "an elementwise kernel, unrolled without vector accesses (XPU)",
    "ElementwiseKernel": "an elementwise kernel for strided or broadcast tensors (XPU)",
    "ReduceKernel": "a reduction (XPU)",
    "ReduceKernelEmitter": "a reduction (XPU)",
    "UnrolledElementwiseKernelFunctor": "an elementwise kernel, unrolled without vector accesses (XPU)",
}
# PyTorch's functions in a namespace without a name, or in none, that nobody else has under this name.
_ALONE: Final = frozenset({"softmax_warp_forward", "softmax_warp_backward", "elementwise_kernel_with_index",
                           "cunn_SoftMaxForward", "cunn_SoftMaxForwardSmem", "cunn_SoftMaxBackward"})  # fmt: skip
# Kernels of their own: the operator that they are, and its kind. The first one whose text the name has.
_NAMED: Final[tuple[tuple[str, str, WorkKind], ...]] = (
    ("CatArrayBatchedCopy", "cat", "elementwise"),
    ("LogSoftMaxForward", "log_softmax", "reduction"),
    ("LogSoftMaxBackward", "log_softmax_backward", "reduction"),
    ("SoftMaxForward", "softmax", "reduction"),
    ("SoftMaxBackward", "softmax_backward", "reduction"),
    ("softmax_warp_forward", "softmax", "reduction"),
    ("softmax_warp_backward", "softmax_backward", "reduction"),
    ("layer_norm_grad", "layer_norm_backward", "reduction"),
    ("layer_norm", "layer_norm", "reduction"),
    ("LayerNormBackward", "layer_norm_backward", "reduction"),
    ("GammaBetaBackward", "layer_norm_backward", "reduction"),
    ("LayerNormForward", "layer_norm", "reduction"),
    ("RMSNorm", "rms_norm", "reduction"),
    ("RowwiseMoments", "moments", "reduction"),
    ("batch_norm_backward", "batch_norm_backward", "reduction"),
    ("batch_norm", "batch_norm", "reduction"),
    ("FusedAdam", "adam", "other"),
    ("indexSelect", "index_select", "other"),
    ("embedding_backward", "embedding_backward", "other"),
    ("compute_grad_weight", "embedding_backward", "other"),
    ("vectorized_gather", "gather", "other"),
    ("nll_loss_backward", "nll_loss_backward", "reduction"),
    ("nll_loss_forward", "nll_loss", "reduction"),
    ("fused_dropout", "dropout", "elementwise"),
    ("triu_tril", "triu_tril", "elementwise"),
    ("gatherTopK", "topk", "reduction"),
    ("radixFindKthValues", "topk", "reduction"),
    ("gather_kernel", "gather", "other"),
    ("radixSort", "sort", "other"),
    ("bitonicSort", "sort", "other"),
    ("RadixSort", "sort", "other"),
    ("MergeSort", "sort", "other"),
    ("DeviceScan", "scan", "other"),
    ("tensor_kernel_scan", "scan", "other"),
    ("DeviceReduce", "reduce", "reduction"),
    ("DeviceSelect", "select", "other"),
    ("max_pool", "max_pool", "reduction"),
    ("avg_pool", "avg_pool", "reduction"),
    ("upsample", "upsample", "other"),
    ("flip", "flip", "elementwise"),
    ("roll_cuda", "roll", "elementwise"),
    ("split_with_sizes_copy", "split_with_sizes_copy", "elementwise"),
    ("chunk_cat", "chunk_cat", "elementwise"),
)
# Kernels that are several operators: which one, an argument of the template says, found by the pattern.
_ARGUMENTS: Final[dict[str, tuple[re.Pattern[str], dict[str, str]]]] = {
    "softmax_warp": (  # <input, output, sums, log2 of the elements, is_log_softmax, is_masked>
        re.compile(r"^(?:[^,<>]{1,60}, ?){3}\d{1,4}, ?(true|false|[01])(?!\w)"),
        {"true": "log_softmax", "1": "log_softmax", "false": "softmax", "0": "softmax"},
    ),
    "tensor_kernel_scan": (
        re.compile(r"std::(plus|multiplies|greater_equal|less_equal)<|(logcumsumexp)"),
        {"plus": "cumsum", "multiplies": "cumprod", "greater_equal": "cummax", "less_equal": "cummin",
         "logcumsumexp": "logcumsumexp"},
    ),
}  # fmt: skip
# Functors that do not spell their operator as `<Operator>Functor` or `<operator>_kernel…`.
_FUNCTORS: Final = {
    "GeluCUDAKernelImpl": "gelu",
    "GeluBackwardCUDAKernelImpl": "gelu_backward",
    "launch_clamp_scalar": "clamp",
    "direct_copy_kernel_cuda": "copy",
    "bfloat16tofloat32_copy_kernel_cuda": "copy",
    "bfloat16_copy_kernel_cuda": "copy",
    "float16_copy_kernel_cuda": "copy",
    "float16tofloat32_copy_kernel_cuda": "copy",
    "float8_copy_kernel_cuda": "copy",
    "pow_tensor_scalar_kernel_impl": "pow",
    "CUDAFunctorOnSelf_add": "add",
    "CUDAFunctorOnOther_add": "add",
    "arange_cuda_out": "arange",
    "batch_norm_update_stats_and_invert": "batch_norm_update_stats",
    "TensorAssign": "scatter",
    "Copy": "copy",
}
_FUNCTOR: Final = re.compile(
    r"(?:::|^|[<, ])(?:(?P<known>" + "|".join(_FUNCTORS) + r")\b"
    r"|CUDAFunctor_(?P<cuda>\w+)"
    r"|(?P<kernel>(?!gpu_|vectorized_|unrolled_|elementwise_|reduce_)[a-z]\w{0,60}?)_kernel(?:_cuda|_impl)?(?=[(<])"
    r"|(?P<reduce>[a-z]\w{0,60})_functor\b"
    r"|(?P<camel>[A-Z][A-Za-z\d]{0,60}?)(?:Functor|Ops)(?:Master\w{0,20}|Capturable\w{0,20})?(?=[<(,>]))"
)
_CAMEL: Final = {
    "arg_max": "argmax", "arg_min": "argmin", "norm_two": "norm", "norm_one": "norm", "max_nan": "max",
    "min_nan": "min", "fused_adam_math": "adam", "lamb_stage1": "lamb",
    "lamb_stage2": "lamb", "fused_sgd_math": "fused_sgd", "fused_adagrad_math": "fused_adagrad",
    "l2norm": "l2_norm",
    "compare_eq": "eq", "compare": "compare", "welford": "var", "gelu_tanh": "gelu", "gelu_erf": "gelu",
    "gelu_tanh_backward": "gelu_backward", "gelu_erf_backward": "gelu_backward",
}  # fmt: skip
_WRAPPERS: Final = frozenset(
    {"AUnary", "BUnary", "Binary", "Unary", "Reduce", "UnaryOp", "BinaryOp", "PointwiseOp", "BinaryOpScalar"}
)
_GIVEN: Final = re.compile(
    r"(?<![A-Za-z])(Pointwise|Binary)Op\w{0,40}Functor<.{0,200}?std::(plus|minus|multiplies|divides)<"
)
_OF_LISTS: Final = {
    ("Pointwise", "divides"): "addcdiv", ("Pointwise", "multiplies"): "addcmul", ("Pointwise", "plus"): "add",
    ("Pointwise", "minus"): "sub", ("Binary", "plus"): "add", ("Binary", "minus"): "sub",
    ("Binary", "multiplies"): "mul", ("Binary", "divides"): "div",
}  # fmt: skip
# What a kernel that draws numbers draws.
_RANDOM: Final = re.compile(r"(?<![a-z])(uniform|normal|bernoulli|exponential|geometric|cauchy|log_normal|random)(?=_)")
_NUMERIC_CAST: Final = re.compile(r"\((?:unsigned )?(?:int|long|bool|short|char)\)(?=\d)")


def is_own(name: str, cpp: Cpp) -> bool:
    """Whether a function is PyTorch's: by its namespace, or without one by what it works on or by its own name."""
    if any("cuda_detail" in part for part in cpp.scope):  # PyTorch's own copy of CUB
        return True
    if cpp.named_scope:
        return cpp.scope[0] in ("at", "c10", "c10d", "torch")
    return cpp.function in _ALONE or "at::native::" in name


def aten(name: str, cpp: Cpp) -> Parsed:
    """`void at::native::vectorized_elementwise_kernel<8, at::native::GeluCUDAKernelImpl(…)::…{lambda(float)#1}>(…)`."""
    walk = cpp.function
    body = _NUMERIC_CAST.sub("", name[name.find(walk) + len(walk) + 1 :])
    named = next(((op, kind) for text, op, kind in _NAMED if text in walk or text in body[:200]), None)
    if named and named[0].startswith("layer_norm") and _is_rms(walk, cpp.arguments):
        named = named[0].replace("layer_norm", "rms_norm"), named[1]
    kind: WorkKind = "other"
    if "elementwise" in walk.lower():
        kind = "elementwise"
    elif walk in ("reduce_kernel", "ReduceKernel", "ReduceKernelEmitter"):
        kind = "reduction"
    elif named:
        kind = named[1]
    argument = _by_argument(walk, body) or _drawn(walk, body) or _listed(walk, body)
    functor = None if named and walk not in _WALKS else _functor(body)
    spelled, operator = argument or functor or (walk, named[0] if named else None)
    dtype = _dtype(body, indexed="int" if walk not in _BY_VALUE else None)
    if dtype is None and (named or walk == "multi_tensor_apply_kernel"):
        dtype = _listed_type(walk, body, cpp)
    lead = re.match(r"(\d{1,4})(?:, ?(\d{1,4}))?", body)
    vector = int(lead[1]) if lead and walk in ("vectorized_elementwise_kernel", "VectorizedElementwiseKernel") else None
    if kind == "other" and walk == "multi_tensor_apply_kernel" and operator:
        kind = "elementwise" if operator in ops.ELEMENTWISE else "reduction" if operator.endswith("norm") else "other"
    tokens = [established("at::native", "PyTorch's own kernel")] if "at::" in name else []
    if argument:
        named = (argument[1], kind) if argument[1] else None
    tokens.append(established(walk, _WALKS[walk]) if walk in _WALKS else _named_token(walk, named))
    tokens += _sizes(walk, lead)
    if (functor or argument) and operator:
        tokens.append(established(spelled, f"computes {operator}"))
    form = _gelu_form(body) if operator in ("gelu", "gelu_backward") else None
    if form:
        tokens.append(likely(form[0], f"GELU in its {form[1]} form: seen in traces of both"))
    if "LoadWithCast" in body or "StoreWithCast" in body:
        tokens.append(
            established("LoadWithCast" if "LoadWithCast" in body else "StoreWithCast", "converts types on the way")
        )
    if "gpu_kernel_impl_nocast" in body:
        tokens.append(established("nocast", "all tensors have the functor's types"))
    if dtype:
        tokens.append(likely(_spelled(body, dtype), f"{dtype} tensors"))
    return Parsed(
        Decoded(
            library="aten",
            kind=kind,
            dtype=dtype,
            fused_ops=(operator,) if operator else (),
            vector=vector,
            form=form[1] if form else None,
        ),
        tuple(tokens),
    )


def foreach(name: str, cpp: Cpp, library: str) -> Parsed:
    """`multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float, …>, …>`, from which PyTorch's comes."""
    decoded, tokens = aten(name, cpp)
    told = likely(cpp.function, "one launch for a list of tensors, by Apex or a copy of it")
    return Parsed(msgspec.structs.replace(decoded, library=library), (told, *tokens[1:]))


def _is_rms(walk: str, arguments: tuple[str, ...]) -> bool:
    """Whether a layer norm's kernel runs as RMS norm: since torch 2.8 the last of its template's arguments says so."""
    return len(arguments) > 2 and arguments[-1] in ("true", "1", "(bool)1")


def _listed_type(walk: str, body: str, cpp: Cpp) -> str | None:
    """The type of what a kernel of its own works on: its template's first type, or that of a list's functor."""
    if _CASTS.search(body):
        return None
    functor = re.search(r"Functor<([\w:]+),", body) if walk == "multi_tensor_apply_kernel" else None
    if functor:
        return _type(functor[1])
    found = operand_type("", cpp.arguments) if walk != "multi_tensor_apply_kernel" else None
    return found[1] if found else None


# A list's copy from one type to another.
_CASTS: Final = re.compile(r"\bCopy<([\w:]+), (?!\1>)")
# The two lambdas of `GeluCUDAKernelImpl`, of which each dispatches over types: the first is the tanh form.
_GELU: Final = re.compile(
    r"Gelu(?:Backward)?CUDAKernelImpl[^{\[]{0,200}[{\[](lambda\(\)#?\d?)|Gelu(Tanh|Erf)(?:Backward)?Functor"
)


def _gelu_form(body: str) -> tuple[str, str] | None:
    """The text that tells GELU's form, and the form."""
    found = _GELU.search(body)
    if found is None:
        return None
    if found[2]:
        return found[2], found[2].lower()
    forms = {"lambda()#1": "tanh", "lambda()#2": "erf"}
    return (found[1], forms[found[1]]) if found[1] in forms else None


def _by_argument(walk: str, body: str) -> tuple[str, str | None] | None:
    """The argument that says which operator a kernel of several is, and that operator, None if it does not say."""
    for text, (pattern, meanings) in _ARGUMENTS.items():
        if text in walk:
            found = pattern.search(body)
            word = next((group for group in found.groups() if group), "") if found else ""
            operator = meanings.get(word)
            return word, f"{operator}_backward" if operator and "backward" in walk else operator
    return None


def _drawn(walk: str, body: str) -> tuple[str, str | None] | None:
    """What a kernel that draws numbers draws."""
    found = _RANDOM.search(body) if walk.startswith("distribution_") else None
    return (found[0], found[1]) if found else None


def _listed(walk: str, body: str) -> tuple[str, str | None] | None:
    """The operator of a list's functor that is given another: `PointwiseOpScalarFunctor<…>, std::divides<float>`."""
    found = _GIVEN.search(body) if walk == "multi_tensor_apply_kernel" else None
    return (found[0], _OF_LISTS[found[1], found[2]]) if found else None


def _named_token(walk: str, named: tuple[str, WorkKind] | None) -> Token:
    return likely(walk, f"the kernel of {named[0]}") if named else unknown(walk)


def _sizes(walk: str, lead: re.Match[str] | None) -> list[Token]:
    """What the numbers before the functor are."""
    if not lead:
        return []
    if walk == "vectorized_elementwise_kernel":
        return [established(lead[1], f"{lead[1]} elements per vector access")]
    if walk in ("elementwise_kernel", "index_elementwise_kernel", "_scatter_gather_elementwise_kernel") and lead[2]:
        return [established(f"{lead[1]}, {lead[2]}", f"blocks of {lead[1]} threads, {lead[2]} elements per thread")]
    if walk == "reduce_kernel" and lead[2]:
        return [likely(f"{lead[1]}, {lead[2]}", f"at most {lead[1]} threads in a block, {lead[2]} results per thread")]
    return []


def _spelled(body: str, dtype: str) -> str:
    spellings = [spelling for spelling, meaning in {**DTYPES, **_MORE}.items() if meaning == dtype and spelling in body]
    return max(spellings, key=len, default=dtype)


def _functor(body: str) -> tuple[str, str] | None:
    """The functor as it is spelled, and the operator that it is."""
    for match in _FUNCTOR.finditer(body):
        if match["known"]:
            return match["known"], _FUNCTORS[match["known"]]
        if match["camel"]:
            if match["camel"] in _WRAPPERS:
                continue
            operator = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", match["camel"]).lower()
            return match["camel"], _CAMEL.get(operator, operator)
        operator = match["cuda"] or match["kernel"] or match["reduce"]
        return operator, operator.removesuffix("_kernel").removeprefix("launch_")
    return None


# Walks whose lambda takes elements; that of the others may take an index.
_BY_VALUE: Final = frozenset({"vectorized_elementwise_kernel", "unrolled_elementwise_kernel"})
_CONVERTS: Final = re.compile(r"LoadWithCast|StoreWithCast|gpu_kernel_impl<|(?<!direct)_copy_kernel_cuda")


def _dtype(body: str, *, indexed: str | None) -> str | None:
    """The one type of the tensors. A functor's own argument is the type of the arithmetic and says nothing of them."""
    if _CONVERTS.search(body):
        return None
    functor = re.search(r"(?:AUnary|BUnary|Binary)Functor<([\w:]+), ([\w:]+),", body)
    if functor:
        return _type(functor[1]) if functor[1] == functor[2] else None
    plain = re.search(r"\bCUDAFunctor\w*_\w+<([\w:]+)>|\bFillFunctor<([\w: ]+)>", body)
    if plain:
        return _type(plain[1] or plain[2])
    reduction = re.search(r"ReduceOp<([\w:]+), ", body)
    if reduction:
        return _type(reduction[1])
    arguments = re.search(r"\{lambda\(([\w: ]+)(?:, \1)*\)#\d+\}|\[lambda\(([\w: ]+)(?:, \2)*\)", body)
    spelling = (arguments[1] or arguments[2]) if arguments else ""
    return _type(spelling) if spelling != indexed else None


def _type(spelling: str) -> str | None:
    return DTYPES.get(spelling) or _MORE.get(spelling)
