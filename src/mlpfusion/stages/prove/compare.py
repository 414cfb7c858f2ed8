"""Compares tensors of two models slice by slice: relative errors, divergence of logits, most likely tokens."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from mlpfusion.errors import MeasurementError
from mlpfusion.records.profile import Accuracy
from mlpfusion.records.proof import Deviation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_SLICE: Final = 2**22  # elements in fp64 at a time: 32 MiB


class Sum(NamedTuple):
    """Errors of some elements, to be added up over tensors: the largest, the sum of squares, and how many."""

    largest: float = 0.0
    squares: float = 0.0
    elements: int = 0
    finite: bool = True

    def plus(self, other: Sum) -> Sum:
        """Both together."""
        return Sum(
            max(self.largest, other.largest),
            self.squares + other.squares,
            self.elements + other.elements,
            self.finite and other.finite,
        )

    @property
    def deviation(self) -> Deviation:
        """The largest and the rms, or Nones where an element is nan or inf."""
        if not self.finite:
            return Deviation(max_error=None, rms_error=None)
        return Deviation(max_error=self.largest, rms_error=math.sqrt(self.squares / max(self.elements, 1)))


def errors(value: Tensor, reference: Tensor) -> Sum:
    """|value - reference| / max(rms(reference), |reference|) of two tensors of one shape."""
    if value.shape != reference.shape:
        raise ValueError(f"shape {tuple(value.shape)} where the reference has {tuple(reference.shape)}")
    if not reference.numel():
        return Sum()
    squares = sum(each.double().square().sum().item() for each in _slices(reference))
    rms = math.sqrt(squares / reference.numel())
    total = Sum()
    for mine, theirs in zip(_slices(value), _slices(reference), strict=True):
        wide = theirs.double()
        scale = wide.abs().clamp_min(rms)
        relative = (mine.double() - wide).abs() / scale
        if rms == 0:  # any difference from a tensor of zeros is infinite, and none is 0
            relative = torch.where(mine == 0, 0.0, math.inf).double()
        finite = bool(torch.isfinite(relative).all())
        total = total.plus(
            Sum(relative.max().item(), relative.square().sum().item(), mine.numel(), finite)
            if finite
            else Sum(0.0, 0.0, mine.numel(), False)
        )
    return total


def judged(swapped: Sum, original: Sum, *, width: int) -> Accuracy:
    """Both errors against fp64 as one record, in which "eager" is the unswapped model; `width` is a row's length.

    Raises:
        MeasurementError: the unswapped model gives nan or inf.
    """
    mine, theirs = swapped.deviation, original.deviation
    if theirs.max_error is None or theirs.rms_error is None:
        raise MeasurementError("the unswapped model itself gives nan or inf, so it is no reference")
    return Accuracy(
        max_error=mine.max_error,
        rms_error=mine.rms_error,
        eager_max_error=theirs.max_error,
        eager_rms_error=theirs.rms_error,
        rows=swapped.elements // max(width, 1),
        elements=swapped.elements,
    )


def total(parts: Iterable[Sum]) -> Sum:
    """All of them together."""
    result = Sum()
    for part in parts:
        result = result.plus(part)
    return result


class Divergence(NamedTuple):
    """KL divergence in nats, mean and largest over positions, and the share of positions with the same top token."""

    mean: float
    largest: float
    top1: float


def divergence(original: Tensor, swapped: Tensor) -> Divergence:
    """KL(original ‖ swapped) of logits [..., V], in fp64."""
    p_rows, q_rows = original.flatten(0, -2), swapped.flatten(0, -2)
    rows = max(1, _SLICE // p_rows.shape[-1])
    each, same = [], 0
    for p, q in zip(torch.split(p_rows, rows), torch.split(q_rows, rows), strict=True):
        log_p, log_q = functional.log_softmax(p.double(), -1), functional.log_softmax(q.double(), -1)
        each.append(functional.kl_div(log_q, log_p, log_target=True, reduction="none").sum(-1))
        same += int((p.argmax(-1) == q.argmax(-1)).sum())
    kl = torch.cat(each).clamp_min(0.0)  # rounding may leave -1e-17
    return Divergence(kl.mean().item(), kl.max().item(), same / p_rows.shape[0])


def _slices(tensor: Tensor) -> Iterator[Tensor]:
    return iter(torch.split(tensor.detach().reshape(-1), _SLICE))
