"""Checks of what a target leaves behind in the program that uses it: settings, functions and memory."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mlpfusion.stages.validate.judge.checks.check import BOTH, Check
from mlpfusion.stages.validate.judge.exam import (
    DetachedError,
    FaultError,
    Found,
    failed,
    hazard,
    is_refusal,
    passed,
    undecided,
)
from mlpfusion.stages.validate.judge.worker_handle import RaisedError

if TYPE_CHECKING:
    from mlpfusion.records.validation import Kind
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.judge.exam import Exam

# Large enough that keeping a result, or a sum of its rows, stands out from what Python itself keeps.
GROWN: Final[dict[Kind, tuple[int, ...]]] = {"act_mul": (16, 1024), "mlp": (64,)}
# More than 2^18 elements, so that a path for large operands is taken.
MOST: Final[dict[Kind, tuple[int, ...]]] = {"act_mul": (257, 1031), "mlp": (4113,)}
# An operand that is given with a row less than fits the others.
OTHER: Final[dict[Kind, str]] = {"act_mul": "up", "mlp": "wu"}
LEAST_BYTES: Final = 4096  # a call; less is counters and names
# Small objects that stay are counted over more calls: what Python and an interpreter hold of them changes by a hundred,
# to and fro, whatever the number of calls. Where they seem to grow, over many more, once a bounded cache is full.
SMALL: Final = (32, 128)
LEAST_OBJECTS: Final = 2.0  # a call
# Calls after which functions are looked at, whichever checks came before: a target may replace one in any of them. The
# first and the last are those that no target refuses.
CALLS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("forward", {}),
    ("forward", {"times": 16}),
    *(("forward", {"mode": mode}) for mode in ("inference", "eval", "gradients on")),
    *(("backward", {"pattern": pattern}) for pattern in ("nan", "odd")),
    ("forward", {}),
)
MOST_NAMES: Final = 3  # that a sentence lists
# Calls of as many other shapes fill a cache that is bounded: PyTorch compiles for 8, `fused-graph` keeps 16 graphs, and
# functools.lru_cache 128 results, of which those of other sizes must be gone as well.
FILLED: Final = 160
BUILT: Final = 3  # modules, of which what keeps the last one has two


def replaced(exam: Exam, dtype: Dtype) -> Found:
    """It leaves the functions of PyTorch, Python, Triton and the judge in their places, whichever call is the last."""
    given = exam.operands(dtype, exam.plain, "functions")
    for probe, options in CALLS:
        try:
            _, facts = exam.ask(probe, given, functions=True, **options)
        except RaisedError as error:
            if not is_refusal(error) or not options:
                raise
            continue  # what it has replaced before, the last call shows
        names, judging = facts["replaced"], facts["judging"]
        if judging:
            return failed(f"replaces {_listed(judging)}, by which it is timed or judged")
        if names:
            return hazard(f"replaces {_listed(names)} for the whole program")
    return passed("the functions of PyTorch, Python and Triton are those that they were")


def state(exam: Exam, dtype: Dtype) -> Found:
    """It leaves the settings and the generators of its process as they were: by its import, and by every call."""
    given = exam.operands(dtype, exam.plain, "state")
    _, facts = exam.ask("state", given, grad=exam.lack(dtype) is None)
    name = OTHER[exam.kind]
    with contextlib.suppress(RaisedError, DetachedError, FaultError):  # what a refusal leaves is noted too
        exam.backward(given | {name: given[name][:-1]})
    exam.refused.clear()  # nobody makes that call
    exam.gradients(exam.operands(dtype, MOST[exam.kind], "state"))  # what that changes is noted with every call
    seeded = dict.fromkeys(facts["seeded"], "is seeded by each call: whoever draws after it gets one sequence")
    drawn = dict.fromkeys(facts["drawn"], "is drawn from by each call")
    imported = {name: f"by its import, {how}" for name, how in exam.loaded.left.items()}
    left = {**exam.left, **imported, **drawn, **seeded}
    if left:
        return hazard("leaves the program changed: " + "; ".join(f"{name} {how}" for name, how in left.items()))
    return passed("settings, modes and generators are as they were")


class Way(NamedTuple):
    """A kind of call: with its backward, whose graph may be dropped, each of another shape, in a mode of PyTorch."""

    grad: bool = False
    varied: bool = False
    dropped: bool = False
    autocast: bool = False
    in_eval: bool = False

    @property
    def said(self) -> str:
        """The same in words."""
        after = " whose graph is dropped without a backward" if self.dropped else " with its backward" * self.grad
        where = " under autocast" * self.autocast + " in eval mode" * self.in_eval
        return f"a call{' of another shape' * self.varied}{where}{after}"


def growth(exam: Exam, dtype: Dtype) -> Found:
    """Memory does not grow with the number of calls or of modules, and needs no collector to be freed."""
    ways = _ways(exam, dtype)
    for way in ways:
        try:
            kept, freed = _grown(exam, dtype, way)
            if way.varied and (kept or freed):
                kept, freed = _grown(exam, dtype, way, before=FILLED)
        except RaisedError as error:
            if not is_refusal(error):
                raise
            if way.varied or way.autocast:
                continue
            return undecided(f"it refuses the shape tried: {error}")
        if kept:
            return hazard(f"memory grows with every call: {_amounts(kept)} by {way.said}", GROWN[exam.kind])
        if freed:
            return hazard(
                f"a cycle of references holds {_amounts(freed)} of {way.said} until Python's collector runs",
                GROWN[exam.kind],
            )
    for way in ways:
        objects = None if any(way[1:]) else _objects_kept(exam, dtype, way)
        if objects is not None:
            return hazard(f"memory grows with every call: {objects:,.0f} small objects by {way.said}", exam.plain)
    if exam.kind == "act_mul":
        return passed("memory does not grow with the number of calls")
    _, facts = exam.ask(
        "deleted", exam.operands(dtype, exam.plain, "deleted"), grad=any(way.grad for way in ways), built=BUILT
    )
    if facts.get("kept", 0) > 1:  # the last one may be kept until the next
        sentence = f"of {BUILT} modules that were built, called and deleted {facts['kept']} stay in memory"
        return hazard(f"{sentence}, with their weights", exam.plain)
    return passed("memory does not grow with the number of calls, or of modules")


def _ways(exam: Exam, dtype: Dtype) -> list[Way]:
    """The kinds of call in which growth is looked for: of a quick exam those that train, if it can be trained."""
    trains = exam.lack(dtype) is None
    if exam.asked.quick:
        exam.left_out["memory in most kinds of calls"] = None
        return [Way(grad=trains), Way(grad=trains, varied=True)]
    ways = [Way(), Way(varied=True)]
    if trains:
        ways += [Way(grad=True), Way(grad=True, varied=True), Way(grad=True, dropped=True)]
    return [*ways, Way(autocast=True), *([Way(in_eval=True)] if exam.kind == "mlp" else [])]


def _objects_kept(exam: Exam, dtype: Dtype, way: Way) -> float | None:
    """How many small objects a call keeps for good, or None."""
    found = 0.0
    for half in SMALL:
        given = exam.operands(dtype, exam.plain, "growth")
        before = 0 if half == SMALL[0] else FILLED
        _, facts = exam.ask("growth", given, half=half, before=before, **way._asdict())
        first, second, third = (collected[-1] for _, collected in facts["held"])
        found = min(second - first, third - second) / half
        if found < LEAST_OBJECTS:
            return None
    return found


def _grown(exam: Exam, dtype: Dtype, way: Way, *, before: int = 0) -> tuple[dict[str, float], dict[str, float]]:
    """What a call adds for good, and what only the collector frees, by what is counted; `before` calls are not."""
    rows, *rest = GROWN[exam.kind]
    if before:  # so many calls are of narrower rows, and then of shapes that an earlier probe did not have
        rows, rest = 2 * rows + before, [size // 4 for size in rest]
    given = exam.operands(dtype, (rows, *rest), "growth")
    _, facts = exam.ask("growth", given, before=before, **way._asdict())
    calls, held = facts["calls"], facts["held"]
    least = {"tensors": calls, "bytes of tensors": calls * LEAST_BYTES, "bytes of memory": calls * LEAST_BYTES}
    kept, freed = {}, {}
    for index, (name, limit) in enumerate(least.items()):
        if way.varied and name == "bytes of memory":  # a compiler keeps code for each shape
            continue
        (_, a), (b, second), (c, third) = ((one[index], other[index]) for one, other in held)
        if min(second - a, third - second) >= limit:  # what is made once grows in one half
            kept[name] = (third - second) / calls
        # An exception that is caught, or an interpreter, has cycles of its own.
        elif name != "bytes of memory" and min(b - second, c - third) >= limit:
            freed[name] = (c - third) / calls
    return kept, freed


def _amounts(grown: dict[str, float]) -> str:
    return " and ".join(f"{amount:,.0f} {name}" for name, amount in grown.items())


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


CHECKS: Final = (
    Check(
        "replaced",
        "functions of PyTorch, Python, Triton and the judge, after its import, calls and backwards",
        BOTH,
        replaced,
        dtypes="each",
        judges_values=False,
    ),
    Check(
        "state",
        "settings, modes and generators of the process, after its import and every call",
        BOTH,
        state,
        judges_values=False,
    ),
    Check(
        "growth",
        "live tensors, memory and small objects over calls on new operands, and their backwards",
        BOTH,
        growth,
        judges_values=False,
    ),
)
