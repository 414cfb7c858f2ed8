"""Reads the shape of a matrix product from the dimensions of its operator's inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.trace.names import ops

if TYPE_CHECKING:
    from mlpfusion.trace.read.kineto import Event

_MATRIX: Final = 2  # dimensions


class Shape(NamedTuple):
    """A product [m, k] x [k, n]."""

    m: int
    k: int
    n: int


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
