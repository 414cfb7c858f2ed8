"""Sorts device work into eight categories by what its name says that it computes, and sums its time by them."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from mlpfusion.records.breakdown import CATEGORIES, CategoryTime
from mlpfusion.trace.names import ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.breakdown import Category
    from mlpfusion.records.profile import Analysis, Decoded, Kernel
    from mlpfusion.records.traffic import WorkKind

_BY_KIND: Final[dict[WorkKind, Category]] = {
    "gemm": "gemm",
    "attention": "attention",
    "communication": "communication",
    "memcpy": "copies",
    "memset": "copies",
    "elementwise": "elementwise",
    "reduction": "reduction",
    "other": "other",
}
# Kinds whose operators say more: the others are what they are, whatever is fused into them.
_LOOSE: Final = frozenset({"elementwise", "reduction", "other"})
_NORMS: Final = frozenset(
    {"layer_norm", "native_layer_norm", "rms_norm", "_fused_rms_norm", "group_norm", "native_group_norm", "batch_norm",
     "batch_norm_update_stats", "native_batch_norm", "_native_batch_norm_legit",
     "_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training"}
)  # fmt: skip
# A norm written out in operators, as Inductor fuses it.
_MOMENTS: Final = frozenset({"mean", "var", "var_mean"})
_MOVES: Final = frozenset(
    {"copy", "copy_", "_to_copy", "clone", "convert_element_type", "cat", "fill", "fill_", "zero_", "zeros", "ones",
     "full", "zeros_like", "ones_like", "full_like", "transpose", "stack", "flip", "repeat"}
)  # fmt: skip
# Streams whose kernels overlap by less than this part of their time are one after the other.
_OVERLAPS: Final = 0.01


def category_of(decoded: Decoded) -> Category:
    """The one category of a piece of work.

    A split-K reduction is part of its matrix product; what prepares or ends an attention kernel is attention; kernels
    that only copy, cast, join or fill are copies, as those of the driver are.
    """
    if decoded.kind not in _LOOSE:
        return _BY_KIND[decoded.kind]
    operators = {op.removesuffix("_backward") for op in decoded.fused_ops if op not in ops.VIEWS}
    if "splitk_reduce" in operators:
        return "gemm"
    if any(op.startswith("attention") for op in operators):
        return "attention"
    if operators & _NORMS or ("rsqrt" in operators and operators & _MOMENTS):
        return "normalisation"
    if operators and operators <= _MOVES:
        return "copies"
    return _BY_KIND[decoded.kind]


def by_category(kernels: Sequence[Kernel]) -> tuple[CategoryTime, ...]:
    """The categories that occur among the kernels of a call, the longest first, with shares of the time of all."""
    groups: dict[Category, list[float | None]] = {}
    for kernel in kernels:
        groups.setdefault(category_of(kernel.decoded), []).append(kernel.time_us)
    times = {name: sum(us for us in group if us is not None) for name, group in groups.items()}
    total = sum(times.values())
    found = [
        CategoryTime(
            category=name,
            count=len(groups[name]),
            us=times[name],
            share=times[name] / total if total else 0.0,
            unknown=groups[name].count(None),
        )
        for name in CATEGORIES
        if name in groups
    ]
    return tuple(sorted(found, key=lambda one: -one.us))


def overlaps(analysis: Analysis, kernel_us: float) -> bool:
    """Whether kernels of a call ran at the same time, so that their sum is more than the time of the device."""
    return bool(analysis.kernel_us) and kernel_us > (1 + _OVERLAPS) * median(analysis.kernel_us)
