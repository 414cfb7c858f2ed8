"""Checks that hold for any kernel: it runs, writes all of its result, and nothing else."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from mlpfusion.stages.validate.judge import bounds, excuses
from mlpfusion.stages.validate.judge.checks.check import ACT_MUL, BOTH, LARGE_OPERANDS, Check
from mlpfusion.stages.validate.judge.checks.memory.results import reuse
from mlpfusion.stages.validate.judge.checks.memory.written import like, misshapen, written
from mlpfusion.stages.validate.judge.checks.shapes import is_interpreted
from mlpfusion.stages.validate.judge.exam import (
    BackwardError,
    DetachedError,
    FaultError,
    Found,
    failed,
    grad_name,
    hazard,
    is_refusal,
    passed,
    reported,
    shape_text,
    undecided,
)
from mlpfusion.stages.validate.judge.worker_handle import RaisedError, UndecidableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.records.validation import Kind
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Tensors
    from mlpfusion.stages.validate.judge.exam import Exam

# The last two are as large as a sweep over every gate value, flat and as rows: a place that is wrong only there would
# be taken for a gate that is.
PLACED: Final = ((1031,), (7, 127), (8, 256), (65537,), (256, 256))
# Whole tiles of no configuration as far as a kernel's multiples allow; an MLP has a product for each of its rows.
TUNED: Final[dict[Kind, tuple[tuple[int, ...], ...]]] = {
    "act_mul": ((3, 1031), (3, 1040), (5, 1280), (8, 1280)),
    "mlp": ((3, 67), (4, 64)),
}
WRONG_ROW: Final = 0.25
# The gradient of an operand that is broadcast is a sum of right ones: another is off by its own size.
SHARED: Final = 0.2
# The shape of one operand of an act·mul and those of the other: rows, columns and single numbers for many, and what
# does not fit. Of three dimensions and more each is shared by itself, the middle one as by all tokens of a sequence,
# with those before it, and each operand may share another: the row of one is no remainder of the other's.
MISMATCHED: Final[tuple[tuple[tuple[int, ...], tuple[tuple[int, ...], ...]], ...]] = (
    ((4, 256), ((1, 256), (4, 1), (256,), (1,), (), (2, 256), (4, 128), (4, 255), (8, 256), (2, 4, 256))),
    ((2, 4, 96), ((2, 1, 96), (2, 4, 1), (1, 4, 96), (2, 1, 1), (4, 1), (2, 2, 96))),
    ((2, 1, 96), ((1, 4, 96), (4, 1))),
    ((2, 3, 4, 24), ((2, 1, 4, 24), (2, 3, 1, 24), (1, 3, 1, 24), (3, 1, 1))),
    ((0, 256), ((1, 256), (256,))),  # the gradient of what a batch of no rows shares is 0
)
NAMED: Final = 4  # of the pairs that are broadcast
EMPTY: Final[dict[Kind, tuple[tuple[int, ...], ...]]] = {
    "act_mul": ((0,), (0, 768), (4, 0, 7), (1,), (1, 1, 1)),
    "mlp": ((0,), (4, 0), (1,), (1, 1)),
}


def runs(exam: Exam, dtype: Dtype) -> Found:
    """It returns one tensor of the right shape and dtype."""
    shape = exam.asked.shapes[0] if exam.asked.shapes else exam.plain
    given = exam.operands(dtype, shape, "runs")
    y = exam.forward(given)
    return misshapen(y, like(exam, given), dtype) or passed(f"runs; {exam.loaded.described}")


def inputs_kept(exam: Exam, dtype: Dtype) -> Found:
    """The forward leaves its operands (and weights) as they were, by their bits, in a large shape as well."""
    large = LARGE_OPERANDS[exam.kind]
    for shape, bare, unnamed in (
        *((exam.plain, False, False), (exam.plain, True, False), (exam.plain, False, True)),
        *((large, False, False), (large, True, True)),
    ):
        given = exam.operands(dtype, shape, "kept")
        try:
            _, facts = exam.ask("forward", given, bare=bare, unnamed=unnamed)
        except RaisedError as error:
            if shape == exam.plain or not is_refusal(error):
                raise
            continue
        changed = facts["changed"]
        if not changed and not unnamed:
            trained = exam.gradients(given, bare=bare)
            changed = [] if trained is None else trained[1]["changed"]
        if changed:
            alone = ", to which the caller has no name, and which is a view of what lives on" if unnamed else ""
            alone = ", alone in its memory" if bare and not unnamed else alone
            return failed(f"the forward overwrites {' and '.join(changed)}{alone}", shape)
    return passed("the operands are as they were, by their bits")


def positions(exam: Exam, dtype: Dtype) -> Found:
    """A value does not depend on its operands' position: shuffled operands give the shuffled result."""
    judged = 0
    for shape in exam.some(PLACED):
        generator = exam.generator(f"positions {shape}")
        n = torch.Size(shape).numel()
        steps = min(n, 96)  # far enough apart for bfloat16
        gate = (0.5 + 1.5 * (torch.randperm(n, generator=generator) % steps) / steps).to(getattr(torch, dtype))
        up = torch.linspace(1.0, 1.25, n).to(gate.dtype)
        order = torch.randperm(n, generator=generator)
        try:
            straight = exam.forward({"gate": gate.view(shape), "up": up.view(shape)}).reshape(-1).double()
            mixed = exam.forward({"gate": gate[order].view(shape), "up": up[order].view(shape)}).reshape(-1).double()
        except RaisedError as error:
            if not is_refusal(error):
                raise
            continue
        if judged and bool(mixed.isnan().any()):  # where other shapes gave none, and no operand is
            count = int(mixed.isnan().sum())
            which = f"none of the {n} elements of the result is written"
            which = which if count == n else f"{count} of {n} elements of the result are never written"
            return failed(f"{which}: they are nan, as memory is at first", shape)
        judged += 1
        expected = straight[order]
        near = (mixed - expected).abs() <= 4 * bounds.EPS[dtype] * expected.abs()
        off = ~(near & expected.isfinite())  # as all operands are
        if bool(off.any()):
            return failed(_displaced(mixed, expected, off), shape)
    return passed("a value does not depend on its place") if judged else undecided("it refuses every shape tried")


def _displaced(mixed: Tensor, expected: Tensor, off: Tensor) -> str:
    count, n = int(off.sum()), off.numel()
    where = int(off.nonzero()[0])
    if bool(mixed[off].isnan().all()):  # no operand is, and the poison is
        which = "none" if count == n else f"{count}"
        return (
            f"{which} of {n} results {'is' if count == n else 'are never'} written: they are nan, as memory is at first"
        )
    for shift in (1, -1, 2, -2):
        if float(((mixed - expected.roll(shift)).abs() < 1e-2 * expected.abs()).double().mean()) > 0.9:
            return f"every result is that of the element at {shift:+d}: an index is off by {abs(shift)}"
    return f"{count} of {n} results depend on their place, the first at index {where}: an index is wrong"


def deterministic(exam: Exam, dtype: Dtype) -> Found:
    """Three calls on the same operands give the same bits."""
    _, facts = exam.ask("forward", exam.operands(dtype, exam.plain, "deterministic"), times=3)
    if facts["agree"]:
        return _by_any_order(exam, dtype) or passed("three calls give the same bits")
    sentence = "calls on the same operands give different bits"
    return failed(sentence, exam.plain) if exam.kind == "act_mul" else reported(sentence)


def _by_any_order(exam: Exam, dtype: Dtype) -> Found | None:
    """That an interpreted kernel gives another result where its programs run in another order, if it does."""
    if not is_interpreted(exam):
        return None
    given = exam.operands(dtype, exam.plain, "deterministic")
    runs = [exam.gradients(given, reversed=each) for each in (False, True)]
    forth, back = (
        exam.ask("forward", given, reversed=turned)[0] if run is None else run[0]
        for run, turned in zip(runs, (False, True), strict=True)
    )
    for name, value in forth.items():
        # Sums may come in another order.
        if name in back and bool((bounds.relative(back[name], value) > 16 * bounds.EPS[dtype]).any()):
            sentence = f"{grad_name(name)} is another one where the programs of a grid run in another order"
            return failed(f"{sentence}: one needs, or overwrites, what another writes", exam.plain)
    return None


def rows_alone(exam: Exam, dtype: Dtype) -> Found:
    """A row gives the same bits alone and among others."""
    shape = (16, 256) if exam.kind == "act_mul" else (16,)
    given = exam.operands(dtype, shape, "rows")
    among = exam.forward(given)
    rows = exam.names if exam.kind == "act_mul" else ("x",)
    alone = exam.forward({**given, **{name: given[name][3:4].clone() for name in rows}})
    if among[3:4].shape == alone.shape and bool(bounds.is_same(among[3:4], alone).all()):
        return passed("a row gives the same bits alone and among others")
    largest = float((among[3:4].double() - alone.double()).abs().max())
    sentence = f"a row differs by up to {largest:.2g} when it is computed alone"
    # Sums in another order differ by a few eps, products of TF32 by 2^-10, which `mlp-values` names, and a wrong row by
    # its own size.
    if exam.kind == "act_mul" or not largest <= WRONG_ROW * float(among.double().abs().max()):
        return failed(sentence, shape)
    return reported(sentence + ", by the matrix products")


def configurations(exam: Exam, dtype: Dtype) -> Found:
    """Every configuration of an autotuner gives the right values, not only the one that was picked here."""
    return _every_configuration(exam, dtype, "forward", ("y",))


def backward_configurations(exam: Exam, dtype: Dtype) -> Found:
    """The same of gradients: a backward may have other autotuners, which appear only when it runs."""
    exam.need_gradients(dtype)
    return _every_configuration(exam, dtype, "backward", tuple(f"d:{name}" for name in exam.names))


def _every_configuration(exam: Exam, dtype: Dtype, probe: str, names: tuple[str, ...]) -> Found:
    ask = exam.backward if probe == "backward" else functools.partial(exam.ask, probe)
    shape = _taken(exam, dtype, probe, ask)  # which may bring an autotuner to light
    count = exam.configurations
    if not count:
        return passed("no autotuner")
    if shape is None:
        return undecided("it refuses every shape tried")
    given = exam.operands(dtype, shape, probe)
    reference = exam.reference(given, grad=probe == "backward")

    def is_right(results: Tensors) -> bool:
        return all(
            excuses.is_close(exam, results[name], reference[name], given, of=name, probe=probe, dtype=dtype)
            for name in names
        )

    try:
        tuned = is_right(ask(given, configuration=None)[0])
    except RaisedError:
        tuned = exam.device == "cpu"  # where only a tuner with a clock of its own can tune
    if not tuned:
        return failed("the call that tunes raises or is wrong: do its kernels change what they read?", shape)
    wrong, unknown, left_out = [], 0, 0
    for index in range(count):
        try:
            results, facts = ask(given, configuration=index)
        except RaisedError as error:
            if error.why == "interpreter":
                unknown += 1
            else:
                wrong.append(f"number {index} raises {error}")
            continue
        left_out += facts["gave_way"]
        if not is_right(results) or facts["behind"]:
            wrong.append(f"number {index} ({facts['configuration']}) is wrong")
    if wrong:
        return failed(f"{len(wrong)} of {count} configurations fail: {'; '.join(wrong)}", shape)
    if unknown:
        return undecided(f"Triton's interpreter cannot run {unknown} of {count} configurations; the others are right")
    if left_out:
        return passed(f"right by {count - left_out} of {count} configurations; tuning would leave out the others here")
    return passed(f"right by all {count} configurations")


def _taken(exam: Exam, dtype: Dtype, probe: str, ask: Callable[[Tensors], object]) -> tuple[int, ...] | None:
    """The first of the shapes that the target does not refuse, if any."""
    for shape in TUNED[exam.kind]:
        try:
            ask(exam.operands(dtype, shape, probe))
        except RaisedError as error:
            if not is_refusal(error):
                raise
        else:
            return shape
    return None


def runs_without_memory(exam: Exam, dtype: Dtype) -> Found:
    """Sizes 0 and 1 work, or are refused."""
    odd = []
    batch = "0x768" if exam.kind == "act_mul" else "0"
    for shape in EMPTY[exam.kind]:
        given = exam.operands(dtype, shape, "empty")
        try:
            wrong = misshapen(exam.forward(given), like(exam, given), dtype)
            if wrong is None and _trains(exam, dtype):
                wrong = _of_no_rows(given, exam.backward(given)[0], shape)
        except (DetachedError, FaultError) as error:
            return hazard(f"gradients are lost for {shape_text(shape)}: {error}", shape)
        except RaisedError as error:
            if not is_refusal(error):
                raise
            odd.append(shape_text(shape) + (" in the backward" if isinstance(error, BackwardError) else ""))
            continue
        if wrong is not None:
            return wrong
    if odd:
        sentence = f"refuses {', '.join(odd)}"
        is_empty = any(each.partition(" ")[0] == batch for each in odd)
        return hazard(f"{sentence}: an empty batch raises") if is_empty else reported(sentence)
    return passed("sizes of 0 and 1 give results of the right shape")


def _of_no_rows(given: Tensors, results: Tensors, shape: tuple[int, ...]) -> Found | None:
    """That a gradient of an empty batch is not 0, as a sum of nothing is, if one is not."""
    if given["dy"].numel():
        return None
    for name in (each for each in results if each.startswith("d:")):
        off = results[name] != 0
        if bool(off.any()):
            what = "nan, as memory is at first," if bool(results[name][off].isnan().all()) else "not 0"
            sentence = f"{grad_name(name)} of an empty batch is {what} in {int(off.sum())} of {off.numel()} elements"
            return failed(f"{sentence}: a sum of no rows is 0", shape)
    return None


def _trains(exam: Exam, dtype: Dtype) -> bool:
    """Whether gradients come and are fit; else why is for another check to say."""
    try:
        return exam.lack(dtype) is None
    except FaultError:
        return False


def mismatched(exam: Exam, dtype: Dtype) -> Found:
    """Operands of different shapes are refused or broadcast as PyTorch does, never read past their end or repeated."""
    broadcast, refused = [], []
    pairs = [(large, small, name) for large, others in MISMATCHED for small in others for name in ("up", "gate")]
    for large, small, name in pairs:
        other = "up" if name == "gate" else "gate"
        given = {of: exam.operands(dtype, shape, "mismatched")[of] for of, shape in ((name, small), (other, large))}
        what = f"{name} of {shape_text(small)} for {other} of {shape_text(large)}"
        try:
            y = exam.forward({each: given[each] for each in exam.names})
        except RaisedError as error:
            if not is_refusal(error):
                raise
            refused.append(str(error))
            continue
        try:
            common = (given["gate"].double() * given["up"].double()).shape
        except RuntimeError:
            return hazard(f"accepts {what}, which PyTorch refuses: reads out of bounds or skips rows", large)
        expected = exam.reference({each: given[each].expand(common) for each in exam.names})["y"]
        if not excuses.is_close(exam, y, expected, given, of="y", probe="forward", dtype=dtype):
            return hazard(f"accepts {what} and gives wrong values: reads out of bounds or skips rows", large)
        broadcast.append(what)
        trained = given | {"dy": exam.operands(dtype, tuple(common), "mismatched")["dy"]}
        wrong = _wrong_gradient(exam, dtype, trained)
        if wrong is not None:
            return hazard(f"accepts {what}, and {wrong}", large)
    wrong = _of_two_dtypes(exam, dtype, exam.operands(dtype, (4, 256), "mismatched"))
    if wrong is not None:
        return hazard(wrong, (4, 256))
    if refused:
        more = f"; and {len(broadcast) - NAMED} others" * (len(broadcast) > NAMED)
        also = f", but {'; '.join(broadcast[:NAMED])}{more} broadcast, as PyTorch does" if broadcast else ""
        return passed(f"operands of two shapes are refused{also}: {refused[0]}")
    return passed("operands of two shapes are broadcast, as PyTorch does")


def _wrong_gradient(exam: Exam, dtype: Dtype, given: Tensors) -> str | None:
    """What is wrong with the gradients of operands that are broadcast, if something is; they may be refused."""
    if not _trains(exam, dtype):
        return None
    try:
        results, facts = exam.ask("backward", {name: given[name] for name in (*exam.names, "dy")})
    except RaisedError as error:
        if not is_refusal(error):
            raise
        return None
    if "raised" in facts:
        return None
    if "detached" in facts:
        return "its result has no gradient"
    right = exam.reference(given, grad=True)
    for name in exam.names:
        of = f"d:{name}"
        found, exact = results.get(of), right[of]

        def is_off(grad: Tensor, exact: Tensor = exact) -> Tensor:
            return bounds.relative(grad, exact) > SHARED

        def eager(of: str = of) -> Tensor | None:
            return excuses.of_eager(exam, "backward", given, of)

        if found is None or found.shape != exact.shape or bool(excuses.part(is_off, found, eager).wrong.any()):
            return f"the gradient of {name} is wrong"
    return None


def _of_two_dtypes(exam: Exam, dtype: Dtype, given: Tensors) -> str | None:
    """What is wrong where one operand is of 16 bits and the other of 32, which may be refused; or None."""
    narrow: Dtype = "float16" if dtype == "float32" else dtype
    for wide in exam.names:
        (name,) = (each for each in exam.names if each != wide)
        mixed = {wide: given[wide].float(), name: given[name].to(getattr(torch, narrow))}
        mixed = {each: mixed[each] for each in exam.names}
        try:
            y = exam.forward(mixed)
        except UndecidableError:
            continue
        except RaisedError as error:
            if not is_refusal(error):
                raise
            continue
        if not excuses.is_close(exam, y, exam.reference(mixed)["y"], mixed, of="y", probe="forward", dtype=narrow):
            return f"accepts {wide} in float32 with {name} in {narrow} and gives wrong values: takes one for the other"
    return None


def aliased(exam: Exam, dtype: Dtype) -> Found:
    """One tensor as both operands gives the sum of both gradients."""
    given = exam.operands(dtype, exam.plain, "aliased")
    results, _ = exam.ask("aliased", given, grad=exam.lack(dtype) is None)
    both = {"gate": given["gate"], "up": given["gate"], "dy": given["dy"]}
    apart, _ = exam.backward(both) if "d:gate" in results else exam.ask("forward", both)
    if not bounds.is_close(results["y"], apart["y"], dtype):
        return failed("one tensor as both operands gives another result", exam.plain)
    if "d:gate" in results:
        summed = apart["d:gate"].double() + apart["d:up"].double()
        if not bounds.is_close(results["d:gate"].double(), summed, dtype):
            return hazard("one tensor as both operands silently gets a wrong gradient", exam.plain)
    return passed("one tensor may be both operands")


CHECKS: Final = (
    Check("runs", "one call and the shape and dtype of its result", BOTH, runs, dtypes="each"),
    Check("written", "memory poisoned with two patterns, and margins around it", BOTH, written, dtypes="each"),
    Check("inputs-kept", "the bits of the operands before and after the forward", BOTH, inputs_kept, dtypes="each"),
    Check("results-kept", "an earlier result after another call", BOTH, reuse, dtypes="each"),
    Check("deterministic", "the bits of three calls", BOTH, deterministic, dtypes="each"),
    Check("positions", "shuffled operands", ACT_MUL, positions, dtypes="each"),
    Check("rows-alone", "a row among others and alone", BOTH, rows_alone, dtypes="each"),
    Check("empty", "sizes of 0 and 1", BOTH, runs_without_memory, dtypes="each"),
)
LATER: Final = (
    Check("configurations", "each configuration of an autotuner", BOTH, configurations, dtypes="each"),
    Check(
        "mismatched", "an operand of fewer or other rows and columns than the other", ACT_MUL, mismatched, dtypes="each"
    ),
)
AFTER_GRADIENTS: Final = (
    Check(
        "backward-configurations",
        "gradients by each configuration of an autotuner",
        BOTH,
        backward_configurations,
        dtypes="each",
    ),
    Check("aliased", "one tensor as gate and as up", ACT_MUL, aliased, dtypes="each"),
)
