"""Checks of gradients: values, side effects of a backward, a second backward, double backward."""

from __future__ import annotations

import functools
import itertools
import math
from typing import TYPE_CHECKING, Final

import torch

from mlpfusion.spec import ACTIVATIONS, ROWS
from mlpfusion.stages.validate.judge import bounds, excuses, incoming
from mlpfusion.stages.validate.judge.checks.check import ACT_MUL, BOTH, LARGE_OPERANDS, Check
from mlpfusion.stages.validate.judge.checks.memory.results import OTHERS
from mlpfusion.stages.validate.judge.checks.shapes import LARGEST_ON_GPU, SCALES, WIDTHS, ranges, rows_trained, tiled
from mlpfusion.stages.validate.judge.checks.values import BIASED, MOST_BIAS_ULP, how
from mlpfusion.stages.validate.judge.exam import (
    Found,
    failed,
    hazard,
    is_refusal,
    passed,
    reported,
    undecided,
)
from mlpfusion.stages.validate.judge.places import within
from mlpfusion.stages.validate.judge.scores import is_worse, score
from mlpfusion.stages.validate.judge.sweeps import LARGEST_GATE, SMALLEST_GATE
from mlpfusion.stages.validate.judge.worker_handle import RaisedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlpfusion.spec import Activation, Dtype
    from mlpfusion.stages.validate.channel import Tensors
    from mlpfusion.stages.validate.judge.exam import Exam

# One to five dimensions: a backward may have code of its own for each. Some for kernels that take only multiples.
SHAPES: Final = (
    *((7, 127), (33, 97), (2, 3, 97), (1031,), (16, 256), (2, 4, 256)),
    *((2, 3, 4, 24), (2, 2, 3, 2, 24)),
)
# Where dy is of any size as well: of every power of two, then with nan and infinities.
ANY_DY: Final = ((7, 127), (1031,), (16, 256))
# More than one block, and room for every gate value of 16 bits, in one row and in many.
LARGE: Final = ((1, 65537), (64, 1024))
# A second-order gradient is right or it misses a term, which is of its own size: 1% tells.
SECOND_ORDER: Final = 1e-2


# The elements of a result, the shape, which comes first of two, the operand, and a sentence.
Failure = tuple[int, tuple[int, ...], int, str, str]


def differentiable(exam: Exam, dtype: Dtype) -> Found:
    """Whether it has a backward at all, in this dtype."""
    lack = exam.lack(dtype)
    if lack is None:
        trained = exam.gradients(exam.operands(dtype, exam.plain, "gradients"))
        frozen = [] if trained is None else trained[1]["frozen"]
        if frozen:
            sentence = "need no gradient when it is built: training leaves them as they are, without a word"
            return hazard(f"{' and '.join(frozen)} {sentence}", exam.plain)
        return passed("has a gradient for every operand")
    if exam.forward_only is None:
        # A detached result loses gradients without a word, where the same call in another dtype trains.
        found = hazard if lack.how == "detached" else reported
        return found(f"no gradient in {dtype}, as there is in another dtype: {lack.sentence}")
    if lack.how == "fails":
        return hazard(f"no gradient can be had: {lack.sentence}", exam.plain)
    return reported(f"forward only: {lack.sentence}")


def backward(exam: Exam, dtype: Dtype) -> Found:
    """Every element of d_gate and d_up is within its bound, at gate scales of 0.01, 1 and 10."""
    worst = {"gate": 0.0, "up": 0.0}
    failures: list[Failure] = []
    judged = 0
    exam.need_gradients(dtype)
    for shape in exam.asked.shapes or exam.some(_shapes(exam)):
        for given in _operands(exam, dtype, shape):
            try:
                results, _ = exam.backward(given)
            except RaisedError as raised:
                if not is_refusal(raised) or exam.asked.shapes:
                    raise
                break
            judged += 1
            trained = excuses.scores(exam, score(exam, given, "y", dtype), results["y"], given, probe="backward")
            if bool((trained > bounds.LIMIT).any()):
                return failed("with gradients on, y itself is beyond its bound", shape)
            for name in exam.names:
                scores = _scores(exam, given, results, name, dtype)
                if not scores.numel():
                    continue
                lost = _lost(exam, given, results, name)
                if lost is not None:
                    failures.append((scores.numel(), shape, 1, name, lost))
                largest = float(scores.max())
                worst[name] = max(worst[name], largest)
                if largest > bounds.LIMIT:
                    worst_of = _worst(exam, given, results, scores, name=name, dtype=dtype)
                    failures.append((scores.numel(), shape, 0, name, worst_of))
    if not failures and not exam.asked.shapes:
        failures += _within_ranges(exam, dtype, worst)
    figures = {f"worst_{name}": value if value < float("inf") else None for name, value in worst.items()}
    if failures:
        _, shape, *_, sentence = min(failures)
        return failed(sentence, shape, **figures)
    if not judged:
        return undecided("it refuses every shape tried")
    return passed(f"worst scores: d_gate {worst['gate']:.2f}, d_up {worst['up']:.2f} of {bounds.LIMIT:g}", **figures)


def _within_ranges(exam: Exam, dtype: Dtype, worst: dict[str, float]) -> list[Failure]:
    """What is wrong where all gates are within some range, as `backward` collects it; `worst` gets the scores."""
    for each, shape in ranges(exam):
        given = each.of(exam, dtype, shape)
        trained = exam.gradients(given)
        if trained is None:
            break
        for name in exam.names:
            scores = _scores(exam, given, trained[0], name, dtype)
            largest = float(scores.max())
            worst[name] = max(worst[name], largest)
            if largest > bounds.LIMIT:
                sentence = _worst(exam, given, trained[0], scores, name=name, dtype=dtype)
                return [(scores.numel(), shape, 0, name, f"{each.said}, {sentence}")]
    return []


def backward_store(exam: Exam, dtype: Dtype) -> Found:
    """The stores of its backward round to nearest: gradients are not off to one side."""
    exam.need_gradients(dtype)
    worst = {"gate": 0.0, "up": 0.0}
    judged = 0
    for shape in exam.some(BIASED[exam.kind]):
        given = exam.operands(dtype, shape, "backward store")
        try:
            results, _ = exam.backward(given)
        except RaisedError as error:
            if not is_refusal(error):
                raise
            continue
        at = bounds.Point(given["gate"], given["up"], given["dy"])
        of = (results["d:gate"], results["d:up"])
        scores = {name: _scores(exam, given, results, name, dtype) for name in exam.names}
        beyond = [name for name, each in scores.items() if bool((each > bounds.LIMIT).any())]
        if beyond:
            return failed(f"{' and '.join(f'd_{name}' for name in beyond)} is beyond its bound", shape)
        judged += 1
        for name, bias in bounds.gradient_biases_in_ulp(*of, at, exam.activation, dtype)._asdict().items():
            if not abs(bias.worst) <= MOST_BIAS_ULP:
                return failed(f"d_{name} is off by {how(bias)}", shape)
            worst[name] = max(worst[name], bias.worst, key=abs)
    if not judged:
        return undecided("it refuses every shape tried")
    return passed(f"off by d_gate {worst['gate']:+.3f}, d_up {worst['up']:+.3f} ulp on average")


def _scores(exam: Exam, given: Tensors, results: Tensors, name: str, dtype: Dtype) -> torch.Tensor:
    of = f"d:{name}"
    return excuses.scores(exam, score(exam, given, of, dtype), results[of], given, of=of, probe="backward")


def _shapes(exam: Exam) -> tuple[tuple[int, ...], ...]:
    largest = LARGEST_ON_GPU[:1] if exam.device == "cuda" else ()
    return *SHAPES, *WIDTHS, rows_trained(exam), *LARGE, *tiled(exam)[-1:], *largest


def _operands(exam: Exam, dtype: Dtype, shape: tuple[int, ...]) -> Iterator[Tensors]:
    """What a shape is judged with: random gates at three scales, or in a large shape every gate value, shuffled."""
    given = exam.operands(dtype, shape, "backward")
    if shape in (*WIDTHS, rows_trained(exam), *tiled(exam), LARGEST_ON_GPU[0]) and not exam.asked.shapes:
        yield given
        return
    if shape not in LARGE:
        scales: tuple[float, ...] = SCALES
        if exam.asked.quick and shape in SHAPES:
            exam.left_out["two of three scales in each shape of gradients"] = None
            scales = (SCALES[SHAPES.index(shape) % len(SCALES)],)
        yield from (exam.operands(dtype, shape, "backward", scale=scale) for scale in scales)
        if shape in ANY_DY or exam.asked.shapes:
            yield _with_zeros(exam, given)
            yield from (given | {name: torch.zeros_like(given[name])} for name in _zeroed(exam))
            generator = exam.generator("any dy")
            any_dy = given | {"dy": incoming.wide(given["up"], dtype, generator)}
            yield any_dy
            yield any_dy | {"dy": incoming.strange(any_dy["dy"], generator)}
        return
    gates = bounds.every_value(dtype)
    size = gates.double().abs()
    kept = (size <= LARGEST_GATE) & (size >= SMALLEST_GATE)
    if ROWS[exam.activation].smoothness >= 1:  # else the slope at 0 may be anything between those beside it
        kept |= size == 0
    gates = gates[kept]
    order = torch.randperm(given["gate"].numel(), generator=exam.generator("gates"))
    yield given | {"gate": gates[order % gates.numel()].view(shape)}


def _zeroed(exam: Exam) -> tuple[str, ...]:
    """What may be 0, some of it or all: no gate where the slope there is any number."""
    return ("up", "dy", "gate") if ROWS[exam.activation].smoothness >= 1 else ("up", "dy")


def _with_zeros(exam: Exam, given: Tensors) -> Tensors:
    """Every seventh up, dy and gate is 0, as far as they may be: what divides by one of them shows."""
    names = _zeroed(exam)
    zeros = given | {name: given[name].clone() for name in names}
    for place, name in enumerate(names):
        zeros[name].view(-1)[place::7] = 0.0
    return zeros


def _lost(exam: Exam, given: Tensors, results: Tensors, name: str) -> str | None:
    """That a gradient is finite where dy is not, in words, unless it is so everywhere or eager's is the same."""
    if bool(given["dy"].isfinite().all()):
        return None
    of = f"d:{name}"
    right = exam.reference(given, grad=True)[of]
    parted = excuses.part(
        lambda grad: incoming.lost(grad, right, given["dy"]),
        results[of],
        lambda: excuses.of_eager(exam, "backward", given, of),
    )
    if not bool(parted.wrong.any()):
        return None
    at = int(parted.wrong.reshape(-1).nonzero()[0])
    dy, found, exact = (float(each.reshape(-1)[at]) for each in (given["dy"], results[of], right))
    return (
        f"{int(parted.wrong.sum())} of {right.numel()} elements of d_{name} are finite where dy is not: dy {dy:g} "
        f"gives {found:.6g}, where {exact:g} is right"
    )


def _worst(exam: Exam, given: Tensors, results: Tensors, scores: torch.Tensor, *, name: str, dtype: Dtype) -> str:
    where = within(scores > bounds.LIMIT)
    scores = scores.reshape(-1)
    index = int(scores.nan_to_num(torch.inf).argmax())
    right = float(exam.reference(given, grad=True)[f"d:{name}"].reshape(-1)[index])
    found = float(results[f"d:{name}"].reshape(-1)[index])
    gate, up, dy = (float(given[each].reshape(-1)[index]) for each in ("gate", "up", "dy"))
    count = int((scores > bounds.LIMIT).sum())
    which = "; d_gate and d_up are exchanged" if _are_exchanged(exam, given, results, dtype) else ""
    if name == "gate" and not which:
        others = (each for each in ACTIVATIONS if each != exam.activation)
        found_of = next(
            (
                each
                for each in others
                if _is_gradient(exam, given, results["d:gate"], "gate", dtype=dtype, activation=each)
            ),
            None,
        )
        which = f"; it is the derivative of {ROWS[found_of].label}" if found_of else ""
    return (
        f"{count} of {scores.numel()} elements of d_{name} are beyond the bound{', ' * bool(where)}{where}{which}; "
        f"the worst has a score of {float(scores[index]):.3g}: gate {gate:.6g}, up {up:.6g}, dy {dy:.6g} give "
        f"{found:.6g}, where {right:.6g} is right"
    )


def _are_exchanged(exam: Exam, given: Tensors, results: Tensors, dtype: Dtype) -> bool:
    """Whether each of the two gradients is the other's."""
    pairs = (("gate", "up"), ("up", "gate"))
    return all(_is_gradient(exam, given, results[f"d:{other}"], name, dtype=dtype) for name, other in pairs)


def _is_gradient(
    exam: Exam, given: Tensors, found: torch.Tensor, name: str, *, dtype: Dtype, activation: Activation | None = None
) -> bool:
    """Whether a tensor is the gradient of an operand, by another activation too, but where eager's own is as wrong."""
    judge = score(exam, given, f"d:{name}", dtype, activation)
    parted = excuses.part(
        lambda grad: judge(grad) > bounds.LIMIT,
        found,
        lambda: excuses.of_eager(exam, "backward", given, f"d:{name}", activation=activation),
    )
    return not bool(parted.wrong.any())


def partial(exam: Exam, dtype: Dtype) -> Found:
    """The gradients of any operands are the same where no other needs one, also once frozen ones are unfrozen."""
    exam.need_gradients(dtype)
    given = exam.operands(dtype, exam.plain, "partial")
    whole, seen = exam.backward(given)
    sets = [names for size in range(1, len(exam.names)) for names in itertools.combinations(exam.names, size)]
    cases = [
        *((names, None, f"where {' and '.join(names)} alone need a gradient") for names in sets),
        *((exam.names, (name,), f"where {name} alone needed one in an earlier call") for name in exam.names),
    ]
    for names, earlier, where in cases:
        try:
            alone, facts = exam.ask("partial", given, of=list(names), earlier=earlier and list(earlier))
        except RaisedError as raised:
            if not is_refusal(raised):
                raise
            return hazard(f"breaks {where}: {raised}", exam.plain)
        if facts["changed"]:
            return failed(f"{where}, the forward overwrites {' and '.join(facts['changed'])}", exam.plain)
        if facts["changed_by_backward"] and not seen["changed_by_backward"]:  # else that is for `saved-kept` to say
            written = " and ".join(facts["changed_by_backward"])
            return hazard(f"{where}, the backward overwrites {written}", exam.plain)
        for name in names:
            straight, found = whole[f"d:{name}"], alone.get(f"d:{name}")
            if found is None:
                return failed(f"there is no gradient of {name} {where}", exam.plain)
            if not _alike(straight, found, dtype) or is_worse(
                exam, given, f"d:{name}", found=found, plain=straight, dtype=dtype
            ):
                return failed(f"the gradient of {name} is another {where}", exam.plain)
    return passed("each gradient is the same where no other is needed, and once it is needed")


def apart(exam: Exam, dtype: Dtype) -> Found:
    """Some calls, then the backwards of the first two, give the gradients of each alone; results and gradients stay."""
    exam.need_gradients(dtype)
    given = exam.operands(dtype, exam.plain, "apart")
    varied = (*exam.names, "dy") if exam.kind == "act_mul" else ("x", "dy")
    other = given | {name: exam.operands(dtype, exam.plain, "apart, later")[name] for name in varied}
    alone, later = exam.backward(given)[0], exam.backward(other)[0]
    try:
        both, facts = exam.ask("apart", given | {f"other:{name}": other[name] for name in varied}, others=OTHERS)
    except RaisedError as raised:
        if not is_refusal(raised):
            raise
        return hazard(f"breaks where a second call comes before the first one's backward: {raised}", exam.plain)
    if not facts["stayed"]:
        return failed("calls that train overwrite an earlier result: buffers take turns", exam.plain)
    for name in exam.names:
        for prefix, right, which in (("d", alone, "first"), ("e", later, "second")):
            if not _alike(right[f"d:{name}"], both.get(f"{prefix}:{name}"), dtype):
                sentence = (
                    f"the {which} of {OTHERS + 1} calls gets a wrong gradient of {name}: what they keep is shared"
                )
                return failed(sentence, exam.plain)
        if not torch.equal(both[f"d:{name}"].nan_to_num(), both[f"after:{name}"].nan_to_num()):
            return failed(f"the next backward overwrites an earlier gradient of {name}", exam.plain)
    return passed("two calls keep their gradients apart")


def saved_kept(exam: Exam, dtype: Dtype) -> Found:
    """The backward leaves the operands, and the gradient that it is given, as they were."""
    exam.need_gradients(dtype)
    for shape, bare in ((exam.plain, False), (exam.plain, True), (LARGE_OPERANDS[exam.kind], False)):
        trained = exam.gradients(exam.operands(dtype, shape, "saved"), bare=bare)
        facts = {} if trained is None else trained[1]
        if facts.get("changed_by_backward"):
            silent = "" if facts["version_raised"] else " without raising their version, so that autograd cannot notice"
            return hazard(f"the backward overwrites {' and '.join(facts['changed_by_backward'])}{silent}", shape)
    return passed("the backward leaves its operands as they were")


def second_backward(exam: Exam, dtype: Dtype) -> Found:
    """A second backward through one graph (retain_graph=True) gives the same gradients or is refused."""
    exam.need_gradients(dtype)
    results, facts = exam.ask("second", exam.operands(dtype, exam.plain, "second"))
    if "refused" in facts:
        return passed(f"a second backward is refused: {facts['refused']}")
    for name in exam.names:
        first, again = results.get(f"d:{name}"), results.get(f"e:{name}")
        if (first is None) != (again is None) or (first is not None and not _alike(first, again, dtype)):
            return hazard(
                f"a second backward (retain_graph=True) silently gives another gradient of {name}", exam.plain
            )
    return passed("a second backward gives the same gradients")


def _alike(first: torch.Tensor, again: torch.Tensor | None, dtype: Dtype) -> bool:
    """Equal, or apart as two compilations of one formula may be."""
    return again is not None and bool((bounds.relative(again, first) < 16 * bounds.EPS[dtype]).all())


def double_backward(exam: Exam, dtype: Dtype) -> Found:
    """A gradient of the gradient is right or refused, not silently wrong."""
    exam.need_gradients(dtype)
    given = exam.operands(dtype, exam.plain, "double")
    generator = exam.generator("double weights")
    for name in exam.names:  # each gradient's own: what one of them loses must be in the sum
        given[f"w:{name}"] = torch.randn(given[name].shape, generator=generator).to(given[name].dtype)
    results, facts = exam.ask("double", given)
    if "refused" in facts:
        return passed(f"a gradient of the gradient is refused: {facts['refused']}")
    leaves = {name: given[name].double().requires_grad_() for name in exam.names}
    dy = given["dy"].double().requires_grad_()
    grads = torch.autograd.grad(exam.compute(leaves), tuple(leaves.values()), dy, create_graph=True)
    weights = [given[f"w:{name}"].double() for name in exam.names]
    total = (weights[0] * leaves[exam.names[0]]).sum()
    total = total + torch.stack([(w * grad).sum() for w, grad in zip(weights, grads, strict=True)]).sum()
    expected = torch.autograd.grad(total, (*leaves.values(), dy))
    limit = max(SECOND_ORDER, 16 * bounds.EPS[dtype])
    for name, right in zip((*exam.names, "dy"), expected, strict=True):
        found = results.get(f"h:{name}")
        off = None if found is None else _off(exam, given, found, right, limit=limit, of=f"h:{name}")
        if off is None or off > limit:
            what = "is missing" if off is None else f"is off by {off:.2g}" if off < math.inf else "is not finite"
            return hazard(f"double backward is silently wrong: the second-order gradient for {name} {what}", exam.plain)
    return passed("double backward is right")


def _off(
    exam: Exam, given: Tensors, found: torch.Tensor, right: torch.Tensor, *, limit: float, of: str
) -> float | None:
    """The largest relative error of a second-order gradient; None where it has another shape."""
    if found.shape != right.shape:
        return None
    relative = functools.partial(bounds.relative, exact=right)
    return float(excuses.scores(exam, relative, found, given, limit=limit, of=of, probe="double").max())


CHECKS: Final = (
    Check(
        "differentiable", "one backward, and the shape and dtype of each gradient", BOTH, differentiable, dtypes="each"
    ),
    Check(
        "backward",
        "d_gate and d_up of random operands at three scales, and of every 16-bit gate value, against fp64",
        ACT_MUL,
        backward,
        dtypes="each",
    ),
    Check(
        "backward-store",
        "the mean signed error of 16384 of each gradient, in ulp",
        ACT_MUL,
        backward_store,
        dtypes="16-bit",
    ),
    Check("partial", "the gradients of every set of operands alone", BOTH, partial, dtypes="each"),
    Check("apart", "two calls, and then the backward of each", BOTH, apart, dtypes="each"),
    Check("saved-kept", "the bits of operands and dy before and after the backward", BOTH, saved_kept, dtypes="each"),
    Check("second-backward", "two backwards through one graph", BOTH, second_backward, dtypes="each"),
    Check("double-backward", "a gradient of the gradient, against fp64", BOTH, double_backward, dtypes="each"),
)
