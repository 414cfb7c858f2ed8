"""All checks in their order: the first that fails names the fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.errors import UsageError
from mlpfusion.stages.validate.judge.checks import (
    authorship,
    basic,
    gradients,
    layouts,
    mlp,
    mlp_specials,
    modes,
    state,
    timing,
    updates,
    values,
)
from mlpfusion.stages.validate.judge.checks.memory import guards, offsets
from mlpfusion.stages.validate.judge.checks.transforms import crossed

if TYPE_CHECKING:
    from mlpfusion.records.validation import Kind
    from mlpfusion.stages.validate.judge.checks.check import Check

_VALUES: Final = {check.name: check for check in values.CHECKS}
_WHICH: Final = ("function", "constants", "precision")

# A wrong function makes every later check fail; what a check before it looks at does not depend on the function.
ALL: Final[tuple[Check, ...]] = (
    *basic.CHECKS[:2],
    *guards.CHECKS,  # before all that would see what was read outside as a wrong value
    *basic.CHECKS[2:],
    *layouts.CHECKS,
    _VALUES["function"],
    _VALUES["constants"],
    *mlp.CHECKS[:1],  # before `precision`, which sees the products of TF32 as well but cannot name them
    _VALUES["precision"],
    *mlp_specials.CHECKS,
    *(check for check in values.CHECKS if check.name not in _WHICH),
    *basic.LATER,
    *gradients.CHECKS,
    *updates.CHECKS,
    *basic.AFTER_GRADIENTS,
    *mlp.CHECKS[1:],
    *modes.CHECKS,
    *crossed.CHECKS,  # after those that look at one side alone, and name it
    *authorship.CHECKS,
    *timing.CHECKS,
    *offsets.CHECKS,
    *state.CHECKS,  # last, since they see what all checks before them left
)
# The checks without which nothing is called valid: of values, and of gradients unless there are none.
DECISIVE: Final[dict[Kind, str]] = {"act_mul": "elementwise", "mlp": "mlp-values"}
TRAINING: Final[dict[Kind, str]] = {"act_mul": "backward", "mlp": "mlp-gradients"}
# A quick exam is without these: each needs eager in a process of its own or a compiler, which take seconds to start,
# most memory of a GPU, or a hundred calls.
SLOW: Final = frozenset(("autocast", "checkpoint", "compile", "crossed", "exactness", "offsets"))
_KINDS: Final[dict[Kind, str]] = {"act_mul": "act·mul", "mlp": "MLP"}


def selected(kind: Kind, only: tuple[str, ...] | None, *, quick: bool = False) -> tuple[Check, ...]:
    """The checks of one kind of target; with `only`, those of that name, and the one that says whether it runs.

    Without `only`, `quick` leaves out the slow ones.
    """
    return tuple(
        check
        for check in ALL
        if kind in check.kinds
        and ((only is None and not (quick and check.name in SLOW)) or check.name in (*(only or ()), "runs"))
    )


def check_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """`names` if all are checks, else a `UsageError` that lists the valid ones."""
    known = [check.name for check in ALL]
    for name in names:
        if name not in known:
            raise UsageError(f"unknown check {name!r}; valid: {', '.join(known)}")
    return names


def check_kinds(kinds: dict[str, Kind | None], only: tuple[str, ...]) -> None:
    """Refuse a check that is for the kind of no target, and a target of whose kind no check is.

    Args:
        kinds: the kind of each target; None is one that is not known yet.
        only: names of checks.

    Raises:
        UsageError: a check and a target that it is not for.
    """
    known = {target: kind for target, kind in kinds.items() if kind is not None}
    fits = {name: next(check.kinds for check in ALL if check.name == name) for name in only}
    for name, own in fits.items():
        for target, kind in known.items():
            is_idle = len(known) == len(kinds) and not own.intersection(known.values())
            if kind not in own and (is_idle or not any(kind in each for each in fits.values())):
                meant = " and ".join(_KINDS[each] + "s" for each in own)
                raise UsageError(f"check {name!r} is for {meant}; {target} is an {_KINDS[kind]}")
