"""Splits the operator names that Inductor joins with underscores, and sorts operators into kinds."""

from __future__ import annotations

from typing import Final

GEMMS: Final = frozenset(
    {"mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "_scaled_mm", "_addmm_activation", "mv", "addmv", "dot",
     "_int_mm", "_grouped_mm", "_linear_pointwise", "_mkl_linear", "mkldnn_linear", "qlinear_pointwise", "vdot"}
)  # fmt: skip
# Where an operator's two factors are among its inputs, and whether the second one lies as [N, K].
FACTORS: Final = {
    "mm": (0, 1, False),
    "_scaled_mm": (0, 1, False),
    "matmul": (0, 1, False),
    "addmm": (1, 2, False),
    "_addmm_activation": (1, 2, False),
    "linear": (0, 1, True),
}
BATCHED: Final = frozenset({"bmm", "baddbmm"})
# Operators that write one result of their inputs' broadcast shape, element by element; with `_` behind it, the first.
POINTWISE: Final = frozenset(
    {"gelu", "silu", "relu", "sigmoid", "tanh", "exp", "neg", "sqrt", "rsqrt", "reciprocal", "abs", "sin", "cos", "erf",
     "log", "leaky_relu", "mul", "add", "sub", "rsub", "div", "maximum", "minimum", "pow", "clamp", "clamp_min",
     "gelu_backward", "silu_backward", "sigmoid_backward", "tanh_backward", "threshold_backward"}
)  # fmt: skip
# Those that write their first input: the former read all the others, the latter none.
COPYING: Final = frozenset({"copy_"})
FILLING: Final = frozenset({"fill_", "zero_"})
ACTIVATIONS: Final = frozenset(
    {"gelu", "silu", "relu", "clamp_min", "clamp", "threshold", "sigmoid", "tanh", "erf", "leaky_relu", "hardswish",
     "hardsigmoid", "mish", "softplus", "elu", "relu6"}
)  # fmt: skip
VIEWS: Final = frozenset(
    {"t", "transpose", "as_strided", "view", "_unsafe_view", "_reshape_alias", "reshape", "reshape_as", "view_as",
     "expand", "expand_as", "slice", "select", "unsqueeze", "squeeze", "permute", "detach", "detach_", "alias",
     "chunk", "split", "split_with_sizes", "narrow", "unbind", "unflatten", "flatten", "unfold", "diagonal",
     "movedim", "moveaxis", "swapaxes", "swapdims", "numpy_T", "matrix_H", "mT", "mH", "real", "imag",
     "view_as_real", "view_as_complex", "t_", "transpose_", "as_strided_", "squeeze_", "unsqueeze_",
     "resolve_conj", "resolve_neg", "conj", "_conj", "lift_fresh", "broadcast_to", "tensor_split", "values",
     "hsplit", "vsplit", "dsplit", "ravel", "unsafe_chunk", "unsafe_split", "unsafe_split_with_sizes"}
)  # fmt: skip
FACTORIES: Final = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_",
     "resize_as_", "set_", "_resize_output_", "_empty_affine_quantized", "scalar_tensor", "requires_grad_",
     "_nested_tensor_size", "set_data", "record_stream", "is_pinned", "pin_memory", "retain_grad"}
)  # fmt: skip
QUERIES: Final = frozenset(
    {"result_type", "can_cast", "is_floating_point", "is_complex", "is_nonzero", "item", "_local_scalar_dense",
     "size", "stride", "numel", "dim", "sym_size", "sym_numel", "sym_stride", "promote_types", "is_same_size",
     "_has_compatible_shallow_copy_type", "_version", "output_nr", "is_leaf", "equal", "broadcast_tensors"}
)  # fmt: skip
# Composite operators: what they do shows as operators inside them.
COMPOSITES: Final = frozenset(
    {"linear", "matmul", "contiguous", "clone", "to", "_to_copy", "type_as", "ones_like", "zeros_like", "zeros",
     "ones", "full", "full_like", "new_zeros", "new_ones", "new_full", "rand_like", "randn_like", "rand", "randn",
     "einsum", "tensordot", "float", "half", "bfloat16", "double", "cpu", "cuda", "dropout", "numpy_t", "inner",
     "outer", "hstack", "vstack", "concat", "concatenate", "square", "tile"}
)  # fmt: skip
# Operators whose inputs' dimensions and types are kept.
SIZED: Final = FACTORS.keys() | BATCHED | POINTWISE | {f"{op}_" for op in POINTWISE} | COPYING | FILLING
ELEMENTWISE: Final = ACTIVATIONS | frozenset(
    {"mul", "mul_", "add", "add_", "sub", "sub_", "rsub", "div", "div_", "neg", "exp", "exp2", "log", "log2", "log1p",
     "pow", "sqrt", "rsqrt", "reciprocal", "abs", "sin", "cos", "where", "maximum", "minimum", "fill", "fill_", "zero_",
     "copy", "copy_", "_to_copy", "convert_element_type", "clone", "gelu_backward", "silu_backward", "sigmoid_backward",
     "tanh_backward", "threshold_backward", "masked_fill", "lt", "le", "gt", "ge", "eq", "ne", "logical_and",
     "logical_or", "logical_not", "bitwise_and", "bitwise_or", "full", "full_like", "zeros", "ones", "zeros_like",
     "ones_like", "arange", "lerp", "addcmul", "addcdiv", "floor", "ceil", "round", "sign", "isnan", "isinf", "fma",
     "relu_", "clamp_max", "expm1", "native_dropout", "cat", "constant_pad_nd", "stack", "tril", "triu", "silu_",
     "gelu_", "sigmoid_", "tanh_", "neg_", "exp_", "sqrt_", "pow_", "new_zeros", "new_full", "new_ones", "remainder",
     "fmod", "floor_divide", "trunc", "atan", "atan2", "asin", "acos", "tan", "sinh", "cosh", "asinh", "acosh", "atanh",
     "log10", "logical_xor", "bitwise_xor", "bitwise_not", "erfc", "erfinv", "lgamma", "digamma", "nan_to_num",
     "hardtanh", "celu", "selu", "log_sigmoid_forward", "log_sigmoid", "isfinite", "signbit", "copysign", "hypot",
     "nextafter", "heaviside", "sgn", "frac", "square", "sinc", "bernoulli", "hardswish_backward",
     "hardsigmoid_backward", "leaky_relu_backward", "elu_backward", "softplus_backward", "mish_backward",
     "hardtanh_backward", "native_dropout_backward", "inductor_random", "inductor_seeds", "inductor_lookup_seed",
     "inductor_randint", "flip", "roll", "repeat", "lift_fresh_copy", "eye", "linspace", "rand", "randn", "randint",
     "slice_scatter", "select_scatter", "slice_backward", "select_backward", "as_strided_scatter", "triu_tril",
     "mse_loss", "bitwise_left_shift", "bitwise_right_shift", "polar", "complex", "view_dtype", "clip", "ldexp"}
)  # fmt: skip
REDUCTIONS: Final = frozenset(
    {"sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "var", "std", "var_mean", "norm",
     "linalg_vector_norm", "_softmax", "softmax", "_log_softmax", "log_softmax", "native_layer_norm", "layer_norm",
     "rms_norm", "_fused_rms_norm", "logsumexp", "any", "all", "cumsum", "native_layer_norm_backward",
     "_softmax_backward_data", "_log_softmax_backward_data", "nll_loss_forward", "nll_loss_backward", "topk", "sort",
     "cumprod", "cummax", "cummin", "logcumsumexp", "aminmax", "std_mean", "count_nonzero", "linalg_norm",
     "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
     "_native_batch_norm_legit_no_training", "native_batch_norm_backward", "batch_norm", "native_group_norm",
     "native_group_norm_backward", "group_norm", "_fused_rms_norm_backward", "max_pool2d_with_indices",
     "max_pool2d_with_indices_backward", "_low_memory_max_pool_with_offsets", "avg_pool2d", "_adaptive_avg_pool2d",
     "adaptive_avg_pool2d", "prepare_softmax_online", "smooth_l1_loss",
     "huber_loss", "l1_loss", "binary_cross_entropy", "cross_entropy"}
)  # fmt: skip
_OTHERS: Final = frozenset(
    {"embedding", "embedding_dense_backward", "gather", "scatter", "scatter_add", "index", "index_put", "index_select",
     "convolution", "scaled_dot_product_attention", "_scaled_dot_product_flash_attention", "glu", "glu_backward",
     "convolution_backward", "scatter_reduce", "index_add", "index_copy", "upsample_nearest2d", "upsample_bilinear2d",
     "upsample_bicubic2d", "reflection_pad2d", "replication_pad2d", "repeat_interleave", "searchsorted", "bucketize",
     "embedding_bag", "_embedding_bag", "pixel_shuffle", "pixel_unshuffle", "grid_sampler_2d", "flex_attention",
     "flex_attention_backward", "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
     "all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "wait_tensor", "nonzero", "masked_select",
     "auto_functionalized", "_foreach_add", "_foreach_mul", "_foreach_copy", "_to_sparse", "meshgrid"}
)  # fmt: skip

_FOREACH: Final = frozenset(f"_foreach_{operator.rstrip('_')}" for operator in ELEMENTWISE | {"norm"})

_KNOWN: Final = GEMMS | VIEWS | FACTORIES | COMPOSITES | ELEMENTWISE | REDUCTIONS | _FOREACH | _OTHERS


# Beyond this a name is not read; Inductor cuts its own long before.
_READABLE: Final = 400


def split_fused(joined: str) -> tuple[str, ...]:
    """The operators in an Inductor kernel's name, `_unsafe_view_gelu_mul` -> `_unsafe_view`, `gelu`, `mul`.

    Empty when the text is no sequence of known operators.
    """
    read = read_fused(joined)
    return tuple(word for word, _ in read) if all(known for _, known in read) else ()


def read_fused(joined: str) -> tuple[tuple[str, bool], ...]:
    """The words of an Inductor kernel's name and whether each is a known operator.

    Operators have underscores too: of all readings the one with the fewest unknown words is taken, and of those the
    one whose operators are the longest, from the left. Unknown neighbours are one word.
    """
    length = len(joined)
    if length > _READABLE:
        return ((joined, False),)
    # best[i] reads joined[i:]: the number of unknown words, how far its first word goes, and whether that is known.
    best: list[tuple[int, int, bool]] = [(0, length, True)] * (length + 2)
    for start in range(length - 1, -1, -1):
        word_end = joined.find("_", start + 1)
        word_end = length if word_end < 0 else word_end
        best[start] = (1 + best[min(word_end + 1, length)][0], word_end, False)
        for stop in range(start + 1, length + 1):
            if (stop == length or joined[stop] == "_") and joined[start:stop] in _KNOWN:
                cost = best[min(stop + 1, length)][0]
                if cost < best[start][0] or (cost == best[start][0] and stop > best[start][1]):
                    best[start] = (cost, stop, True)
    words: list[tuple[str, bool]] = []
    start = 0
    while start < length:
        _, stop, known = best[start]
        if words and not known and not words[-1][1]:
            words[-1] = (f"{words[-1][0]}_{joined[start:stop]}", False)
        else:
            words.append((joined[start:stop], known))
        start = stop + 1
    return tuple(words)
