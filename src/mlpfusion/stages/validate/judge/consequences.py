"""Which failures follow from an earlier one: what a check takes for granted, and another has found to be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlpfusion.records.validation import Checked

# Those that compare a gradient with fp64, and those that compare y with it (or both).
_GRADIENTS: Final = frozenset(("backward", "backward-store", "backward-configurations", "mlp-gradients"))
_VALUES: Final = _GRADIENTS | {
    *("function", "constants", "precision", "store", "specials", "elementwise", "mlp-values"),
    *("configurations", "mismatched", "autocast", "double", "double-backward", "vmap", "offsets"),
}
# Those that compare calls of the target with each other: one of them has to be as it should.
_CALLS: Final = frozenset(
    (
        *("results-kept", "deterministic", "positions", "rows-alone", "layouts", "inference", "checkpoint"),
        *("compile", "partial", "apart", "saved-kept", "second-backward", "aliased"),
    )
)
# What fails wherever the check of that name fails.
FOLLOWING: Final[dict[str, frozenset[str]]] = {
    **dict.fromkeys(("written", "guards"), _VALUES | _CALLS),
    "inputs-kept": _GRADIENTS | _CALLS | {"autocast", "double-backward"},
    "results-kept": _CALLS,
    "deterministic": _VALUES | _CALLS,
    "positions": _VALUES | {"rows-alone", "layouts"},
    **dict.fromkeys(("function", "constants", "precision", "store", "specials", "elementwise", "mlp-values"), _VALUES),
    **dict.fromkeys(("backward", "mlp-gradients"), _GRADIENTS | {"autocast", "double-backward"}),
}


def told(checks: Sequence[Checked]) -> tuple[Checked, ...]:
    """The checks with the cause of each failure and hazard that follows from an earlier failure."""
    return tuple(_told(check, index, checks) for index, check in enumerate(checks))


def _told(check: Checked, index: int, checks: Sequence[Checked]) -> Checked:
    if check.status != "fail" and not check.hazard:
        return check
    cause = next((each.name for each in _causes(check, index, checks)), None)
    return check if cause is None else replace(check, follows=cause)


def _causes(check: Checked, index: int, checks: Sequence[Checked]) -> Iterator[Checked]:
    """Earlier failures that explain this one, the first of which is told, in this dtype or where it was not asked."""
    for each in checks[:index]:
        asked = {other.dtype for other in checks if other.name == each.name}
        explains = each.status == "fail" and check.name in FOLLOWING.get(each.name, ()) and each.name != check.name
        if explains and (each.dtype == check.dtype or check.dtype not in asked):
            yield each
