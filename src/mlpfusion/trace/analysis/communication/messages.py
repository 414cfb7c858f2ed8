"""Reads the arguments of a collective: its operation, type, group and size, and the bytes that cross a link."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from mlpfusion.trace.read.chrome import integer

if TYPE_CHECKING:
    from mlpfusion.trace.read.columns import Message

# As PyTorch names them, longer names first: `_allgather_base`, `reduce_scatter_tensor_coalesced`, `all_to_allv`.
_OPERATIONS: Final = (
    ("reduce_scatter", "reduce_scatter"), ("reducescatter", "reduce_scatter"), ("allreduce", "all_reduce"),
    ("all_reduce", "all_reduce"), ("allgather", "all_gather"), ("all_gather", "all_gather"),
    ("alltoall", "all_to_all"), ("all_to_all", "all_to_all"), ("broadcast", "broadcast"), ("reduce", "reduce"),
    ("gather", "gather"), ("scatter", "scatter"), ("send", "send"), ("recv", "recv"), ("barrier", "barrier"),
)  # fmt: skip
_LARGEST: Final = 2**48  # elements, ranks: more is a damaged text
_BYTES: Final = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "half": 2, "float16": 2, "bfloat16": 2, "int": 4, "int32": 4,
    "long": 8, "int64": 8, "short": 2, "int16": 2, "char": 1, "int8": 1, "byte": 1, "uint8": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1,
}  # fmt: skip


class Parameters(NamedTuple):
    """What a collective does: `size` is the whole size S in bytes, as nccl-tests counts it; None where not told."""

    operation: str
    dtype: str | None
    group: str | None
    group_size: int | None
    sequence: int | None
    size: int | None


def parameters_of(message: Message) -> Parameters | None:
    """The arguments of a collective; None where its name is none that is known."""
    name = _text(message.collective)
    operation = operation_of(name) if name else None
    if operation is None:
        return None
    dtype = _text(message.dtype)
    dtype = dtype.lower().removeprefix("torch.") if dtype else None
    sent, received, ranks = (_count(text) for text in (message.sent, message.received, message.group_size))
    # All ranks' parts together: what is gathered is received, anything else is sent.
    elements = received if operation in ("all_gather", "gather", "recv") else sent
    width = _BYTES.get(dtype) if dtype else None
    return Parameters(
        operation=operation,
        dtype=dtype,
        group=_text(message.group) or None,
        group_size=ranks or None,
        sequence=_count(message.sequence),
        size=elements * width if elements and width else None,
    )


def operation_of(name: str) -> str | None:
    """The operation that PyTorch's name of a collective means."""
    name = name.lower().removeprefix("c10d::").removeprefix("nccl:").strip("_")
    return next((operation for start, operation in _OPERATIONS if name.startswith(start)), None)


def bus_factor(operation: str, ranks: int | None) -> float | None:
    """What part of the whole size S crosses the busiest link, by which nccl-tests multiplies S / time.

    The formulas are those of https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md: 2(n-1)/n for an
    all-reduce, (n-1)/n where each rank keeps its own part, 1 for a broadcast, a reduce, a send.
    """
    if operation in ("broadcast", "reduce", "send", "recv"):
        return 1.0
    if not ranks or ranks < 2:
        return None
    part = (ranks - 1) / ranks
    if operation == "all_reduce":
        return 2 * part
    return part if operation in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter") else None


def _text(raw: bytes) -> str | None:
    try:
        value = msgspec.json.decode(raw) if raw else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if isinstance(value, str) else None


def _count(raw: bytes) -> int | None:
    try:
        value = integer(msgspec.json.decode(raw)) if raw else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return value if value is not None and 0 <= value < _LARGEST else None
