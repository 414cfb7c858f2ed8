"""Checks of a target under torch.compile, autocast, checkpointing, vmap and inference mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor

from mlpfusion.backend import release
from mlpfusion.stages.validate.judge import bounds, excuses
from mlpfusion.stages.validate.judge.checks import mlp
from mlpfusion.stages.validate.judge.checks.check import BOTH, LARGE_OPERANDS, Check
from mlpfusion.stages.validate.judge.checks.transforms import autocast
from mlpfusion.stages.validate.judge.checks.transforms.alone import another_alone
from mlpfusion.stages.validate.judge.checks.transforms.differences import (
    IS_INFERENCE,
    NOTHING,
    differs,
    short,
    worse_than_plain,
)
from mlpfusion.stages.validate.judge.exam import (
    Found,
    failed,
    hazard,
    is_refusal,
    passed,
    reported,
    undecided,
)
from mlpfusion.stages.validate.judge.worker_handle import RaisedError
from mlpfusion.stages.validate.layouts import PACKED

if TYPE_CHECKING:
    from mlpfusion.records.validation import Kind
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.judge.exam import Exam


# How a call is made where nothing is trained, in words, and the worker's name for it.
# Beside the plain shape: many rows, where other code may run, one, and more dimensions.
INFERRED: Final[dict[Kind, tuple[tuple[int, ...], ...]]] = {
    "act_mul": (LARGE_OPERANDS["act_mul"], (1, 256), (2, 3, 97)),
    "mlp": (LARGE_OPERANDS["mlp"], (1,), (3, 67)),
}
MODES: Final = {
    "under torch.inference_mode": "inference",
    "in eval mode": "eval",
    "with gradients on, which no operand needs,": "gradients on",
}
# Programs of large models set the first, those of scientific computing the second: constants and workspaces that are
# made without a dtype have it.
DEFAULTS: Final = ("bfloat16", "float64")
# Shapes of gate or of the rows of x, and the dimension of each operand that is mapped over.
MAPPED: Final[dict[Kind, tuple[tuple[tuple[int, ...], dict[str, int | None]], ...]]] = {
    "act_mul": (
        ((3, 4, 64), {"gate": 0, "up": 0}),
        ((4, 3, 64), {"gate": 1, "up": 1}),
        ((3, 64), {"gate": 0, "up": None}),
        ((3, 64), {"gate": None, "up": 0}),
        *(((3, 4, 64), over) for over in ({"gate": 0, "up": None}, {"gate": None, "up": 0})),  # which has rows itself
        ((4, 3, 64), {"gate": 1, "up": None}),
        ((16, 16), {"gate": 0, "up": 1}),  # the wrong dimension is as long
    ),
    "mlp": (((3, 4), {"x": 0}), ((4, 3), {"x": 1})),
}
# The backend that traces as Inductor does and generates no code: where a target asks what call it is in, that shows it.
TRACED: Final = "aot_eager"


class Call(NamedTuple):
    """A kind of call in words, its shape (of an MLP the rows of x), and how its operands are laid out."""

    how: str
    shape: tuple[int, ...]
    options: dict[str, Any]


# Beside `plain`, which has two dimensions (three of x) and many rows. A target may ask for each while it is compiled.
COMPILED: Final[dict[Kind, tuple[Call, ...]]] = {
    "act_mul": (
        Call("in three dimensions", (2, 4, 256), {}),
        Call("for one row", (1, 256), {}),
        Call("where gate and up are transposed", (8, 256), {"layouts": dict.fromkeys(("gate", "up"), "transposed")}),
        Call(f"where gate and up are {PACKED}", (8, 256), {"packed": PACKED}),
    ),
    "mlp": (
        Call("in two dimensions", (16,), {}),
        Call("for one row", (1,), {}),
        Call("where x is transposed", (16,), {"layouts": {"x": "transposed"}}),
        Call("where the weights are transposed", (16,), {"layouts": dict.fromkeys(("wg", "wu", "wd"), "transposed")}),
    ),
}
# What PyTorch says of itself, for gradients that are 0 once compiled.
LOST_BY_PYTORCH: Final = (
    ": PyTorch 2.11 loses the gradients of an autograd.Function whose forward returns what it wrote in place "
    "(github.com/pytorch/pytorch/issues/180642)"
)


def compiled(exam: Exam, dtype: Dtype) -> Found:
    """Inside torch.compile(fullgraph=True) it gives the same values and gradients, in every kind of call."""
    # The CPU stands for tracing alone; Inductor's C++ would take seconds a target and is not what a GPU runs.
    backend = "inductor" if exam.device == "cuda" else TRACED
    given = exam.operands(dtype, exam.plain, "compiled")
    other = exam.operands(dtype, _another(exam), "compiled again")
    varied = (*exam.names, "dy") if exam.kind == "act_mul" else ("x", "dy")
    other = given | {name: other[name] for name in varied}
    trains = exam.lack(dtype) is None
    both = given | {f"other:{name}": other[name] for name in varied}
    try:
        results, facts = exam.ask("compiled", both, backend=backend, grad=trains)
    except RaisedError as raised:
        if raised.why == "memory":
            raise
        if exam.loaded.interpreted and exam.loaded.kernels:
            return undecided("a launch by Triton's interpreter cannot be traced, as that of a compiled kernel can")
        return hazard(f"cannot be compiled with fullgraph=True: {raised}", exam.plain)
    again = {"y": results["o:y"]} | {f"d:{name}": results[f"o:{name}"] for name in exam.names if f"o:{name}" in results}
    for how, operands, found, is_trained in (
        ("", given, results, trains),
        (" without gradients", given, {"y": results["p:y"]}, False),
        (" for a second shape", other, again, trains),
        (" for a second shape without gradients", other, {"y": results["q:y"]}, False),
    ):
        plain, _ = exam.backward(operands) if is_trained else exam.ask("forward", operands)
        wrong = _wrong_compiled(exam, operands, plain, found, dtype)
        if wrong:
            return failed(f"compiled{how}, {wrong}", exam.plain)
    wrong = _overwritten(facts["changed"])
    if wrong:
        return failed(f"compiled, {wrong}", exam.plain)
    if trains and dtype == exam.finest:  # a call is traced anew for each operand, in every dtype by the same code
        apart = another_alone(exam, given, results, dtype, "compiled", within="compile", backend=TRACED)
        if apart is not None:
            return apart
    for case in COMPILED[exam.kind]:
        apart = _case_compiled(exam, case, dtype)
        if apart is not None:
            return apart
    if facts["fp64"]:
        named = " and ".join(facts["fp64"])
        return reported(f"right under torch.compile, where {named} is float64, and with it what is computed from it")
    return passed(f"right under torch.compile ({backend}), for every kind of call, with gradients and without")


def _case_compiled(exam: Exam, case: Call, dtype: Dtype) -> Found | None:
    """What is wrong with a kind of call once it is compiled; None for one that the target refuses when it is not."""
    how, shape, options = case
    given = exam.operands(dtype, shape, f"compiled {how}")
    try:
        inferred, _ = exam.ask("forward", given, **options)
    except RaisedError as raised:
        if not is_refusal(raised):
            raise
        return None
    trained = exam.gradients(given, **options) if exam.lack(dtype) is None else None
    try:
        results, facts = exam.ask("compiled", given, backend=TRACED, grad=trained is not None, **options)
    except RaisedError as raised:
        if raised.why == "memory":
            raise
        return hazard(f"cannot be compiled with fullgraph=True {how}: {raised}", shape)
    pairs = [] if trained is None else [("", trained[0], results)]
    for which, plain, found in (*pairs, (" without gradients", inferred, {"y": results["p:y"]})):
        wrong = _wrong_compiled(exam, given, plain, found, dtype)
        if wrong:
            return failed(f"compiled {how}{which}, {wrong}", shape)
    wrong = _overwritten(facts["changed"])
    return failed(f"compiled {how}, {wrong}", shape) if wrong else None


def _overwritten(changed: Facts) -> str | None:
    """Which operands a call overwrites, by the names of results, in words, or None."""
    for call, names in changed.items():
        if names:
            return f"the forward overwrites {' and '.join(names)}{' without gradients' * (call == 'p:y')}"
    return None


def _wrong_compiled(exam: Exam, given: Tensors, plain: Tensors, found: Tensors, dtype: Dtype) -> str | None:
    """What is wrong with compiled results beside those of a plain call, in words, or None."""
    wrong = worse_than_plain(exam, given, plain, found, dtype)
    is_lost = wrong is not None and wrong.endswith(NOTHING) and release(torch.__version__) == (2, 11)
    return f"{wrong}{LOST_BY_PYTORCH}" if is_lost else wrong


def _another(exam: Exam) -> tuple[int, ...]:
    """A shape with other sizes than `plain`, so that a compiler makes them symbols; rows of an MLP alone may differ."""
    shape = exam.plain
    return (
        (*(size + 1 for size in shape[:-1]), 2 * shape[-1])
        if exam.kind == "act_mul"
        else tuple(size + 1 for size in shape)
    )


def exactness(exam: Exam, dtype: Dtype) -> Found:
    """Compiled with what reads it, its result is one value to all of them: a row's largest element equals itself."""
    del dtype
    narrow = next((one for one in exam.dtypes if one != "float32"), None)
    if narrow is None:
        return undecided("it takes no 16-bit dtype, in which a rounding could be left out")
    if exam.device != "cuda":
        return undecided("needs a GPU: what is rounded depends on the code that Inductor makes there")
    try:
        equal, _ = exam.ask("exact", exam.operands(narrow, exam.plain, "exactness"), backend="inductor")
    except RaisedError as raised:
        if raised.why == "memory":
            raise
        return undecided(f"cannot be compiled with fullgraph=True: {raised}")
    return rows_equal(equal["y"])


def rows_equal(equal: torch.Tensor) -> Found:
    """What it means that in some rows (1) the largest element was found again, and in others (0) not."""
    lost = int((equal == 0).sum())
    if lost:
        return reported(
            f"inside torch.compile no element equals the row's largest in {lost} of {equal.numel()} rows: Inductor "
            "reads the result before and after its rounding; do not compare results there for equality"
        )
    return passed("inside torch.compile a row's largest element equals itself")


def checkpointed(exam: Exam, dtype: Dtype) -> Found:
    """Checkpointing gives the gradients of a plain backward."""
    exam.need_gradients(dtype)
    given = exam.operands(dtype, exam.plain, "checkpointed")
    try:
        results, facts = exam.ask("checkpointed", given)
    except RaisedError as raised:
        if not is_refusal(raised):
            raise
        return hazard(f"breaks under checkpointing: {raised}", exam.plain)
    for prefix, how in (("e", "not reentrant"), ("f", "reentrant")):
        for name in exam.names:
            plain, again = results[f"d:{name}"], results.get(f"{prefix}:{name}")
            near = again is not None and (torch.equal(plain, again) or _near(plain, again, dtype))
            if not near:
                return failed(f"checkpointing ({how}) changes the gradient of {name}", exam.plain)
        if facts["changed"][prefix]:
            wrong = _overwritten({prefix: facts["changed"][prefix]})
            return failed(f"where it is checkpointed ({how}), {wrong}", exam.plain)
    apart = another_alone(exam, given, results, dtype, "where it is checkpointed", within="checkpoint")
    if apart is not None:
        return apart
    return _offloaded(exam, dtype) or passed("checkpointing changes no gradient, nor does what is saved elsewhere")


def _offloaded(exam: Exam, dtype: Dtype) -> Found | None:
    """What is wrong with gradients where saved tensors come back dense and in other memory, if something is."""
    for how, shape, options in (Call("", exam.plain, {}), *COMPILED[exam.kind]):
        given = exam.operands(dtype, shape, f"offloaded {how}")
        try:
            results, facts = exam.ask("offloaded", given, **options)
        except RaisedError as raised:
            if not is_refusal(raised):
                raise
            continue
        if "refused" in facts:
            continue
        plain = {name: value for name, value in results.items() if name.startswith("d:")}
        moved = {f"d:{name[2:]}": value for name, value in results.items() if name.startswith("e:")}
        wrong = _wrong_compiled(exam, given, plain, moved, dtype)
        if wrong:
            hooks = "where hooks give saved tensors back dense and in other memory, as offloading does"
            return failed(f"{hooks}, {wrong}{f' {how}' * bool(how)}", shape)
    return None


def _near(plain: torch.Tensor, again: torch.Tensor, dtype: Dtype) -> bool:
    """The sums of a matrix product may come in another order."""
    return bool((bounds.relative(again, plain) < 8 * bounds.EPS[dtype]).all())


def inference(exam: Exam, dtype: Dtype) -> Found:
    """In each mode in which nothing is trained it is the same function as under no_grad, and leaves its operands."""
    for shape in _inferred(exam):
        given = exam.operands(dtype, shape, "inference")
        try:
            results, facts = exam.ask("forward", given)
        except RaisedError as raised:
            if not is_refusal(raised) or shape == exam.plain:
                raise
            continue
        plain = results["y"]
        if facts["inference"]:
            return hazard(f"under no_grad {IS_INFERENCE}", shape)
        defaults = DEFAULTS if shape in {exam.plain, LARGE_OPERANDS[exam.kind]} else ()
        for how, mode in (MODES | {_under(name): f"default {name}" for name in defaults}).items():
            try:
                results, facts = exam.ask("forward", given, mode=mode)
            except RaisedError as raised:
                if not is_refusal(raised):
                    raise
                return hazard(f"breaks {how}: {raised}", shape)
            if facts["changed"]:
                return failed(f"{how} it overwrites {' and '.join(facts['changed'])}", shape)
            y = results["y"]
            wrong = differs({"y": plain}, {"y": y}, dtype) or _another_function(exam, y, plain, mode, dtype)
            if not wrong and y.dtype != plain.dtype:
                wrong = f"y is {short(y.dtype)}, which is {short(plain.dtype)} otherwise"
            if wrong:
                return failed(f"{how} {wrong}", shape)
            if facts["inference"] and mode != "inference":
                return hazard(f"{how} {IS_INFERENCE}", shape)
    sentence = "the same under inference mode, in eval mode, with gradients on for operands that need none"
    other = mlp.in_modes(exam, dtype) or _trained_by_default(exam, dtype) or _trained_in_eval(exam, dtype)
    return other or passed(f"{sentence}, and under other default dtypes")


def _inferred(exam: Exam) -> tuple[tuple[int, ...], ...]:
    if exam.asked.quick:
        exam.left_out["other shapes in the modes"] = None
        return (exam.plain,)
    return (exam.plain, *INFERRED[exam.kind])


def _under(default: str) -> str:
    return f"under torch.set_default_dtype(torch.{default})"


def _trained_by_default(exam: Exam, dtype: Dtype) -> Found | None:
    """What is wrong with the gradients where another dtype is the default, if something is."""
    given = exam.operands(dtype, exam.plain, "inference")
    plain = exam.gradients(given) if exam.lack(dtype) is None else None
    for default in () if plain is None else DEFAULTS:
        found = exam.gradients(given, default=default)
        if found is None:
            return hazard(f"{_under(default)} no gradient can be had", exam.plain)
        wrong = plain and _wrong_compiled(exam, given, plain[0], found[0], dtype)
        if wrong:
            return failed(f"{_under(default)} {wrong}", exam.plain)
    return None


def _trained_in_eval(exam: Exam, dtype: Dtype) -> Found | None:
    """What is wrong with the gradients of a module in eval mode, where adapters and inputs are trained too."""
    if exam.kind == "act_mul" or exam.lack(dtype) is not None:
        return None
    given = exam.operands(dtype, exam.plain, "inference")
    results, facts = exam.ask("evaluated", given)
    if "skipped" in facts:
        return None
    plain = exam.backward(given)[0]
    alone = results.pop("e:x", None)
    of_x = {name: plain[name] for name in ("y", "d:x")}
    of_cases = (("", plain, results), (", where x alone needs a gradient,", of_x, {"y": results["y"], "d:x": alone}))
    for where, right, each in of_cases:
        found = {name: value for name, value in each.items() if value is not None}
        missing = [name.removeprefix("d:") for name in right if name not in found]
        if missing:
            silent = f"there is no gradient for {' and '.join(missing)}: what is trained there stays as it is"
            return hazard(f"in eval mode{where} {silent}, without a word", exam.plain)
        wrong = _wrong_compiled(exam, given, right, found, dtype)
        if wrong:
            return failed(f"in eval mode{where} {wrong}", exam.plain)
    return None


def _another_function(exam: Exam, y: Tensor, plain: Tensor, mode: str, dtype: Dtype) -> str | None:
    """What is wrong with the function in a mode, in words: where bits differ, every gate value says which it is."""
    if bool(bounds.is_same(y, plain).all()) or exam.sweeps.diagnosis(dtype) is not None:
        return None
    found = exam.sweeps.diagnosis_in(mode, dtype)
    return None if found is None else f"it is another function: {found.sentence}"


def _one_by_one(exam: Exam, given: Tensors, over: dict[str, int | None], *, grad: bool) -> Tensors:
    """The values and gradients in fp64 of the calls that torch.vmap makes as one."""
    leaves = {name: given[name].double().requires_grad_(grad) for name in exam.names}
    first = {name: leaf if (axis := over.get(name)) is None else leaf.movedim(axis, 0) for name, leaf in leaves.items()}
    y = exam.compute(first).movedim(0, next(axis for axis in over.values() if axis is not None))
    if not grad:
        return {"y": y}
    grads = bounds.grads_for(y, tuple(leaves.values()), given["dy"].double())
    return {"y": y.detach()} | {f"d:{name}": value for name, value in zip(leaves, grads, strict=True)}


def vmapped(exam: Exam, dtype: Dtype) -> Found:
    """Under torch.vmap it gives the values and gradients of calls one by one, or refuses."""
    refused = []
    grad = exam.lack(dtype) is None
    for shape, over in MAPPED[exam.kind]:
        given = exam.operands(dtype, shape, "vmapped")
        mapped = next(axis for axis in over.values() if axis is not None)
        given |= {name: given[name].select(mapped, 0).clone() for name, axis in over.items() if axis is None}
        how = ", ".join(f"{name} over {'none' if axis is None else axis}" for name, axis in over.items())
        try:
            results, facts = exam.ask("vmapped", given, over=over, grad=grad)
        except RaisedError as raised:
            if raised.why == "memory":
                raise
            refused.append(f"{how}: {raised}")
            continue
        right = _one_by_one(exam, given, over, grad=grad)
        trained = [name for name in results if name.startswith("d:")]
        expected = right if trained else {"y": right["y"]}
        eager, _ = exam.ask_peer("eager", "vmapped", given, over=over, grad=grad)

        def errors(
            name: str, value: Tensor, eager: Tensors = eager, expected: Tensors = expected, given: Tensors = given
        ) -> tuple[Tensor, Tensor]:
            return excuses.beside_eager(exam, value, eager[name], expected[name], given, of=name, dtype=dtype)

        untrained = differs({"y": right["y"]}, {"y": results["p:y"]}, dtype, errors)
        wrong = _overwritten(facts["changed"]) or differs(expected, results, dtype, errors)
        wrong = wrong or (untrained and f"without gradients {untrained}")
        if wrong:
            return failed(f"under torch.vmap ({how}) {wrong}", exam.plain)
    exam.refused.clear()  # which the sentence has
    if len(refused) == len(MAPPED[exam.kind]):
        return passed(f"it refuses torch.vmap: {refused[0]}")
    return passed("right under torch.vmap" + f"; refused: {'; '.join(refused)}" * bool(refused))


CHECKS: Final = (
    Check(
        "inference",
        "calls in inference mode, in eval mode, with gradients on for nobody, and under other default dtypes",
        BOTH,
        inference,
        dtypes="each",
    ),
    Check("vmap", "calls under torch.vmap, where they are not refused", BOTH, vmapped, dtypes="each"),
    Check(
        "checkpoint",
        "gradients with checkpointing, reentrant and not, and of saved tensors that come back dense",
        BOTH,
        checkpointed,
        dtypes="each",
    ),
    *autocast.CHECKS,
    Check(
        "compile",
        "calls in torch.compile(fullgraph=True): two shapes, other dimensions, one row, other layouts; all trained too",
        BOTH,
        compiled,
        dtypes="each",
    ),
    Check("exactness", "a comparison for equality, compiled together with the target", BOTH, exactness),
)
