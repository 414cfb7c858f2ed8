"""Decodes the names of kernels written in Triton: Inductor's, Liger's, ours; and Inductor's C++ ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mlpfusion.records.profile import Decoded, Token
from mlpfusion.trace.names import ops
from mlpfusion.trace.names.parsed import Parsed, established, likely, unknown

if TYPE_CHECKING:
    from mlpfusion.records.traffic import WorkKind

_TEMPLATES: Final[dict[str, tuple[WorkKind, str]]] = {
    "poi": ("elementwise", "a pointwise kernel"),
    "red": ("reduction", "a reduction that loops over the reduced dimension"),
    "per": ("reduction", "a reduction that keeps its row in registers (persistent)"),
    "tem": ("other", "made from a hand-written template, such as a matrix product"),
    "for": ("elementwise", "one launch for a list of tensors (foreach)"),
    "spl": ("other", "a scan that is split over blocks"),
    "mix": ("reduction", "a reduction along two dimensions in one pass"),
    "unk": ("other", "not distinguished by Inductor itself"),
}
_SIGNATURE: Final = re.compile(r"_(?:\d{1,2}(?:d?c|d?e|d))+\d{0,2}$")


def inductor(name: str, match: re.Match[str]) -> Parsed:
    """`triton_poi_fused__unsafe_view_gelu_mul_0`: `poi` pointwise, `red` and `per` reductions, `tem` a template."""
    template, joined, number = match[1], match[2] or "", match[3]
    kind, meaning = _TEMPLATES[template]
    fused = ops.split_fused(joined) if joined else ()
    words = ops.read_fused(joined)
    if template == "tem" and ops.GEMMS.intersection(word for word, known in words if known):
        kind = "gemm"
    if template == "tem" and any(word.startswith("flex_attention") for word in fused):
        kind = "attention"
    tokens = [established("triton", "a Triton kernel that torch.compile (Inductor) generated")]
    tokens.append(established(template, meaning))
    if "fused" in name:
        tokens.append(established("fused", "the operators that follow were fused into one kernel"))
    tokens += [_operator_token(word, known) for word, known in words]
    if number:
        tokens.append(established(number, "tells the kernels of one graph apart, nothing more"))
    tokens += _signature(name)
    return Parsed(
        Decoded(library="inductor", kind=kind, fused_ops=fused),
        tuple(tokens),
    )


def _operator_token(word: str, known: bool) -> Token:
    if not known:
        return unknown(word, "not an operator known here")
    if word in ops.VIEWS:
        return established(word, f"the operator {word}, which moves no data")
    return established(word, f"the operator {word}")


def _signature(name: str) -> list[Token]:
    found = _SIGNATURE.search(name)
    if not found:
        return []
    meaning = "old Triton's signature: the arguments by number, d for one divisible by 16, c constant, e equal to one"
    return [likely(found[0].strip("_"), meaning)]


def inductor_old(name: str, match: re.Match[str]) -> Parsed:
    """`triton__0d1d2d`: Inductor before torch 2.1, which did not name what it fused."""
    found = Decoded(library="inductor")
    text = "a Triton kernel that torch.compile (Inductor) generated; it does not say which operators it fuses"
    return Parsed(found, (established("triton", text), *_signature(name)))


def inductor_gemm(name: str, match: re.Match[str]) -> Parsed:
    """`triton_mm`, `triton_tem_fused_addmm_0_reduce_k`: a matrix product made from Inductor's template."""
    product = re.search(r"(?:^|_)(add|b|addb)?mm(?=_|$)", name)
    tokens = [established("triton", "a Triton kernel that torch.compile (Inductor) generated")]
    if product:
        tokens.append(established(product[0].strip("_"), "a matrix product made from Inductor's template"))
    return Parsed(Decoded(library="inductor", kind="gemm" if product else "other"), tuple(tokens))


def inductor_cpp(name: str, match: re.Match[str]) -> Parsed:
    """`graph_0_cpp_fused_gelu_mul_0`: a C++ kernel of a CPU run."""
    joined = match[1] or ""
    fused = ops.split_fused(joined)
    kind: WorkKind = "other"
    if ops.GEMMS.intersection(fused):
        kind = "gemm"
    elif fused and all(op in ops.ELEMENTWISE or op in ops.VIEWS for op in fused):
        kind = "elementwise"
    tokens = [
        established("cpp", "a C++ kernel that torch.compile (Inductor) generated for the CPU"),
        *(_operator_token(word, known) for word, known in ops.read_fused(joined)),
    ]
    return Parsed(Decoded(library="inductor-cpp", kind=kind, fused_ops=fused), tuple(tokens))


# ---- Liger, ours -----------------------------------------------------------------------------------------------------

# What Liger's kernels compute, by the beginning of their names.
_LIGER: Final[dict[str, tuple[WorkKind, tuple[str, ...]]]] = {
    "_geglu_tanh": ("elementwise", ("gelu", "mul")),
    "_geglu": ("elementwise", ("gelu", "mul")),
    "_swiglu": ("elementwise", ("silu", "mul")),
    "_rms_norm": ("reduction", ("rms_norm",)),
    "_block_rms_norm": ("reduction", ("rms_norm",)),
    "_fused_add_rms_norm": ("reduction", ("add", "rms_norm")),
    "_layer_norm": ("reduction", ("layer_norm",)),
    "_group_norm": ("reduction", ("group_norm",)),
    "_triton_rope": ("elementwise", ("rope",)),
    "_relu_squared": ("elementwise", ("relu", "pow")),
    "_poly_norm": ("reduction", ("poly_norm",)),
    "_softmax_single_block": ("reduction", ("softmax",)),
    "_softmax_multi_block": ("reduction", ("softmax",)),
    "_sparsemax": ("reduction", ("sparsemax",)),
    "_kldiv": ("reduction", ("kl_div",)),
    "_jsd": ("reduction", ("jsd",)),
    "_tv_distance": ("reduction", ("tv_distance",)),
    "element_mul": ("elementwise", ("mul",)),
    "liger_cross_entropy": ("reduction", ("cross_entropy",)),
}
LIGER: Final = (
    rf"^({'|'.join(sorted(_LIGER, key=len, reverse=True))})(?:_(forward|backward))?(?:_kernel)?"
    r"(?:_(?:tiled|flat|no_tiling|affine|no_weight|plain|forward|backward|row|rows|stats))*$"
)


def liger(name: str, match: re.Match[str]) -> Parsed:
    """`_geglu_tanh_forward_kernel`: Liger's, as far as the name determines: anyone may use it."""
    kind, fused = _LIGER[match[1]]
    backward = "backward" in name
    if backward:
        fused = (f"{fused[0]}_backward", *fused[1:])
    what = " and ".join(_LIGER[match[1]][1])
    tokens = [likely(match[1], f"Liger's kernel of {what}, by its name alone")]
    if match[1] == "_geglu_tanh":
        tokens.append(established("tanh", "GELU in its tanh form"))
    if backward or "forward" in name:
        tokens.append(established("backward" if backward else "forward", "the direction"))
    form = "tanh" if match[1] == "_geglu_tanh" else None
    return Parsed(Decoded(library="liger", kind=kind, fused_ops=fused, form=form), tuple(tokens))


def ours(name: str, match: re.Match[str]) -> Parsed:
    """`act_mul_flat_kernel`: this project's own."""
    fused = ("act_mul_backward",) if match[1] else ("act_mul",)
    tokens = [established("act_mul", "mlpfusion's kernel of activation times up, one pass over both")]
    if match[1]:
        tokens.append(established("backward", "the gradients of both operands, in one pass"))
    how = {"flat": "over contiguous tensors as one row", "rows": "over rows with their own strides"}
    for word, meaning in how.items():
        if word in name.split("_"):
            tokens.append(established(word, meaning))
    return Parsed(Decoded(library="mlpfusion", kind="elementwise", fused_ops=fused), tuple(tokens))


_FORMS: Final = {
    "hopper": "warp-specialised, for compute capability 9.0",
    "wide": "by tensor descriptors (TMA)",
    "tma": "by tensor descriptors (TMA)",
    "pointer": "by pointers",
    "decode": "for a few tokens, past which it streams the weights",
}


def our_gemm(name: str, match: re.Match[str]) -> Parsed:
    """`gate_up_hopper_kernel`: this project's own matrix products, with act·mul in the epilogue of gate and up."""
    fused: tuple[str, ...] = ()
    if match[1] == "gate_up":
        fused = ("act_mul_backward",) if match[2] else ("act_mul",)
        meaning = "mlpfusion's product of gate and up, activation times up in its epilogue"
        if match[2]:
            meaning = "mlpfusion's product with the down weight, the gradients of gate and up in its epilogue"
    else:
        meaning = "mlpfusion's product with the down weight"
    tokens = [established(match[1], meaning)]
    if match[2]:
        tokens.append(established("backward", "for the gradients"))
    if match[3] in _FORMS:
        tokens.append(established(match[3], _FORMS[match[3]]))
    return Parsed(Decoded(library="mlpfusion", kind="gemm", fused_ops=fused), tuple(tokens))
