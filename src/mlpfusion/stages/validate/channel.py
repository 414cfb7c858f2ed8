"""The messages between judge and worker: records and raw tensors over a pipe."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import torch
from torch import Tensor

from mlpfusion.device import DeviceKind
from mlpfusion.records.base import Record
from mlpfusion.records.validation import Kind
from mlpfusion.spec import Activation

if TYPE_CHECKING:
    from collections.abc import Mapping

Tensors = dict[str, Tensor]
Facts = dict[str, Any]
# Baselines that a worker makes itself: a target is compared with these, unless others are named.
BASELINES: Final = ("eager", "inductor")
# What the memory of a target's allocations, and that around its operands, is filled with, by the pattern's name.
PATTERNS: Final = {"nan": float("nan"), "odd": -1234.5, "large": 1234.5, "zero": 0.0}
# What the process that runs a target once, for a tool that watches, prints before the passes that it called.
CALLED: Final = "mlpfusion called: "
Why = Literal["refused", "misused", "memory", "poisoned", "interpreter", "wrong", "internal"]


class Array(Record, frozen=True, kw_only=True):
    """A dense tensor: its dtype's name, shape and bytes in row-major order."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


class Load(Record, frozen=True, kw_only=True, tag="load"):
    """Load a target and say what it is."""

    target: str
    activation: Activation
    device: DeviceKind


class Ask(Record, frozen=True, kw_only=True, tag="ask"):
    """Run a probe of the loaded target on some tensors."""

    probe: str
    tensors: dict[str, Array]
    options: dict[str, Any] = msgspec.field(default_factory=dict)


class Loaded(Record, frozen=True, kw_only=True, tag="loaded"):
    """A target is there.

    `configurations` counts the autotuner's, 0 without one; `kernels` the Triton kernels that its code can reach.
    `unfit` is why the interpreter's bfloat16 results say nothing, or None. `left` are the settings of the process that
    its import left changed, by their names, and how.
    """

    kind: Kind
    described: str
    configurations: int = 0
    kernels: int = 0
    interpreted: bool = False
    unfit: str | None = None
    left: dict[str, str] = msgspec.field(default_factory=dict)


class Stale(Record, frozen=True, kw_only=True, tag="stale"):
    """Nothing was loaded: earlier targets `left` the process, or modules of their own, in a state that would count."""

    left: tuple[str, ...]


class Raw(Record, frozen=True, kw_only=True, tag="raw"):
    """What a probe gave: tensors by name, and facts."""

    tensors: dict[str, Array]
    facts: dict[str, Any] = msgspec.field(default_factory=dict)


class Raised(Record, frozen=True, kw_only=True, tag="raised"):
    """A probe or a load raised.

    `why`: the target gave something "wrong" (no tensor), it "refused" (any exception of its own), it was "misused" (it
    is no target), its device ran out of "memory" or is "poisoned" by it, or the "interpreter" could not run it; or the
    judge's own code raised, which is "internal". `left` are the settings that it left changed, by name, and how.
    """

    why: Why
    exception: str
    text: str
    left: dict[str, str] = msgspec.field(default_factory=dict)


Answer = Loaded | Stale | Raw | Raised
_ENCODER = msgspec.msgpack.Encoder()
_FRAME = struct.Struct("<QQ")


def encode(message: Load | Ask | Answer) -> bytes:
    """A message as bytes. What is no Unicode in it, a lone surrogate in an exception's text, is spelled out."""
    try:
        return _ENCODER.encode(message)
    except UnicodeEncodeError:
        return _ENCODER.encode(_spelled(msgspec.to_builtins(message, builtin_types=(bytes,))))


def _spelled(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_spelled(key): _spelled(each) for key, each in value.items()}
    return [_spelled(each) for each in value] if isinstance(value, list | tuple) else value


def framed(number: int, process: int, data: bytes) -> bytes:
    """A message's bytes behind the number of the request and the process that wrote them."""
    return _FRAME.pack(number, process) + data


def unframed(data: bytes) -> tuple[int, int, bytes]:
    """The number, the process and the message's bytes.

    Raises:
        ValueError: there is no such frame.
    """
    if len(data) < _FRAME.size:
        raise ValueError(f"{len(data)} bytes are no message")
    number, process = _FRAME.unpack_from(data)
    return number, process, data[_FRAME.size :]


def decode_request(data: bytes) -> Load | Ask:
    """The request in these bytes."""
    request: Load | Ask = msgspec.msgpack.decode(data, type=Load | Ask)
    return request


def decode_answer(data: bytes) -> Answer:
    """The answer in these bytes."""
    answer: Answer = msgspec.msgpack.decode(data, type=Answer)
    return answer


def pack(tensors: Mapping[str, Tensor]) -> dict[str, Array]:
    """Tensors of any layout and device as arrays; their values are copied."""
    return {name: _array(tensor) for name, tensor in tensors.items()}


def unpack(arrays: Mapping[str, Array]) -> Tensors:
    """Arrays as contiguous tensors on the CPU."""
    return {name: _tensor(array) for name, array in arrays.items()}


def _array(tensor: Tensor) -> Array:
    dense = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    data = dense.reshape(-1).view(torch.uint8).numpy().tobytes() if dense.numel() else b""
    return Array(dtype=str(dense.dtype).removeprefix("torch."), shape=tuple(dense.shape), data=data)


def _tensor(array: Array) -> Tensor:
    dtype: torch.dtype = getattr(torch, array.dtype)
    if not array.data:
        return torch.empty(array.shape, dtype=dtype)
    return torch.frombuffer(bytearray(array.data), dtype=dtype).reshape(array.shape)
