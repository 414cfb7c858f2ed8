"""Decodes the kernels of NCCL and RCCL: the collective, its operator and type, the algorithm and the protocol."""

from __future__ import annotations

import re
from typing import Final

from mlpfusion.records.profile import Decoded, Token
from mlpfusion.trace.names.parsed import DTYPES, Parsed, established, likely, unknown

# `ncclDevKernel_AllReduce_Sum_bf16_RING_LL`, before 2.19 `ncclKernel_AllReduce_RING_LL_Sum_float`, before 2.7
# `ncclAllReduceRingLLKernel_sum_f32`; over symmetric memory `ncclSymkDevKernel_AllReduce_AGxLLMC_R_Sum_bf16`.
NAME: Final = (
    r"^(?:void )?(nccl(?:DevKernelDebug|DevKernel|Kernel|SymkDevKernel|SymDevKernel|Dev)_?|nccl(?=[A-Z]\w{3,20}Kernel_)"
    r"|rccl\w{0,20}Kernel_?)(\w{0,120})"
)

_COLLECTIVES: Final = {
    "AllReduce": "all_reduce", "AllGather": "all_gather", "ReduceScatter": "reduce_scatter", "Broadcast": "broadcast",
    "Reduce": "reduce", "SendRecv": "send_recv", "AllToAll": "all_to_all", "AlltoAll": "all_to_all",
    "AllToAllPivot": "all_to_all", "Gather": "gather", "Scatter": "scatter", "AllGatherV": "all_gather",
    "GinAlltoAll": "all_to_all",
}  # fmt: skip
_OPERATORS: Final = frozenset({"sum", "prod", "min", "max", "minmax", "premulsum", "sumpostdiv", "avg"})
_TYPES: Final = {
    "i8": "int8", "u8": "uint8", "i32": "int32", "u32": "uint32", "i64": "int64", "u64": "uint64", "f8e4m3":
    "float8_e4m3fn", "f8e5m2": "float8_e5m2", "int8_t": "int8", "uint8_t": "uint8", "int32_t": "int32", "int64_t":
    "int64", "uint64_t": "uint64", "uint32_t": "uint32",
}  # fmt: skip
_ALGORITHMS: Final = {
    "RING": "around a ring", "TREE": "along a tree", "NVLS": "through NVLink's switch, which adds on the way",
    "NVLS_TREE": "through NVLink's switch, and along a tree between hosts", "COLLNET": "through the network's switches",
    "COLLNET_DIRECT": "through the network's switches", "COLLNET_CHAIN": "along a chain of hosts",
    "PAT": "along parallel trees",
}  # fmt: skip
_PROTOCOLS: Final = {
    "LL128": "the protocol of 128-byte lines", "LL": "the low-latency protocol, for small messages",
    "SIMPLE": "the protocol for large messages",
}  # fmt: skip
# The words of a name: a type's underscore and an algorithm's belong to it.
_WORD: Final = re.compile(r"u?int\d{1,2}_t|__nv_bfloat16|rccl_bfloat16|hip_bfloat16|[A-Z]+_(?:TREE|DIRECT|CHAIN)|[^_]+")
_OLD: Final = re.compile(r"([A-Z]\w*?)(Ring|Tree|CollNet|Nvls)?(LL128|LL|Simple)?Kernel_?(\w*)$")


def collective(name: str, match: re.Match[str]) -> Parsed:
    """`ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)`."""
    prefix, rest = match[1], match[2]
    old = _OLD.match(rest) if prefix == "nccl" else None
    if old:
        rest = "_".join(part for part in (old[1], (old[2] or "").upper(), (old[3] or "").upper(), old[4]) if part)
    words = [word for word in _WORD.findall(rest) if word]
    tokens = [established(prefix.strip("_"), "NCCL or RCCL: communication between devices")]
    symmetric = "Sym" in prefix
    if symmetric:
        tokens.append(established("Sym", "over symmetric memory, which every device of the group can address"))
    done = dtype = None
    form: list[str] = []
    for word in words:
        token, kind = _word(word, symmetric=symmetric)
        tokens.append(token)
        done = done or (_COLLECTIVES[word] if kind == "collective" else None)
        dtype = dtype or (_type(word) if kind == "type" else None)
        form += [word.lower()] if kind == "form" else []
    decoded = Decoded(
        library="nccl",
        kind="communication",
        dtype=dtype,
        fused_ops=(done,) if done else (),
        form=" ".join((*(["symmetric"] if symmetric else []), *form)) or None,
    )
    return Parsed(decoded, tuple(tokens))


def _word(word: str, *, symmetric: bool) -> tuple[Token, str]:
    """A word of the name as a token, and what it is."""
    if word in _COLLECTIVES:
        return established(word, f"the collective {_COLLECTIVES[word]}"), "collective"
    if word == "Generic":
        return established(word, "one kernel for every collective: the name does not say which one ran"), "other"
    if word.lower() in _OPERATORS:
        return established(word, f"combines by {word.lower()}"), "operator"
    if _type(word):
        return established(word, f"elements of {_type(word)}"), "type"
    if word in _ALGORITHMS:
        return established(word, _ALGORITHMS[word]), "form"
    if word in _PROTOCOLS:
        return established(word, _PROTOCOLS[word]), "form"
    if symmetric and re.match(r"(?:AG|RS|LL|LD|ST|TMA|MC|R$|RailRing)", word):
        return likely(word, "the algorithm over symmetric memory"), "form"
    return unknown(word), "other"


def _type(word: str) -> str | None:
    return _TYPES.get(word) or (DTYPES.get(word) if word != "short" else None)
