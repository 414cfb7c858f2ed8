"""The check of calls in situations of many sides: every two of shape, layout, gradients, mode and other calls."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mlpfusion.stages.validate.judge.checks.check import BOTH, Check
from mlpfusion.stages.validate.judge.checks.transforms import covering
from mlpfusion.stages.validate.judge.checks.transforms.differences import worse_than_plain
from mlpfusion.stages.validate.judge.exam import Found, failed, is_refusal, passed
from mlpfusion.stages.validate.judge.worker_handle import RaisedError
from mlpfusion.stages.validate.layouts import BUFFERS, PACKINGS

if TYPE_CHECKING:
    from mlpfusion.records.validation import Kind
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Tensors
    from mlpfusion.stages.validate.judge.exam import Exam

Shape = tuple[int, ...]

DENSE: Final = "dense"
# Layouts of the values as they are, and their names in two dimensions and in three.
LAYOUTS: Final[dict[str, tuple[str, str]]] = {
    DENSE: (DENSE, DENSE),
    "half of a packed tensor": ("half of a packed tensor",) * 2,
    "offset": ("offset",) * 2,
    "transposed": ("transposed", "permuted"),
    "sliced": ("sliced", "cut along its second dimension"),
}
TOGETHER: Final[dict[Kind, tuple[str, ...]]] = {
    "act_mul": ("halves of one tensor", "columns of one tensor in turns", "in one buffer without gaps"),
    "mlp": ("in one buffer without gaps",),
}
UNTRAINED: Final = ("in inference mode", "with gradients on")  # on for nobody
TRAINED: Final = ("with saved tensors elsewhere", "with checkpointing")
MODES: Final = ("a plain call", "in eval mode", "default dtype bfloat16", "in another thread", *UNTRAINED, *TRAINED)
BEFORE: Final = (
    "nothing",
    "a call on other values",
    "a call of another shape",
    "a call that trains",
    "a call that is not trained",
    "a call in inference mode",
    "three calls",
)
BETWEEN: Final = ("nothing", "a call on other values", "a call of another shape", "a call that trains", "the same call")
# Kinds of shapes: of gate, or of the rows of x. The sizes are drawn anew in each run, between these and one less each.
ROWS: Final[dict[str, tuple[int, ...]]] = {
    "several rows": (2, 17),
    "one row": (1, 2),
    "many rows": (65, 98),
    "an odd number of rows": (1, 8),  # twice that and one more
    "three dimensions": (2, 5),
}
COLUMNS: Final = {"whole vectors": (1, 17, 8), "an odd number of columns": (33, 98, 2), "a power of two": (5, 8, 0)}


class Situation(NamedTuple):
    """One call: its shape, how operands and dy are laid out, who needs gradients, its mode, and the other calls."""

    shape: Shape
    options: dict[str, Any]
    said: str


def situations(exam: Exam, dtype: Dtype) -> list[Situation]:
    """Situations in which each level of a side meets each level of every other."""
    trains = exam.lack(dtype) is None
    sides: dict[str, tuple[Any, ...]] = {
        "rows": tuple(ROWS),
        "columns": tuple(COLUMNS) if exam.kind == "act_mul" else (None,),
        "layout": (*LAYOUTS, *TOGETHER[exam.kind]),
        "needs": ((), exam.names, *((name,) for name in exam.names)) if trains else ((),),
        "mode": MODES if trains else tuple(each for each in MODES if each not in TRAINED),
        "before": BEFORE,
        "between": BETWEEN if trains else BETWEEN[:1],
        "dy": tuple(LAYOUTS) if trains else (DENSE,),
    }
    names, levels = tuple(sides), tuple(sides.values())

    def may_meet(first: covering.Level, second: covering.Level) -> bool:
        return _may_meet({names[side]: levels[side][level] for side, level in (first, second)})

    chance = Random(f"{exam.seed} crossed {dtype}")
    rows = covering.rows([len(side) for side in levels], chance, may_meet)
    return [
        _situation(exam, {name: side[level] for (name, side), level in zip(sides.items(), row, strict=True)}, chance)
        for row in rows
    ]


def _may_meet(two: dict[str, Any]) -> bool:
    """Whether a call can have two levels, by the names of their sides: what is not trained has no backward."""
    untrained = two.get("needs") == () or two.get("mode") in UNTRAINED
    trained = bool(two.get("needs")) or two.get("mode") in TRAINED
    has_backward = two.get("between", BETWEEN[0]) != BETWEEN[0] or two.get("dy", DENSE) != DENSE
    return not (untrained and (trained or has_backward))


def _situation(exam: Exam, of: dict[str, Any], chance: Random) -> Situation:
    shape = _shape(chance, of["rows"], of["columns"])
    needs, layout = of["needs"], of["layout"]
    of_x = len(shape) + (exam.kind == "mlp")  # dimensions of what has rows
    options = {name: of[name] for name in ("needs", "mode", "before", "between")}
    laid: dict[str, str] = {}
    if layout in PACKINGS:
        options["packed"] = layout
    elif layout in BUFFERS:
        options["buffer"] = layout
    else:
        laid = {name: LAYOUTS[layout][(2 if name.startswith("w") else of_x) > 2] for name in exam.names}
    laid["dy"] = LAYOUTS[of["dy"]][of_x > 2]
    laid = {name: each for name, each in laid.items() if each != DENSE}
    said = [f"{of['rows']} and {of['columns']}" if of["columns"] else of["rows"]]
    said += [f"operands {layout}"] * (layout != DENSE) + [f"dy {of['dy']}"] * ("dy" in laid)
    said += [f"gradients of {' and '.join(needs)}" if needs else "no gradients"]
    said += [of["mode"]] * (of["mode"] != MODES[0]) + [f"after {of['before']}"] * (of["before"] != BEFORE[0])
    said += [f"{options['between']} before its backward"] * (options["between"] != BETWEEN[0])
    return Situation(shape, options | ({"layouts": laid} if laid else {}), ", ".join(said))


def _shape(chance: Random, rows: str, columns: str | None) -> Shape:
    first, last = ROWS[rows]
    count = chance.randrange(first, last)
    shape: Shape = (2 * count + 1,) if rows == "an odd number of rows" else (count,)
    if rows == "three dimensions":
        shape = (count, chance.randrange(first, last))
    if columns is None:
        return shape
    low, high, step = COLUMNS[columns]
    drawn = chance.randrange(low, high, step or 1)
    return (*shape, 8 * drawn if step == 8 else drawn if step else 2**drawn)


def crossed(exam: Exam, dtype: Dtype) -> Found:
    """A call is the same function in every situation that two of its sides make, as far as it is not refused."""
    judged = 0
    every = situations(exam, dtype)
    for number, case in enumerate(every):
        given, others = _operands(exam, dtype, case, number)
        plain = _plain(exam, given, case.options["needs"])
        if plain is None:
            continue
        try:
            results, facts = exam.ask("crossed", given | others, **case.options)
        except RaisedError as error:
            if not is_refusal(error):
                raise
            continue
        judged += 1
        if facts["changed"]:
            return failed(f"it overwrites {' and '.join(facts['changed'])} in a call with {case.said}", case.shape)
        wrong = worse_than_plain(exam, given, plain, results, dtype)
        if wrong:
            return failed(f"{wrong} in a call with {case.said}, and right in a plain one", case.shape)
    exam.refused.clear()  # the sentence counts them
    refused = f"; {len(every) - judged} more were refused" * (judged < len(every))
    return passed(f"right in {judged} situations, in which every two of their sides meet{refused}")


def _operands(exam: Exam, dtype: Dtype, case: Situation, number: int) -> tuple[Tensors, Tensors]:
    """Operands with dy, and those of other calls: of other values, and of one row more."""
    given = exam.operands(dtype, case.shape, f"crossed {number}")
    varied = exam.names if exam.kind == "act_mul" else exam.names[:1]
    more = (case.shape[0] + 1, *case.shape[1:])
    others: Tensors = {}
    for prefix, shape in (("other", case.shape), ("more", more)):
        made = exam.operands(dtype, shape, f"crossed {prefix} {number}")
        others |= {f"{prefix}:{name}": (made if name in varied else given)[name] for name in exam.names}
    return given, others


def _plain(exam: Exam, given: Tensors, needs: tuple[str, ...]) -> Tensors | None:
    """The results of a plain call that the crossed one should have; None where it refuses that."""
    if needs:
        found = exam.gradients(given)
        return None if found is None else {name: found[0][name] for name in ("y", *(f"d:{each}" for each in needs))}
    try:
        return {"y": exam.forward(given)}
    except RaisedError as error:
        if not is_refusal(error):
            raise
        return None


CHECKS: Final = (
    Check(
        "crossed",
        "calls in which every two of shape, layout, gradients, mode, other calls and dy's layout meet",
        BOTH,
        crossed,
        dtypes="each",
    ),
)
