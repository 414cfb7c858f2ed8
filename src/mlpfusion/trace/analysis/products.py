"""Finds the matrix products of a call, each with its kernels and, from its operator's inputs, its shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.trace.names import ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.profile import Decoded
    from mlpfusion.trace.calls.call import Work
    from mlpfusion.trace.read.kineto import Event

_MATRIX: Final = 2  # dimensions


class Shape(NamedTuple):
    """A product [m, k] x [k, n]."""

    m: int
    k: int
    n: int


class Product(NamedTuple):
    """A matrix product: its kernels' places, helpers included, and its shape if the trace has it."""

    places: list[int]
    owner: object
    shape: Shape | None
    gated: bool
    batched: bool  # of attention's scores and values, which are no layers


def shape_of(operator: Event) -> Shape | None:
    """The shape of the product that an operator makes; None if the trace does not have it."""
    factors = ops.FACTORS.get(operator.name.rpartition("::")[2])
    dims = operator.dims
    if factors is None or dims is None or len(dims) <= max(factors[:2]):
        return None
    first, second = dims[factors[0]], dims[factors[1]]
    if len(first) < _MATRIX or len(second) != _MATRIX:
        return None
    rows = 1
    for length in first[:-1]:
        rows *= length
    k, n = reversed(second) if factors[2] else second
    return Shape(rows, first[-1], n) if first[-1] == k else None


def _holds_gate(name: Decoded) -> bool:
    """Whether a matrix product has the activation and its multiplication in its epilogue."""
    fused = set(name.fused_ops) | set(name.epilogue)
    activates = bool(fused & ops.ACTIVATIONS) and "mul" in fused
    return name.kind == "gemm" and (activates or bool(fused & {"act_mul", "gated_activation"}))


def products_of(work: Sequence[Work], decoded: Sequence[Decoded], places: Sequence[int]) -> list[Product]:
    """The matrix products of one stream, each with its helper kernels.

    Those are the kernels of the same `aten::mm`, and a split-K reduction, which follows its product also where no
    operator is seen, as in a graph replay.
    """
    found: list[Product] = []
    for index in places:
        item, name = work[index], decoded[index]
        if name.kind in ("memset", "memcpy"):
            continue
        operator = matrix_operator(item)
        owner = (operator.tid, operator.start_ns) if operator else None
        if owner is not None and found and owner == found[-1].owner:
            found[-1].places.append(index)
        elif name.kind == "gemm" or owner is not None:
            op = (operator or item.event).name.rpartition("::")[2]
            shape = shape_of(operator or item.event)
            found.append(Product([index], owner, shape, gated=_holds_gate(name), batched=op in ops.BATCHED))
        elif "splitk_reduce" in name.fused_ops and found:
            found[-1].places.append(index)
    return found


def matrix_operator(item: Work) -> Event | None:
    """The matrix operator that launched the work, if its innermost operator is one."""
    if item.event is item.launch or not item.owners:
        return None  # a leaf operator of a CPU run is a product by its own name
    owner = item.owners[0]
    return owner if owner.name.rpartition("::")[2] in ops.GEMMS else None
