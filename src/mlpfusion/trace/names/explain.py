"""Explains a kernel's name in one sentence, beside its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.records.profile import Explanation
from mlpfusion.trace.names import ops
from mlpfusion.trace.names.decode import parse
from mlpfusion.trace.names.demangle import demangle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.profile import Decoded
    from mlpfusion.trace.names.parsed import Parsed

_MAKERS: Final = {
    "cublas": "cuBLAS",
    "cutlass": "CUTLASS",
    "tensorrt": "TensorRT",
    "cudnn": "cuDNN",
    "aten": "PyTorch",
    "inductor": "torch.compile (Inductor)",
    "inductor-cpp": "torch.compile (Inductor), in C++ for the CPU",
    "liger": "Liger",
    "mlpfusion": "mlpfusion",
    "quack": "QuACK",
    "tensile": "Tensile (hipBLASLt or rocBLAS)",
    "ck": "AMD's Composable Kernel",
    "nccl": "NCCL",
    "aiter": "AITER",
    "flashinfer": "FlashInfer",
    "flash-attention": "FlashAttention",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "marlin": "Marlin (vLLM, SGLang)",
    "machete": "Machete (vLLM)",
    "tensorrt-llm": "TensorRT-LLM",
    "deepgemm": "DeepGEMM",
    "deepep": "DeepEP",
    "transformer-engine": "Transformer Engine",
    "rocblas": "rocBLAS",
    "rocprim": "rocPRIM (whoever calls it)",
    "cub": "CUB (whoever calls it)",
    "apex": "Apex",
    "mamba": "Mamba",
    "fla": "flash-linear-attention",
    "aotriton": "AOTriton",
    "miopen": "MIOpen",
    "onednn": "oneDNN",
    "runtime": "the driver",
    "mkldnn": "oneDNN",
}
_LAYOUTS: Final = {
    "tn": "for operands that are both contiguous along K (tn, as nn.Linear gives)",
    "nn": "for torch's second operand contiguous along N (nn, as a @ b gives)",
    "nt": "for operands that are both not contiguous along K (nt, as a weight's gradient gives)",
    "tt": "for torch's first operand contiguous along M (tt)",
}
_WAYS: Final = frozenset({"DtoD", "HtoD", "DtoH", "PtoP", "HtoH"})
_NARROW: Final = ("a matrix times", "a dot product", "the second step", "a matrix product with")
_SHOWN: Final = 6  # words of doubt that a sentence lists


def explain(name: str) -> Explanation:
    """What `name` means: a sentence, the fields it settles, and its tokens with their certainty."""
    parsed = parse(name)
    return Explanation(
        name=name,
        sentence=f"{_sentence(parsed)}{_doubts(parsed)}.",
        decoded=parsed.decoded,
        tokens=parsed.tokens,
        demangled=demangle(name),
    )


def _sentence(parsed: Parsed) -> str:
    decoded = parsed.decoded
    if decoded.library is None and not parsed.tokens:
        return "The name follows no convention known here, so this kernel is not explained"
    maker = "a maker that the name does not tell"
    if decoded.library is not None:
        maker = _MAKERS.get(decoded.library, decoded.library)
    if decoded.kind in ("memset", "memcpy"):
        way = "".join(f" {token.meaning}" for token in parsed.tokens if token.text in _WAYS)
        what = "fill" if decoded.kind == "memset" else "copy"
        return f"A {what} of memory{way} that {maker} makes, no kernel of a library"
    if decoded.kind == "gemm":
        told = parsed.tokens[0].meaning if parsed.tokens else ""
        return _product(told if told.startswith(_NARROW) else "a matrix product", maker, decoded)
    if decoded.fused_ops == ("splitk_reduce",):
        return f"The second step of a {maker} matrix product split along K: it adds up the partial sums"
    return _other(maker, decoded)


def _doubts(parsed: Parsed) -> str:
    """The words of the name that are only likely understood, and those that are not, as the end of the sentence."""
    text = ""
    for certainty, said in (("likely", "only likely"), ("unknown", "not established")):
        words = [f"`{token.text}`" for token in parsed.tokens if token.certainty == certainty]
        if words:
            more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
            text += f"; {said}: {', '.join(words[:_SHOWN])}{more}"
    return text


def _product(what: str, maker: str, decoded: Decoded) -> str:
    """A sentence for a matrix product: who made it, for what, and how it walks."""
    parts = [f"{what[0].upper()}{what[1:]} by {maker}"]
    if decoded.arch:
        parts.append(f"written for {decoded.arch}")
    if decoded.dtype:
        parts.append(f"on {decoded.dtype} operands")
    text = " ".join(parts)
    if decoded.layout:
        text += f", {_LAYOUTS[decoded.layout]}"
    if decoded.tile:
        sides = decoded.tile.split("x")
        text += f"; each block makes {sides[0]} rows by {sides[1]} columns of the result"
        if len(sides) == 3:
            text += f" in steps of {sides[2]} along K"
    if decoded.stages:
        text += f", {decoded.stages} {'step' if decoded.stages == 1 else 'steps'} in flight"
    if decoded.split_k:
        text += ", with K split over blocks"
    if decoded.epilogue:
        text += f"; the epilogue applies {_listed(decoded.epilogue)}"
    elif decoded.fused_ops:
        text += f"; it fuses {_listed(decoded.fused_ops)}"
    return text


def _other(maker: str, decoded: Decoded) -> str:
    """A sentence for everything else: what it computes, and on which elements."""
    kinds = {
        "elementwise": "An elementwise kernel",
        "reduction": "A reduction",
        "attention": "An attention kernel",
        "communication": "A kernel that communicates between devices",
    }
    text = f"{kinds.get(decoded.kind, 'A kernel')} by {maker}"
    work = [op for op in decoded.fused_ops if op not in ops.VIEWS]
    views = [op for op in decoded.fused_ops if op in ops.VIEWS]
    if work:
        text += f" that {'fuses' if len(work) > 1 else 'computes'} {_listed(work)}"
    if views:
        text += f" ({_listed(views)} {'moves' if len(views) == 1 else 'move'} no data)"
    if decoded.form:
        text += f", in its {decoded.form} form"
    if decoded.dtype:
        text += f", on {decoded.dtype} tensors"
    if decoded.head_dim:
        text += f", with {decoded.head_dim} elements a head"
    if decoded.vector:
        text += f", {decoded.vector} elements per access"
    return text


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
