"""Runs a validation: one verdict for each target."""

from __future__ import annotations

import itertools
import math
import re
import time
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from mlpfusion import device as devices
from mlpfusion import limits
from mlpfusion.environment import machine, provenance
from mlpfusion.errors import MlpfusionError, StoppedError, UnsavedError, UsageError
from mlpfusion.records.validation import SCHEMA, SelfTest, Validation
from mlpfusion.spec import parse_activation, parse_dtype
from mlpfusion.stages.validate.channel import BASELINES
from mlpfusion.stages.validate.judge import bounds, examine, sanitizer
from mlpfusion.stages.validate.judge import self_test as self_test_judge
from mlpfusion.stages.validate.judge.checks import mlp, registry, values
from mlpfusion.stages.validate.judge.exam import Asked
from mlpfusion.stages.validate.judge.worker_handle import DiedError, RaisedError
from mlpfusion.stages.validate.progress import Step, silent
from mlpfusion.storage import files, private, results
from mlpfusion.workers import interrupts

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from mlpfusion.device import Device
    from mlpfusion.records.validation import Control, Judged, Verdict
    from mlpfusion.spec import Activation, Dtype
    from mlpfusion.stages.validate.judge.examine import Tell

_Wanted = TypeVar("_Wanted")
_Found = TypeVar("_Found")


def validate(
    targets: Sequence[str],
    *,
    activation: str | None = None,
    dtypes: Sequence[str] | None = None,
    shapes: Sequence[tuple[int, ...]] | None = None,
    device: str | None = None,
    against: Sequence[str] = BASELINES,
    only: Sequence[str] | None = None,
    seed: int | None = None,
    time_limit_s: float = 600.0,
    rounds: int = 60,
    quick: bool = False,
    sanitize: bool = False,
    json: str | os.PathLike[str] | None = None,
    on_event: Tell = silent,
) -> Validation:
    """Judge each target against fp64, and compare it with its baselines.

    A target is the text `file.py:name`, `module:name`, a registered backend or the directory of a Hub kernel. The
    activation is gelu_tanh unless it is given; what a directory holds is taken for the function that it turns out to
    be. Without `dtypes` a target may refuse any of the three, and without `shapes` any shape. `shapes` are those of
    gate (act·mul) or of the rows of x (MLP). `only` names checks. `json` is written at the end, and Inductor's code
    beside it. `quick` judges one shape of each kind, without the checks that take long to start. `on_event` is told of
    each check as it begins and as it is over. `sanitize` runs each target once under compute-sanitizer as well.

    Raises:
        UsageError: a bad value, `sanitize` without a GPU or that program, or no target among those that are named. One
            that is none is a verdict of its own beside others.
        UnsavedError: the disk refused `json`; it carries what was found.
        StoppedError: Ctrl-C, after a verdict; it carries those that were reached, which are in `json` too.
    """
    here = msgspec.structs.replace(devices.detect(device), interpreted=False)
    asked = Asked(
        dtypes=None if dtypes is None else _dtypes(dtypes),
        shapes=None if shapes is None else _shapes(shapes),
        only=None if only is None else registry.check_names(_names("only", only)),
        against=_peers(against),
        time_limit_s=limits.seconds("time_limit_s", time_limit_s),
        rounds=limits.whole("rounds", rounds, limits.ROUNDS),
        quick=quick,
        sanitizer=sanitizer.check(here.kind) if sanitize else None,
    )
    named = _targets(targets)
    _check_memory(asked.shapes or (), here)
    path = None if json is None else results.check_file(Path(json), kind="validation")
    sources = _Sources(path)
    used = examine.new_seed() if seed is None else limits.whole("seed", seed, limits.SEED)
    wanted = None if activation is None else parse_activation(activation)
    with interrupts.stoppable(), examine.Bench(here.kind) as bench:
        orders = examine.expand(bench, named, wanted, time_limit_s=time_limit_s, only=asked.only)
        _check_peers(bench, asked, wanted or examine.DEFAULT)
        verdicts = _until_stopped(
            orders,
            lambda order: examine.examine(
                bench,
                order,
                asked,
                seed=used,
                sources=sources.keep,
                tell=on_event,
            ),
        )
    left = [order.target for order in orders[len(verdicts) :]]
    found = assembled(verdicts, here, used, left)
    _save(found, path, sources.texts)
    if left:
        raise StoppedError(_left(len(verdicts), left, path), found)
    return found


def _until_stopped(wanted: Iterable[_Wanted], judge: Callable[[_Wanted], _Found]) -> list[_Found]:
    """What `judge` gives of each, up to an interrupt; one that comes before anything is finished is passed on."""
    found: list[_Found] = []
    try:
        for each in wanted:
            found.append(judge(each))
    except KeyboardInterrupt:
        if not found:
            raise
    return found


def _left(finished: int, left: Sequence[str], path: Path | None) -> str:
    """What an interrupt left, in words."""
    saved = f" and in {str(path)!r}" if path is not None else ""
    return f"{finished} of {finished + len(left)} judged{saved}; not judged: {', '.join(left)}"


def assembled(verdicts: Sequence[Verdict], here: Device, seed: int, not_judged: Sequence[str] = ()) -> Validation:
    """Verdicts with where and when they were reached, and with what. An interrupt came before those `not_judged`."""
    behind = [name for each in verdicts for name in (each.target, *(peer.name for peer in each.peers))]
    return Validation(
        schema=SCHEMA,
        kind="validation",
        mlpfusion=metadata.version("mlpfusion"),
        created=machine.now(),
        seed=seed,
        device=here,
        environment=machine.collect(here, provenance.of_targets(behind)),
        verdicts=tuple(verdicts),
        not_judged=tuple(not_judged),
        bounds=_bounds(),
    )


def _bounds() -> dict[str, float]:
    """What values are held to, by name: two validations may differ because these do."""
    of_mlps = {f"mlp_error_to_eager_{dtype}": most for dtype, most in mlp.MOST.items()}
    return {"score": bounds.LIMIT, "bias_ulp": values.MOST_BIAS_ULP, **of_mlps}


def _names(what: str, names: Sequence[str]) -> tuple[str, ...]:
    """Several texts; a single one would be taken for its letters."""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{what} must be a list of texts, got {names!r}")
    return tuple(names)


def _targets(names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        raise UsageError("no target is given; name one as file.py:name, module:name, a backend or a directory")
    return _names("targets", names)


def _peers(names: Sequence[str]) -> tuple[str, ...]:
    for name in _names("against", names):
        examine.check_public(name)
    return tuple(names)


def _check_peers(bench: examine.Bench, asked: Asked, activation: Activation) -> None:
    """Refuse a baseline that is no target; its other failures are reported beside the verdict."""
    for peer in asked.against:
        if peer in BASELINES:
            continue
        try:
            bench.peers.load(peer, activation, time_limit_s=asked.time_limit_s)
        except RaisedError as error:
            if error.exception == "several":
                raise UsageError(
                    f"baseline {peer!r} is a directory with several targets: {error.text.replace(chr(10), ', ')}"
                ) from None
            if error.why == "misused":
                valid = ", ".join((*BASELINES, "a target"))
                raise UsageError(f"unknown baseline {peer!r}; valid: {valid}. {error.text}") from None
        except DiedError:
            continue


def _dtypes(names: Sequence[str]) -> tuple[Dtype, ...]:
    if not names:
        raise UsageError("dtypes must name at least one; valid: bfloat16, float16, float32")
    if isinstance(names, str):
        raise UsageError(f"dtypes must be a list such as ['bfloat16', 'float32'], got {names!r}")
    return tuple(parse_dtype(name) for name in names)


def _shapes(shapes: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    for shape in shapes:
        if not isinstance(shape, list | tuple):
            raise UsageError(f"shapes must be a list of shapes such as [(7, 127), (64,)], got {shapes!r}")
        for size in shape:
            limits.whole("a size of shapes", size, limits.SHAPE)
        if math.prod(shape) > limits.SHAPE.most:
            raise UsageError(
                f"shape {'x'.join(map(str, shape))} has {math.prod(shape)} elements; the judge, which computes in "
                f"fp64, takes {limits.SHAPE.most} at most"
            )
    if not shapes:
        raise UsageError("shapes must hold at least one, such as (7, 127)")
    return tuple(tuple(shape) for shape in shapes)


def _check_memory(shapes: Sequence[tuple[int, ...]], here: Device) -> None:
    """Refuse a shape before it is allocated: gate, up and the result in fp64, and once more in the worker."""
    for shape in shapes:
        needed = 2 * 3 * 8 * math.prod(shape)
        if here.free_bytes is not None and needed > here.free_bytes:
            raise UsageError(
                f"shape {'x'.join(map(str, shape))} needs about {needed / 1e9:.1f} GB; {here.name} has "
                f"{here.free_bytes / 1e9:.1f} GB free"
            )


class _Sources:
    """What Inductor generated for each target, to be kept beside the result file; without one it is kept nowhere."""

    def __init__(self, beside: Path | None) -> None:
        self.beside = beside
        self.texts: dict[Path, str] = {}

    def keep(self, target: str, text: str) -> str | None:
        """The name of the file that `text` will be in, one for each target."""
        if self.beside is None or not text:
            return None
        name = re.sub(r"[^A-Za-z0-9]+", "_", target.rpartition("/")[2]).strip("_")
        names = (f"{self.beside.stem}.{name}{number or ''}.inductor.txt" for number in itertools.count())
        path = next(path for each in names if (path := self.beside.with_name(each)) not in self.texts)
        self.texts[path] = text
        return path.name


def _save(found: Validation | SelfTest, path: Path | None, sources: Mapping[Path, str]) -> None:
    """Write a result, if there is a file for it, and the sources; none of those is left if not all can be written.

    Raises:
        UnsavedError: the disk refused; it carries `found`.
    """
    if path is None:
        return
    new = [each for each in sources if not each.exists()]
    try:
        for each, text in sources.items():
            files.write_whole("source file", each, private.text(text).encode())  # it names where it was kept
        results.save(found, path)
    except MlpfusionError as error:
        for each in new:
            each.unlink(missing_ok=True)
        raise UnsavedError(str(error), found) from error


def self_test(
    *,
    device: str | None = None,
    seed: int | None = None,
    json: str | os.PathLike[str] | None = None,
    on_event: Tell = silent,
) -> SelfTest:
    """Judge every control that ships with this package and can run here.

    Raises:
        UsageError: a bad device or file.
        MlpfusionError: the controls are not there.
        UnsavedError: as of `validate`.
        StoppedError: as of `validate`.
    """
    here = msgspec.structs.replace(devices.detect(device), interpreted=False)
    path = None if json is None else results.check_file(Path(json), kind="self-test")
    used = examine.new_seed() if seed is None else limits.whole("seed", seed, limits.SEED)
    started = time.monotonic()
    controls = self_test_judge.controls()
    with interrupts.stoppable(), examine.Bench(here.kind) as bench:

        def judge(control: Control) -> Judged:
            step = Step(control.name, control.target, controls.index(control) + 1, len(controls))
            on_event(step)
            one = self_test_judge.judge(bench, control, seed=used, tell=silent)
            on_event(step._replace(found=one.skipped or one.wrong or "as it should be"))
            return one

        judged = _until_stopped(controls, judge)
    left = [control.name for control in controls[len(judged) :]]
    found = SelfTest(
        schema=SCHEMA,
        kind="self-test",
        mlpfusion=metadata.version("mlpfusion"),
        created=machine.now(),
        seed=used,
        seconds=round(time.monotonic() - started, 1),
        device=here,
        environment=machine.collect(here, provenance.of_targets(BASELINES)),
        judged=tuple(judged),
        not_judged=tuple(left),
    )
    _save(found, path, {})
    if left:
        raise StoppedError(_left(len(judged), left, path), found)
    return found
