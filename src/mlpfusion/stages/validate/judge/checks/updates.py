"""Checks of what changes between calls: operands, weights, and gradients that add up."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final

from mlpfusion.stages.validate.judge import bounds
from mlpfusion.stages.validate.judge.checks.check import BOTH, Check
from mlpfusion.stages.validate.judge.exam import Found, failed, hazard, is_refusal, passed
from mlpfusion.stages.validate.judge.worker_handle import RaisedError

if TYPE_CHECKING:
    from torch import Tensor

    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.judge.exam import Exam

BUILT_EMPTY: Final = "to_empty() from the meta device and load_state_dict"
COPIED: Final = "a deepcopy and an update of the original"
OF_COPIES: Final = (COPIED, BUILT_EMPTY)
# How a weight gets new values; the worker has a function for each.
WAYS: Final = (
    "an update in place",
    "load_state_dict",
    "load_state_dict(assign=True)",
    COPIED,
    "an optimiser step",
    ".data = another tensor",
    "new tensors at the old addresses",
    "other layers in the places of its own",
    BUILT_EMPTY,  # last: what keeps its first Parameters is stale in others, and this says it less well
)
# The calls before and after, by the names of their results.
CALLED: Final = {
    "y": "without gradients",
    "e:y": "in eval mode, without gradients",
    "f:y": "one row in eval mode, without gradients",
    "t:y": "with gradients on",
    "a:y": "under autocast, without gradients",
    "s:y": "in eval mode all the time, without gradients",
}
LAYERS: Final = 17  # whose backwards come in reverse order: of each weight's shape there are as many gradients
# Root mean square of the error, relative to that of the result: right ones are off by an eps or two, and a result of
# other weights by its own size.
STALE: Final = 0.2


def accumulation(exam: Exam, dtype: Dtype) -> Found:
    """backward() adds to `.grad` what autograd.grad returns, once for each call."""
    exam.need_gradients(dtype)
    results, facts = exam.ask("accumulated", exam.operands(dtype, exam.plain, "accumulation"))
    for prefix, times, how in (("e", 1, "one call of backward()"), ("f", 2, "two calls of backward()")):
        for name in exam.names:
            once, found = results.get(f"d:{name}"), results.get(f"{prefix}:{name}")
            if once is None:
                continue
            if found is None or not _alike(found, once.double() * times, dtype):
                sentence = f"after {how} {name}.grad is not {times} times the gradient that autograd.grad returns"
                return failed(sentence + _also_written(facts["written"]), exam.plain)
    if facts["written"]:
        return failed(f"autograd.grad, which returns gradients, changes {_grads(facts['written'])} as well", exam.plain)
    _, facts = exam.ask("held", exam.operands(dtype, exam.plain, "accumulation"), count=LAYERS)
    if facts["overwritten"]:
        names = " and ".join(facts["overwritten"])
        sentence = f"of {LAYERS} layers a later backward overwrites the gradient of {names} that another was given"
        return failed(f"{sentence}: buffers take turns", exam.plain)
    return passed("backward() adds each gradient to .grad once, and those of many layers stay")


def _also_written(names: list[str]) -> str:
    return f": the backward itself writes {_grads(names)}" if names else ""


def _grads(names: list[str]) -> str:
    return " and ".join(f"{name}.grad" for name in names)


def modified(exam: Exam, dtype: Dtype) -> Found:
    """An operand or result that is changed in place before the backward is refused, or changes no gradient."""
    exam.need_gradients(dtype)
    given = exam.operands(dtype, exam.plain, "modified")
    right = exam.backward(given)[0]
    for which in (*exam.names, "y"):
        results, facts = exam.ask("modified", given, which=which)
        if "refused" in facts:
            continue
        for name in exam.names:
            found = results.get(f"d:{name}")
            if found is None or not _alike(found, right[f"d:{name}"], dtype):
                what = "the result" if which == "y" else which
                sentence = (
                    f"where {what} is changed in place between forward and backward, the gradient of {name} is "
                    "silently wrong: what it needs was kept past save_for_backward, by which autograd would refuse "
                    "this, or is computed again"
                )
                return hazard(sentence, exam.plain)
    return passed("a change in place before the backward is refused, or changes no gradient")


def updated(exam: Exam, dtype: Dtype) -> Found:
    """It computes with the values that its weights (or operands) have when it is called."""
    given = exam.operands(dtype, exam.plain, "updated")
    later = exam.operands(dtype, exam.plain, "updated, later")
    both = given | {f"other:{name}": later[name] for name in exam.names}
    judged = []
    updated_alone = exam.names if exam.kind == "act_mul" else exam.names[1:]
    cases: tuple[tuple[str, bool, str | None], ...] = (
        *((way, in_eval, None) for way, in_eval in itertools.product(WAYS, (False, True))),
        *((way, False, name) for way in WAYS if way not in OF_COPIES for name in updated_alone),
    )
    for way, in_eval, alone in cases:
        try:
            results, facts = exam.ask(
                "updated", both, way=way, in_eval=in_eval, alone=alone, brief=alone is not None and way != WAYS[0]
            )
        except RaisedError as raised:
            if not is_refusal(raised):
                raise
            continue
        if "skipped" in facts:
            continue
        if "uncopyable" in facts:
            return hazard(f"copy.deepcopy of it raises after a call that trains: {facts['uncopyable']}", exam.plain)
        if facts.get("saved"):
            sentence = (
                f"calls change what state_dict() has ({', '.join(facts['saved'])}): a checkpoint that is saved after "
                "them does not load into a new model"
            )
            return hazard(sentence, exam.plain)
        if facts.get("outdated"):
            names = ", ".join(facts["outdated"])
            return failed(
                f"after {way} state_dict() has earlier values of {names}: a checkpoint loses them", exam.plain
            )
        judged.append(way)
        if facts["attached"]:
            sentence = "under no_grad its result needs gradients: it holds its graph, and what that has saved"
            return hazard(sentence, exam.plain)
        right = exam.reference({name: results[f"w:{name}"] for name in exam.names})["y"]
        for name in filter(results.__contains__, CALLED):
            expected = right.reshape(-1, right.shape[-1])[:1] if name == "f:y" else right
            if _is_off(results[name], expected):
                return _stale(exam, way + f" of {alone} alone" * (alone is not None), CALLED[name])
    return passed(f"computes with the values of the moment after {', '.join(dict.fromkeys(judged))}")


def _stale(exam: Exam, way: str, how: str) -> Found:
    if exam.kind == "act_mul":
        return failed(f"after {way} the result is one of other operands, kept from an earlier call ({how})", exam.plain)
    if way == COPIED:
        return hazard(f"a deepcopy of it computes with the weights of the original ({how})", exam.plain)
    if way == BUILT_EMPTY:
        sentence = "what no checkpoint has, such as a buffer that is not persistent, is lost, and its result is wrong"
        return hazard(f"after {way} {sentence} ({how})", exam.plain)
    return hazard(f"stale weights: after {way} it still computes with the earlier ones ({how})", exam.plain)


def _is_off(found: Tensor, right: Tensor) -> bool:
    if found.shape != right.shape:
        return True
    off, size = (float(each.square().mean().sqrt()) for each in (found.double() - right, right))
    return not off <= STALE * size


def _alike(found: Tensor, right: Tensor, dtype: Dtype) -> bool:
    """Equal, or apart as the sums of a matrix product may be that come in another order."""
    return found.shape == right.shape and bool((bounds.relative(found, right) < 16 * bounds.EPS[dtype]).all())


CHECKS: Final = (
    Check(
        "accumulation",
        "autograd.grad beside backward() into .grad, twice, and gradients of many layers",
        BOTH,
        accumulation,
        dtypes="each",
    ),
    Check("modified", "operands and result changed in place before the backward", BOTH, modified, dtypes="each"),
    Check(
        "updated",
        "calls after weights or operands, all or one of them, got new values, in nine ways",
        BOTH,
        updated,
        dtypes="each",
    ),
)
