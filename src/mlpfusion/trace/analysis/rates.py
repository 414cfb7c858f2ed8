"""Relates the time of matrix products and elementwise operators to what they compute and move."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from mlpfusion.device import Device
from mlpfusion.records.breakdown import Rate
from mlpfusion.trace.analysis.products import shape_of
from mlpfusion.trace.names import ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.device import Peaks
    from mlpfusion.records.profile import Kernel
    from mlpfusion.trace.calls.call import Work
    from mlpfusion.trace.read.kineto import Event

Dims: TypeAlias = tuple[int, ...]

# Bytes of an element as PyTorch writes types; what the peaks of a card are for has 16 bits.
_WIDTHS: Final = {
    "bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1, "int64": 8,
    "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
_TYPES: Final = {
    "c10::BFloat16": "bfloat16", "c10::Half": "float16", "float": "float32", "double": "float64", "long int": "int64",
    "long": "int64", "int": "int32", "short int": "int16", "short": "int16", "signed char": "int8",
    "unsigned char": "uint8", "bool": "bool", "c10::Float8_e4m3fn": "float8_e4m3fn",
    "c10::Float8_e5m2": "float8_e5m2",
}  # fmt: skip
_AT_16_BITS: Final = frozenset({"bfloat16", "float16"})
_BATCHED_DIMS: Final = 3
_LARGEST: Final = 2**63  # more is a damaged text


class _Load(NamedTuple):
    """What one operator does: FLOP or bytes, of which shape and type."""

    unit: Literal["FLOP", "bytes"]
    shape: Dims
    dtype: str | None
    work: int


def rates_of(work: Sequence[Work], kernels: Sequence[Kernel], gpu: str | None) -> tuple[Rate, ...]:
    """The rates of a call's sized operators, given its work and its kernels in launch order, most time first.

    An operator counts with the time of all its kernels, fills included; one with a kernel of unknown time does not.
    """
    operators: dict[tuple[object, ...], Event] = {}
    times: dict[tuple[object, ...], list[float | None]] = defaultdict(list)
    for item, kernel in zip(work, kernels, strict=True):
        operator = item.event if item.event is item.launch else item.owners[0] if item.owners else None
        if operator is not None and operator.dims is not None:
            key: tuple[object, ...] = (operator.tid, operator.start_ns, operator.name)
            operators[key] = operator
            times[key].append(kernel.time_us)
    groups: dict[tuple[str, _Load], list[float]] = defaultdict(list)
    for key, operator in operators.items():
        load, known = load_of(operator), [time for time in times[key] if time]
        if load is not None and len(known) == len(times[key]):
            groups[operator.name, load].append(sum(known))
    peaks = peaks_of(gpu)
    found = [_rate(name, load, group, peaks) for (name, load), group in groups.items()]
    return tuple(sorted(found, key=lambda one: -one.us * one.count))


def peaks_of(gpu: str | None) -> Peaks | None:
    """The datasheet peaks of the card that a trace names; none of a part of one (MIG)."""
    return Device(kind="cuda", name=gpu).peaks if gpu is not None and "MIG" not in gpu else None


def load_of(operator: Event) -> _Load | None:
    """What an operator computes or moves by the dimensions of its inputs; None where they do not say it."""
    name = operator.name.rpartition("::")[2]
    if operator.dims is None:
        return None
    if any(length < 0 for each in operator.dims for length in each):
        return None
    product = name in ops.FACTORS or name in ops.BATCHED
    found = _product(operator, name) if product else _moved(operator.dims, operator.types, name)
    return found if found is not None and found.work < _LARGEST else None


def _product(operator: Event, name: str) -> _Load | None:
    """FLOP of a product, 2MNK for each of a batch."""
    dims, types = operator.dims or (), operator.types or ()
    first = 1 if name in ("addmm", "_addmm_activation", "baddbmm") else 0
    dtype = _TYPES.get(types[first]) if len(types) > first else None
    if name in ops.BATCHED:
        if len(dims) <= first + 1 or not len(dims[first]) == len(dims[first + 1]) == _BATCHED_DIMS:
            return None
        (batch, m, k), n = dims[first], dims[first + 1][2]
        return _Load("FLOP", (batch, m, n, k), dtype, 2 * batch * m * n * k) if batch * m * n * k else None
    shape = shape_of(operator)
    if shape is None or not prod(shape):
        return None
    return _Load("FLOP", (shape.m, shape.n, shape.k), dtype, 2 * prod(shape))


def _moved(dims: Sequence[Dims], types: Sequence[str] | None, name: str) -> _Load | None:
    """Bytes that an elementwise operator reads and writes: each input once, and its result."""
    if types is None or len(types) != len(dims):
        return None
    # Numbers and tensors of one element are nothing beside the others.
    tensors = [(each, _TYPES.get(written)) for each, written in zip(dims, types, strict=True) if each]
    if not tensors or any(dtype is None for _, dtype in tensors):
        return None
    sizes = [prod(each) * _WIDTHS[dtype] for each, dtype in tensors if dtype is not None]
    first, dtype = tensors[0]
    if name in ops.FILLING:
        moved, shape = sizes[0], first
    elif name in ops.COPYING:
        moved, shape = sizes[0] + sum(sizes[1:2]), first
    elif name.endswith("_") and name.removesuffix("_") in ops.POINTWISE and dims[0]:
        moved, shape = sizes[0] + sum(sizes), first
    elif name in ops.POINTWISE:
        result = _broadcast([each for each, _ in tensors])
        dtype = _promoted([each for _, each in tensors if each is not None])
        if result is None:
            return None
        moved, shape = sum(sizes) + prod(result) * _WIDTHS[dtype], result
    else:
        return None
    return _Load("bytes", shape, dtype, moved) if prod(shape) else None


def _broadcast(shapes: Sequence[Dims]) -> Dims | None:
    """The shape that these broadcast to; None if they do not."""
    length = max(map(len, shapes))
    padded = [(1,) * (length - len(each)) + tuple(each) for each in shapes]
    result = tuple(max(lengths) if 0 not in lengths else 0 for lengths in zip(*padded, strict=True))
    fits = all(one in (1, whole) for each in padded for one, whole in zip(each, result, strict=True))
    return result if fits else None


def _promoted(dtypes: Sequence[str]) -> str:
    """The type of the result of inputs of these types."""
    widest = max(dtypes, key=lambda dtype: (dtype.startswith(("float", "bfloat")), _WIDTHS[dtype]))
    halves = {dtype for dtype in dtypes if dtype in _AT_16_BITS}
    return "float32" if widest in halves and len(halves) > 1 else widest


def _rate(name: str, load: _Load, times: Sequence[float], peaks: Peaks | None) -> Rate:
    us = sum(times) / len(times)
    per_second = load.work / us * 1e6
    peak = None
    if peaks is not None:
        of_products = peaks.flops_16bit if load.dtype in _AT_16_BITS else None
        peak = of_products if load.unit == "FLOP" else peaks.bandwidth
    return Rate(
        operator=name,
        unit=load.unit,
        shape=load.shape,
        dtype=load.dtype,
        count=len(times),
        us=us,
        work=load.work,
        per_second=per_second,
        peak_share=per_second / peak if peak else None,
        above_peak=peak is not None and per_second > peak,
    )
