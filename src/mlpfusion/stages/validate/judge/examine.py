"""Validates targets one after the other: starts workers, carries out the checks, reaches a verdict."""

from __future__ import annotations

import secrets
import shlex
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from mlpfusion.errors import UsageError
from mlpfusion.records.validation import Checked, Peer, Verdict
from mlpfusion.spec import DTYPES
from mlpfusion.stages.validate import hints
from mlpfusion.stages.validate.judge import baselines, consequences, sanitizer
from mlpfusion.stages.validate.judge.checks import timing
from mlpfusion.stages.validate.judge.checks.authorship import NOT_ITS_OWN
from mlpfusion.stages.validate.judge.checks.check import carry_out, told
from mlpfusion.stages.validate.judge.checks.registry import DECISIVE, TRAINING, check_kinds, selected
from mlpfusion.stages.validate.judge.exam import SIZES, Asked, Exam, failed, undecided
from mlpfusion.stages.validate.judge.worker_handle import DiedError, Hired, RaisedError, UndecidableError
from mlpfusion.stages.validate.progress import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mlpfusion.device import DeviceKind
    from mlpfusion.records.validation import Kind, Word
    from mlpfusion.spec import Activation, Dtype
    from mlpfusion.stages.validate.channel import Loaded
    from mlpfusion.stages.validate.judge.checks.check import Check

    Tell = Callable[[Step], None]

DEFAULT: Final[Activation] = "gelu_tanh"
AFTER_TIMING: Final = timing.CHECKS[0].name  # the check makes such calls itself; each race is judged like it


class Bench:
    """Two warm workers, one for targets and one for baselines, shared by all targets until one misbehaves."""

    def __init__(self, device: DeviceKind) -> None:
        self.device = device
        self._threads = torch.get_num_threads()
        self._scratch = tempfile.TemporaryDirectory(prefix="mlpfusion-")
        self.folder = Path(self._scratch.name)
        self.worker = Hired(self.folder, device, "worker")
        self.peers = Hired(self.folder, device, "peers")

    def __enter__(self) -> Bench:
        # The judge's tensors are small: a second thread waits longer for the worker's core than it helps.
        torch.set_num_threads(1)
        return self

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self._threads)
        self.worker.retire()
        self.peers.retire()
        self._scratch.cleanup()


class Order(NamedTuple):
    """One target to be judged; without an activation, the one that it turns out to be.

    `refused` is why its text is no target, which is its verdict.
    """

    target: str
    activation: Activation | None
    refused: str | None = None


def new_seed() -> int:
    """A seed that no target can know: inputs are made from it at run time."""
    return secrets.randbelow(2**32)


def expand(
    bench: Bench,
    targets: Sequence[str],
    activation: Activation | None,
    *,
    time_limit_s: float,
    only: tuple[str, ...] | None = None,
) -> list[Order]:
    """Every target, a Hub directory as its functions and layers. One that is none keeps the others from nothing.

    Raises:
        UsageError: no text names a target, or one that none of the checks in `only` is for; the message says what is
            valid.
    """
    orders, refused = [], []
    kinds: dict[str, Kind | None] = dict.fromkeys(targets)
    for target in targets:
        try:
            check_public(target)
            kinds[target] = bench.worker.load(target, activation or DEFAULT, time_limit_s=time_limit_s).kind
        except DiedError:
            pass  # its verdict will say so
        except (RaisedError, UsageError) as error:
            text = error.text if isinstance(error, RaisedError) else str(error)
            is_misused = isinstance(error, UsageError) or error.why == "misused"
            if is_misused and isinstance(error, RaisedError) and error.exception == "several":
                orders += [Order(f"{target}:{name}", activation) for name in text.split("\n")]
                continue
            if is_misused:
                refused.append(text)
                orders.append(Order(target, activation, refused[-1]))
                kinds.pop(target, None)
                continue
        orders.append(Order(target, activation or DEFAULT))
    if not kinds:
        raise UsageError(refused[0])
    check_kinds(kinds, only or ())
    return orders


def check_public(name: str) -> None:
    """Refuse a name by which only the judge asks a worker for a baseline."""
    if name.startswith("@"):
        raise UsageError(f"unknown target {name!r}; no file, module or backend has a name that begins with @")


def examine(
    bench: Bench,
    order: Order,
    asked: Asked,
    *,
    seed: int,
    sources: Callable[[str, str], str | None],
    tell: Tell,
) -> Verdict:
    """The verdict on one target."""
    started = time.monotonic()
    activation = order.activation or DEFAULT
    if order.refused is not None:
        return _unloadable(order, activation, f"it is no target: {order.refused}", device=bench.device, seed=seed)
    try:
        loaded = bench.worker.load(order.target, activation, time_limit_s=asked.time_limit_s)
    except (RaisedError, DiedError) as error:
        return _unloadable(order, activation, f"cannot be loaded: {error}", device=bench.device, seed=seed)
    exam = _exam(bench, order.target, activation, loaded, asked=asked, seed=seed)
    if order.activation is None:
        activation = _identify(exam) or activation
        exam = _exam(bench, order.target, activation, loaded, asked=asked, seed=seed)
    checks = consequences.told([*_carry_out_all(exam, tell), *_sanitized(exam, tell)])
    word, headline = conclude(checks, loaded, only=asked.only)
    headline += _hint(order.target, exam, checks)
    verdict = Verdict(
        target=order.target,
        kind=loaded.kind,
        activation=activation,
        word=word,
        headline=headline,
        checks=checks,
        configurations=exam.configurations,
        left_out=tuple(exam.left_out),
    )
    if asked.against and exam.dtypes and word != "not valid":
        tell(Step(order.target, f"against {', '.join(asked.against)}", 1, 1))
        verdict = _compared(verdict, exam, bench.folder, sources)
    return _timed(verdict, started)


def _hint(target: str, exam: Exam, checks: Sequence[Checked]) -> str:
    """How to wrap an MLP function that runs in no dtype because it has its weights the other way round."""
    runs = [check for check in checks if check.name == "runs"]
    if exam.kind != "mlp" or not runs or any(check.status == "pass" for check in runs):
        return ""
    hint = hints.of_refusal(target.rpartition(":")[2], runs[0].sentence)
    return "" if hint is None else f"; {hint}"


def _exam(bench: Bench, target: str, activation: Activation, loaded: Loaded, *, asked: Asked, seed: int) -> Exam:
    return Exam(
        target,
        activation,
        loaded,
        bench.worker,
        bench.peers,
        dtypes=asked.dtypes or DTYPES,
        asked=asked,
        seed=seed,
        device=bench.device,
    )


def _timed(verdict: Verdict, started: float) -> Verdict:
    from msgspec.structs import replace

    return replace(verdict, seconds=round(time.monotonic() - started, 2))


def _compared(verdict: Verdict, exam: Exam, folder: Path, sources: Callable[[str, str], str | None]) -> Verdict:
    from msgspec.structs import replace

    try:
        scores, kernels = baselines.own(exam, folder)
    except DiedError as error:
        return replace(verdict, word="not valid", headline=f"against: {error}")
    found = baselines.peers(exam, folder, sources)
    mine = Peer(name="this target", scores=scores, kernels=kernels)
    return _rejudged(replace(verdict, peers=(mine, *found), kernels=kernels), exam)


def _sanitized(exam: Exam, tell: Tell) -> Iterator[Checked]:
    """What compute-sanitizer's tools say of one call each, if that is asked, in the first dtype that is taken."""
    program = exam.asked.sanitizer
    if program is None or not exam.dtypes:
        return
    dtype = exam.dtypes[0]
    for number, tool in enumerate(sanitizer.TOOLS, 1):
        step = Step(exam.target, f"{tool} {dtype}", number, len(sanitizer.TOOLS))
        tell(step)
        command = sanitizer.command(program, tool, exam.target, activation=exam.activation, dtype=dtype, seed=exam.seed)
        try:
            found = sanitizer.judged(tool, sanitizer.run(command, time_limit_s=exam.asked.time_limit_s))
        except TimeoutError as error:
            found = undecided(f"{tool}: {error}")
        tell(step._replace(found=found.status))
        yield Checked(
            name=tool,
            looked_at="one call under compute-sanitizer",
            status=found.status,
            sentence=found.sentence,
            repro=_again(exam, dtype, "--sanitize"),
            dtype=dtype,
        )


def _again(exam: Exam, dtype: Dtype | None, option: str) -> str:
    """A command that finds again what is no check of the registry."""
    return f"{exam.repro('runs', dtype, None).partition(' --only ')[0]} {option} --seed {exam.seed}"


def _rejudged(verdict: Verdict, exam: Exam) -> Verdict:
    """The verdict with what the races have shown of the values: a target may give others after so many calls."""
    from msgspec.structs import replace

    if not exam.after_timing:
        return verdict
    found = next((each for each in exam.after_timing if each.status == "fail"), exam.after_timing[-1])
    checked = Checked(
        name=AFTER_TIMING,
        looked_at="the last timed result, and one on new values after it",
        status=found.status,
        sentence=found.sentence,
        repro=_again(exam, None, f"--against {','.join(exam.asked.against)}"),
        shape=found.shape,
    )
    verdict = replace(verdict, checks=(*verdict.checks, checked))
    return verdict if found.status == "pass" else replace(verdict, word="not valid", headline=_said(checked))


def _unloadable(order: Order, activation: Activation, sentence: str, *, device: DeviceKind, seed: int) -> Verdict:
    checked = Checked(
        name="loads",
        looked_at="the import of the target",
        status="fail",
        sentence=sentence,
        repro=f"mlpfusion validate {shlex.quote(order.target)} --device {device} --seed {seed}",
    )
    return Verdict(
        target=order.target,
        kind=None,
        activation=activation,
        word="not valid",
        headline=f"loads: {sentence}",
        checks=(checked,),
    )


def _identify(exam: Exam) -> Activation | None:
    """The one function that all gate values agree with, or None."""
    for dtype in ("float32", "bfloat16", "float16"):
        try:
            fitting = exam.sweeps.fitting(dtype)
        except (RaisedError, DiedError, UndecidableError):
            continue
        return fitting[0] if len(fitting) == 1 else None
    return None


def _carry_out_all(exam: Exam, tell: Tell) -> Iterator[Checked]:
    """Every check in every dtype that it is for; a dtype that the target refuses is judged no further."""
    chosen = selected(exam.kind, exam.asked.only, quick=exam.asked.quick)
    left = [check.name for check in selected(exam.kind, exam.asked.only) if check not in chosen]
    exam.left_out |= dict.fromkeys(f"check {name}" for name in left)
    for number, check in enumerate(chosen, 1):
        for dtype in check.asked_in(exam):
            step = Step(exam.target, f"{check.name} {dtype}", number, len(chosen))
            tell(step)
            try:
                checked = _carried_out(check, exam, dtype)
            except DiedError as error:
                tell(step._replace(found=f"fail: {error}"))
                yield told(check, exam, dtype, failed(str(error)))
                return
            if check.name == "runs" and _is_refused(checked) and exam.kind == "mlp" and exam.sizes != SIZES[-1]:
                exam.sizes = SIZES[-1]  # for this dtype and all that follow
                checked = _carried_out(check, exam, dtype)
            tell(step._replace(found="hazard" if checked.hazard else checked.status))
            yield checked
            if exam.asked.until_failure and checked.status == "fail":
                return
            if check.name == "runs" and checked.status != "pass":
                exam.dtypes = tuple(each for each in exam.dtypes if each != dtype)


def _carried_out(check: Check, exam: Exam, dtype: Dtype) -> Checked:
    """The result of one check with the sizes that it was reached for, and the shapes that it was not."""
    from msgspec.structs import replace

    exam.largest.clear()
    exam.refused.clear()
    checked = carry_out(check, exam, dtype)
    return replace(checked, largest=dict(exam.largest) if check.judges_values else {}, refused=tuple(exam.refused))


def _is_refused(checked: Checked) -> bool:
    return checked.status == "reported" or (checked.status == "fail" and "raises" in checked.sentence)


def conclude(checks: Sequence[Checked], loaded: Loaded, *, only: tuple[str, ...] | None) -> tuple[Word, str]:
    """The verdict's word and the sentence that decided it: of the first check that failed, or of the hazards."""
    failures = [check for check in checks if check.status == "fail"]
    if failures:
        return "not valid", _said(failures[0])
    runs = [check for check in checks if check.name == "runs"]
    if runs and all(check.status != "pass" for check in runs):
        return "not decidable here", f"no dtype can be judged: {runs[0].sentence}"
    asked = [check for check in checks if check.name != "runs"]
    if only is not None and not asked:
        return "not decidable here", _unasked(runs, loaded, only)
    decisive = [check for check in checks if check.name == DECISIVE[loaded.kind]]
    if only is None and not any(check.status == "pass" for check in decisive):
        return "not decidable here", _said((decisive or list(checks))[0])
    differentiable = [check for check in checks if check.name == "differentiable"]
    forward_only = bool(differentiable) and all(check.status == "reported" for check in differentiable)
    training = [check for check in checks if check.name == TRAINING[loaded.kind]]
    if only is None and not forward_only and not any(check.status == "pass" for check in training):
        return "not decidable here", _said((training or differentiable or list(checks))[0])
    hazards = [check for check in checks if check.hazard]
    if hazards:
        said = "; ".join(_said(check) for check in hazards)
        return "valid with hazards", said + _not_its_own(checks) + _excused(checks)
    if only is not None and all(check.status != "pass" for check in asked):
        return "not decidable here", _said(asked[-1])
    return "valid", "every check passed" + "; forward only" * forward_only + _not_its_own(checks) + _excused(checks)


def _not_its_own(checks: Sequence[Checked]) -> str:
    """That a target which has kernels was computed without them, as a part of the headline."""
    told = (check.sentence for check in checks if check.name == "own-kernel" and check.figures.get("kernels"))
    return next((f"; {sentence}" for sentence in told if sentence.startswith(NOT_ITS_OWN)), "")


def _excused(checks: Sequence[Checked]) -> str:
    """What is excused in all checks, most first, as a part of the headline."""
    counts: dict[str, int] = {}
    for check in checks:
        count = int(check.figures.get("excused") or 0)
        counts[check.name] = max(counts.get(check.name, 0), count)
    taken = sorted((name for name, count in counts.items() if count), key=lambda name: -counts[name])
    named = ", ".join(f"{name} {counts[name]}" for name in taken)
    return f"; excused, since eager's own values are as wrong here: {named}" if taken else ""


def _unasked(runs: Sequence[Checked], loaded: Loaded, only: tuple[str, ...]) -> str:
    """Why nothing was judged although the target runs."""
    if set(only) == {"runs"}:
        return "it runs; none of the deciding checks was requested"
    if any(check.name != "runs" for check in selected(loaded.kind, only)):
        taken = [check.dtype for check in runs if check.status == "pass" and check.dtype]
        return f"none of the requested checks is for {' or '.join(taken)}"
    return f"none of the requested checks is for {loaded.described}"


def _said(check: Checked) -> str:
    where = f" ({check.dtype})" if check.dtype else ""
    return f"{check.name}{where}: {check.sentence}"
