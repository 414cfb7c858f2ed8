"""Splits the operator names that Inductor joins with underscores, and sorts operators into kinds."""

from __future__ import annotations

from typing import Final

GEMMS: Final = frozenset(
    {"mm", "addmm", "bmm", "baddbmm", "matmul", "linear", "_scaled_mm", "_addmm_activation", "mv", "addmv", "dot",
     "_int_mm", "_grouped_mm", "_linear_pointwise", "_mkl_linear", "mkldnn_linear", "qlinear_pointwise", "vdot"}
)  # fmt: skip
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
ELEMENTWISE: Final = ACTIVATIONS | frozenset(
    {"mul", "mul_", "add", "add_", "sub", "sub_", "rsub", "div", "div_", "neg", "exp", "exp2", "log", "log2", "log1p",
     "pow", "sqrt", "rsqrt", "reciprocal", "abs", "sin", "cos", "where", "maximum", "minimum", "fill", "fill_", "zero_",
     "copy", "copy_", "_to_copy", "convert_element_type", "clone", "gelu_backward", "silu_backward", "sigmoid_backward",
     "tanh_backward", "threshold_backward", "masked_fill", "lt", "le", "gt", "ge", "eq", "ne", "logical_and",
     "logical_or", "logical_not", "bitwise_and", "bitwise_or", "full", "full_like", "zeros", "ones", "zeros_like",
     "ones_like", "arange", "lerp", "addcmul", "addcdiv", "floor", "ceil", "round", "sign", "isnan", "isinf", "fma",
     "relu_", "clamp_max", "expm1", "native_dropout", "cat", "constant_pad_nd", "stack", "tril", "triu", "silu_",
     "gelu_", "sigmoid_", "tanh_", "neg_", "exp_", "sqrt_", "pow_", "new_zeros", "new_full", "new_ones"}
)  # fmt: skip
REDUCTIONS: Final = frozenset(
    {"sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "var", "std", "var_mean", "norm",
     "linalg_vector_norm", "_softmax", "softmax", "_log_softmax", "log_softmax", "native_layer_norm", "layer_norm",
     "rms_norm", "_fused_rms_norm", "logsumexp", "any", "all", "cumsum", "native_layer_norm_backward",
     "_softmax_backward_data", "_log_softmax_backward_data", "nll_loss_forward", "nll_loss_backward", "topk", "sort"}
)  # fmt: skip
_OTHERS: Final = frozenset(
    {"embedding", "embedding_dense_backward", "gather", "scatter", "scatter_add", "index", "index_put", "index_select",
     "convolution", "native_group_norm", "scaled_dot_product_attention", "_scaled_dot_product_flash_attention", "glu"}
)  # fmt: skip

_KNOWN: Final = GEMMS | VIEWS | FACTORIES | COMPOSITES | ELEMENTWISE | REDUCTIONS | _OTHERS


def split_fused(joined: str) -> tuple[str, ...]:
    """The operators in an Inductor kernel's name, `_unsafe_view_gelu_mul` -> `_unsafe_view`, `gelu`, `mul`.

    Operators have underscores too, so each place takes the longest known one that lets the rest be read. Empty when
    the text is no sequence of known operators.
    """
    if len(joined) > 400:
        return ()
    # reading[i] reads joined[i:]; None where that cannot be done.
    reading: list[tuple[str, ...] | None] = [None] * (len(joined) + 1)
    for start in range(len(joined) - 1, -1, -1):
        for stop in range(len(joined), start, -1):
            if joined[start:stop] not in _KNOWN:
                continue
            rest = () if stop == len(joined) else reading[stop + 1] if joined[stop] == "_" else None
            if rest is not None:
                reading[start] = (joined[start:stop], *rest)
                break
    return reading[0] or ()
