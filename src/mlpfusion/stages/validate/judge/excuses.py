"""Excuses elements that are wrong exactly as eager's own are, and counts them.

A library may overflow inside: oneDNN's exact GELU is inf for gates above FLT_MAX/2 on CPUs with AVX-512. Whoever calls
it is no more wrong than eager is. An element is excused only if eager's is beyond the bound too and the very same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from mlpfusion.backends.eager import activation_function
from mlpfusion.stages.validate.judge import bounds
from mlpfusion.stages.validate.judge.worker_handle import DiedError, RaisedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

    from mlpfusion.spec import Activation, Dtype
    from mlpfusion.stages.validate.channel import Tensors
    from mlpfusion.stages.validate.judge.exam import Exam, Found

    Mask = Callable[[Tensor], Tensor]
    Score = Callable[[Tensor], Tensor]

# Eager is off by a few eps of max(rms, |r|) in a whole MLP; by this much it is wrong, and no measure for others.
BROKEN: Final = 64
PLACES: Final = 2  # that are named of a check


class Parted(NamedTuple):
    """Masks of the elements that are beyond a bound: the target's own faults, and those that eager makes as well."""

    wrong: Tensor
    excused: Tensor


class Excuse(NamedTuple):
    """`excused` of `judged` elements are wrong as eager's are: of which kinds ("inf", …), and where in words."""

    excused: int
    judged: int
    kinds: tuple[str, ...]
    where: str


def part(is_beyond: Mask, value: Tensor, eager: Callable[[], Tensor | None]) -> Parted:
    """The elements of `value` that are beyond a bound. `eager` gives PyTorch's result, or None where there is none.

    It is called only if an element is beyond.
    """
    beyond = is_beyond(value)
    theirs = eager() if bool(beyond.any()) else None
    if theirs is None or theirs.shape != value.shape:
        return Parted(beyond, torch.zeros_like(beyond))
    excused = beyond & is_beyond(theirs) & bounds.is_same(value, theirs)
    return Parted(beyond & ~excused, excused)


def pytorch(gate: Tensor, up: Tensor, activation: Activation) -> Tensor:
    """act(gate)·up by PyTorch's operators, in this process and where the operands are."""
    return activation_function(activation)(gate) * up


def scores(
    exam: Exam,
    score: Score,
    value: Tensor,
    given: Tensors,
    *,
    limit: float = bounds.LIMIT,
    of: str = "y",
    probe: str = "forward",
    **options: Any,
) -> Tensor:
    """The score of every element of a result `of` a probe; 0 where it is excused, which is recorded in the exam.

    `score` gives those of any tensor like `value`; above `limit` an element is wrong.
    """
    own = score(value)
    parted = part(
        lambda tensor: (own if tensor is value else score(tensor)) > limit,
        value,
        lambda: of_eager(exam, probe, given, of, **options),
    )
    note(exam, parted.excused, value, given, of)
    return own.masked_fill(parted.excused, 0.0)


def is_close(exam: Exam, found: Tensor, exact: Tensor, given: Tensors, *, of: str, probe: str, dtype: Dtype) -> bool:
    """Whether a result has the shape of an fp64 reference and is close to it, but for what is excused."""
    if found.shape != exact.shape:
        return False

    def off(tensor: Tensor) -> Tensor:
        return (~bounds.close(tensor.double(), exact, dtype)).double()

    return not bool(scores(exam, off, found, given, limit=0.5, of=of, probe=probe).any())


def of_eager(exam: Exam, probe: str, given: Tensors, of: str, **options: Any) -> Tensor | None:
    """What eager gives; None where it raises or dies, which excuses nothing."""
    try:
        return exam.ask_peer("eager", probe, given, **options)[0].get(of)
    except (RaisedError, DiedError):
        return None


def beside_eager(
    exam: Exam, mine: Tensor, theirs: Tensor, right: Tensor, given: Tensors, *, of: str, dtype: Dtype
) -> tuple[Tensor, Tensor]:
    """The relative errors [N] of a result and of eager's, both against fp64, without those that say nothing.

    Where eager is wrong itself its error is no measure for others: those are left out of the second, and of the first
    if the result is identical, which is recorded in the exam.
    """
    ours, eager = bounds.relative(mine, right), bounds.relative(theirs, right)
    broken = ~(eager <= BROKEN * bounds.EPS[dtype])
    excused = broken & bounds.is_same(mine, theirs)
    note(exam, excused, mine, given, of)
    return ours[~excused], eager[~broken]


def note(exam: Exam, excused: Tensor, value: Tensor, given: Tensors, of: str) -> None:
    """Tell the exam what is excused of a result, and how much was judged."""
    gate, name = given.get("gate"), of.replace(":", "_")
    where = ""
    if bool(excused.any()):
        if gate is not None and gate.shape == excused.shape:
            where = f"{name} at {_gates(gate[excused])}"
        else:
            where = f"{name} at index {tuple(excused.nonzero()[0].tolist())}" + " and more" * (int(excused.sum()) > 1)
    exam.note(Excuse(int(excused.sum()), excused.numel(), _kinds(value[excused]), where))


def of_gates(values: Tensor, gates: Tensor, judged: int) -> Excuse:
    """What is excused of a sweep over so many gate values: `values` at `gates`, each [N]."""
    where = f"y at {_gates(gates)}" if gates.numel() else ""
    return Excuse(len(set(gates.tolist())), judged, _kinds(values), where)


def _gates(gate: Tensor) -> str:
    ordered = gate[~gate.isnan()]
    if not ordered.numel():
        return "gate nan"
    low, high = float(ordered.min()), float(ordered.max())
    return f"gate {low:.4g}" if low == high else f"gates from {low:.4g} to {high:.4g}"


def _kinds(values: Tensor) -> tuple[str, ...]:
    kinds = {
        "inf": (values == torch.inf).any(),
        "-inf": (values == -torch.inf).any(),
        "nan": values.isnan().any(),
        "finite and wrong": values.isfinite().any(),
    }
    return tuple(name for name, found in kinds.items() if bool(found))


def said(found: Found, excuses: Iterable[Excuse]) -> Found:
    """A finding with what is excused in its sentence; without a verdict where nothing else is left."""
    judged = list(excuses)
    taken = [each for each in judged if each.excused]
    if not taken:
        return found
    count, total = sum(each.excused for each in taken), sum(each.judged for each in judged)
    kinds = " or ".join(dict.fromkeys(kind for each in taken for kind in each.kinds))
    places = list(dict.fromkeys(each.where for each in taken))
    more = f"; and {len(places) - PLACES} more" if len(places) > PLACES else ""
    sentence = (
        f"excused: {count} of {total} values are {kinds} as eager's own are here ({'; '.join(places[:PLACES])}{more})"
    )
    figures = (found.figures or {}) | {"excused": float(count)}
    if count == total and found.status == "pass":
        sentence = f"nothing is left to judge; {sentence}"
        return found._replace(status="not decidable here", sentence=sentence, figures=figures)
    return found._replace(sentence=f"{found.sentence}; {sentence}", figures=figures)
