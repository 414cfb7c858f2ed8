"""Searches for faster configurations of the fused kernels on this card and stores them."""

from __future__ import annotations

import contextlib
import statistics
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from msgspec.structs import replace

from mlpfusion import backend
from mlpfusion.environment import machine, provenance
from mlpfusion.errors import MlpfusionError, UsageError, first_line
from mlpfusion.records.tuning import SCHEMA, Answer, LeftOut, Question, Tuning
from mlpfusion.stats import summarise
from mlpfusion.storage import files
from mlpfusion.storage.redacted import redacted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from mlpfusion.device import Device
    from mlpfusion.records.clocks import Samples
    from mlpfusion.spec import MLPSpec, Mode

FILE: Final = "file of tuned configurations"
LIMIT_S: Final = 600.0
# Of a search's time; the races after it need the rest.
COMPILING: Final = 0.7
SCREEN_ROUNDS: Final = 9
FINALISTS: Final = 5
FINAL_ROUNDS: Final = 20
# Fresh rounds for the winner alone: those that made it the winner flatter it.
CONFIRM_ROUNDS: Final = 40
# Each update of the kernels leaves what was found for those before; nobody may use them any more.
OTHER_KERNELS: Final = 4
# A search holds the lock while it writes one file.
LOCK_S: Final = 60.0


class Bench(Protocol):
    """What is measured for one question; `stages.tune.measure.Bench` on a GPU."""

    card: Any  # as the kernels' package describes it
    candidates: list[Any]  # the shipped configuration first

    def refusal(self, config: Any, *, heaviest: bool = False) -> str | None:
        """Why a configuration is left out, or None."""

    def race(self, configs: Sequence[Any], rounds: int) -> list[Samples]:
        """Interleaved samples of each configuration, in their order."""


class Found(NamedTuple):
    """An answer, and the configuration that is to be kept, if one is."""

    answer: Answer
    config: Any


# ---- what is asked ---------------------------------------------------------------------------------------------------


def questions(spec: MLPSpec, tokens: Sequence[int], mode: Mode, device: Device) -> list[Question]:
    """The searches for these numbers of tokens, each with the kernels that run for it in that mode on that device.

    Raises:
        UsageError: two numbers share a bucket, and with it an entry of the file.
    """
    import torch
    from mlpfusion_kernels.gate_up.choice import few_tokens
    from mlpfusion_kernels.gate_up.tuned import bucket

    few = few_tokens(device.capability or (0, 0), getattr(torch, spec.dtype))
    asked: list[Question] = []
    seen: dict[int, int] = {}
    for m in tokens:
        if bucket(m) in seen:
            raise UsageError(
                f"tokens {seen[bucket(m)]} and {m} share one configuration, that of {bucket(m) // 2 + 1} to "
                f"{bucket(m)}; give one of them"
            )
        seen[bucket(m)] = m
        forward: Any = "decode" if m <= few else "forward" if mode == "inference" else "training"
        asked += [
            Question(
                direction=direction,
                tokens=m,
                hidden_size=spec.hidden_size,
                intermediate_size=spec.intermediate_size,
                dtype=spec.dtype,
                activation=spec.activation,
            )
            for direction in ((forward,) if mode == "inference" else (forward, "backward"))
        ]
    return asked


def check_device(spec: MLPSpec, device: Device) -> None:
    """Raise a UsageError where the fused kernels do not run, or run in Triton's interpreter."""
    if device.kind != "cuda":
        raise UsageError("tune times kernels on a GPU; this run is on the CPU")
    if device.interpreted:
        raise UsageError("tune times kernels on a GPU, not in Triton's interpreter; unset TRITON_INTERPRET")
    reason = backend.load("fused").unsupported(spec, device)
    if reason is not None:
        raise UsageError(f"the fused kernels do not run here: {reason}")


def check_file() -> Path:
    """The file that results go to; its folder is made.

    Raises:
        UsageError: no file can be there, or another one is, which would be lost, or the system has no locks.
        MlpfusionError: another process does not give the lock back.
    """
    from mlpfusion_kernels.gate_up.tuned import cache_file

    path = cache_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{FILE} {str(path)!r}: its directory cannot be made: {error.strerror}") from None
    files.check_file(FILE, path)
    with _alone(path):
        _entries(path)
    return path


# ---- the search ------------------------------------------------------------------------------------------------------


def search(
    asked: Sequence[Question],
    device: Device,
    path: Path,
    *,
    limit_s: float = LIMIT_S,
    on_event: Callable[[str], None] = lambda text: None,
    bench: Callable[[Question, Device], Bench] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[Answer]:
    """One answer after the other; what is to be kept is in the file, and in use, before its answer is given.

    About `limit_s` seconds are shared among the questions; a candidate for which there is no time is not tried. A
    search that fails, for whatever reason, has an answer that says so, and the next one goes on.

    Raises:
        MlpfusionError: what was found could not be written; its answer, which says so, was given before.
    """
    make = bench or _bench
    end = now() + limit_s
    for place, question in enumerate(asked):
        until = now() + max(0.0, end - now()) / (len(asked) - place)
        on_event(f"{place + 1} of {len(asked)}: {question.direction}, {question.tokens} tokens")
        try:
            found, card = _asked(question, make(question, device), until=until, on_event=on_event, now=now)
        except Exception as error:  # whatever a compiler or a driver may raise; memory, say, may do for the next one
            yield Answer(question=question, shipped="", reason=_reason(error))
            continue
        try:
            keep(path, found, card)
        except MlpfusionError as error:
            yield replace(found.answer, kept=False, reason=f"not saved: {_reason(error)}")
            raise
        yield found.answer


def _asked(question: Question, bench: Bench, **options: Any) -> tuple[Found, Any]:
    """What was found, and the card; nothing holds the bench's memory afterwards."""
    return answer(question, bench, **options), bench.card


def _reason(error: Exception) -> str:
    if isinstance(error, MlpfusionError):
        return " ".join(str(error).split())
    return f"{type(error).__name__}: {first_line(error)}"


def _bench(question: Question, device: Device) -> Bench:
    from mlpfusion.stages.tune import measure  # torch

    return measure.Bench(question, device)


def answer(
    question: Question,
    bench: Bench,
    *,
    until: float,
    on_event: Callable[[str], None] = lambda text: None,
    now: Callable[[], float] = time.monotonic,
) -> Found:
    """The fastest right configuration, if it is faster than the shipped one beyond the noise.

    Raises:
        MeasurementError: the device answers no more.
    """
    shipped, *others = bench.candidates
    stop = now() + COMPILING * (until - now())
    good, left_out = [shipped], list[LeftOut]()
    untried = 0
    for place, config in enumerate(others):
        if now() >= stop:
            untried = len(others) - place
            break
        reason = bench.refusal(config)
        if reason is None:
            good.append(config)
        else:
            left_out.append(LeftOut(config=describe(config), reason=reason))
            on_event(f"left out: {describe(config)}: {reason}")
    on_event(f"{len(good)} of {len(bench.candidates)} configurations are raced")
    best = _winner(bench, good)
    names = [describe(shipped), None if best == shipped else describe(best)]
    series = bench.race([shipped] if best == shipped else [shipped, best], CONFIRM_ROUNDS)
    base = summarise(series[0])
    clock = None if best == shipped else summarise(series[1], series[0])
    ratio = None if clock is None else clock.ratio_to_eager
    kept = ratio is not None and ratio.high < 1
    told = Answer(
        question=question,
        shipped=str(names[0]),
        best=names[1],
        kept=kept,
        shipped_us=base,
        best_us=clock,
        ratio=ratio,
        candidates=len(bench.candidates),
        left_out=tuple(left_out),
        untried=untried,
    )
    return Found(told, best if kept else None)


def _winner(bench: Bench, good: list[Any]) -> Any:
    """The fastest of the configurations that holds for every activation, the first of them without asking."""
    from mlpfusion_kernels.gate_up.search import crossed

    shipped = good[0]
    if len(good) == 1:
        return shipped
    ranked = _ranked(bench, good, SCREEN_ROUNDS)
    finalists = [config for config in ranked if config != shipped][:FINALISTS]
    extra = crossed(ranked)
    if extra is not None and extra not in good and bench.refusal(extra) is None:
        finalists.append(extra)
    for config in _ranked(bench, [shipped, *finalists], FINAL_ROUNDS):
        if config == shipped or bench.refusal(config, heaviest=True) is None:
            return config
    return shipped


def _ranked(bench: Bench, configs: list[Any], rounds: int) -> list[Any]:
    """The configurations by their medians, the fastest first."""
    medians = [
        statistics.median(value for value in series.values if value is not None)
        for series in bench.race(configs, rounds)
    ]
    return [config for _, _, config in sorted(zip(medians, range(len(configs)), configs, strict=True))]


def describe(config: Any) -> str:
    """A configuration in one line: its tile as tokens x columns x step, and the rest by name."""
    if hasattr(config, "gate_up"):
        parts = [f"gate_up {_stream(config.gate_up)}"]
        parts.append("down by cuBLAS" if config.down is None else f"down {_stream(config.down)}")
        return ", ".join(parts)
    tile = f"{config.form} {config.block_m}x{config.block_n}x{config.block_k}"
    rest = ((name, getattr(config, name)) for name in ("parts", "warps", "stages", "resident", "group"))
    return " ".join((tile, *(f"{name} {value}" for name, value in rest if value)))


def _stream(tile: Any) -> str:
    return f"{tile.rows}x{tile.columns} stages {tile.stages} warps {tile.warps}"


# ---- the file --------------------------------------------------------------------------------------------------------


def keep(path: Path, found: Found, card: Any) -> None:
    """Write the file with the new result of this question in place of the old; the rest stays.

    Where the shipped configuration won, there is nothing of this question in it afterwards. What other kernels have for
    the question stays as well, the OTHER_KERNELS newest; what is damaged goes. Several processes may do so at once.

    Raises:
        UsageError: meanwhile another file has come there.
        MlpfusionError: the disk refused, or another process does not give the lock back.
    """
    from mlpfusion_kernels import reload_tuned
    from mlpfusion_kernels.gate_up import tuned

    ask, version = found.answer.question, tuned.kernels_version()
    sizes = (tuned.bucket(ask.tokens), ask.hidden_size, ask.intermediate_size)
    key = tuned.Key(card.name, card.capability, ask.dtype, ask.direction, *sizes)
    asked = {**key._asdict(), "capability": [*key.capability]}
    with _alone(path):
        before = _entries(path)
        whole: list[Any] = [one for one in before if _is_whole(one)]
        same = [one for one in whole if {name: one.get(name) for name in asked} == asked]
        others = [one for one in same if one.get("kernels") != version][-OTHER_KERNELS:]
        after = [one for one in whole if one not in same or one in others]
        if found.config is not None:
            entry = tuned.entry_to_json(tuned.Entry(key, version, found.config))
            after.append({**entry, "found": _provenance(found.answer)})
        if after != before:
            files.write_whole(FILE, path, tuned.document_of(after))
    reload_tuned()


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the file's lock, so that no other process changes it between a look at it and the write that follows.

    It is one of the system on an empty file beside, which stays: what a process held is free once that has ended,
    however it ended. Systems that are not POSIX have no such lock, and are refused.
    """
    try:
        import fcntl
    except ImportError:
        raise UsageError(f"{FILE} {str(path)!r}: no POSIX locks here, without which it is not kept") from None
    target = path.resolve()  # a link and what it leads to have one lock
    lock = target.with_name(f"{target.name}.lock")
    end = time.monotonic() + LOCK_S
    with contextlib.ExitStack() as opened:
        try:
            held = opened.enter_context(lock.open("ab"))
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if time.monotonic() >= end:
                    raise MlpfusionError(f"{FILE} {str(path)!r}: another process holds {str(lock)!r}")
                time.sleep(0.02)
        except OSError as error:
            raise MlpfusionError(f"{FILE} {str(path)!r}: cannot lock {str(lock)!r}: {error.strerror}") from None
        yield


def _is_whole(raw: object) -> bool:
    """Whether these are all the fields of an entry, of these kernels or others, as they were written."""
    from mlpfusion_kernels.gate_up.tuned import digest

    try:
        return isinstance(raw, dict) and raw.get("digest") == digest(raw)
    except RecursionError:
        return False


def _entries(path: Path) -> list[object]:
    from mlpfusion_kernels.gate_up.tuned import parse, read

    try:
        data = read(path)
        return parse(data) if data else []
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UsageError(f"{FILE} {str(path)!r} is none: {error}; move it away or delete it") from None


def _provenance(told: Answer) -> dict[str, Any]:
    """For a reader of the file: how the configuration came there. No call looks at it."""
    ratio = told.ratio
    return {
        "at": machine.now(),
        "tokens": told.question.tokens,
        "activation": told.question.activation,
        "instead_of": told.shipped,
        "time_ratio": None if ratio is None else [ratio.median, ratio.low, ratio.high],
        "rounds": None if ratio is None else ratio.n,
    }


def record(answers: Iterable[Answer], device: Device, path: Path) -> Tuning:
    """The answers with where and when they were found."""
    made = Tuning(
        schema=SCHEMA,
        kind="tuning",
        created=machine.now(),
        device=device,
        environment=machine.collect(device, provenance.behind(["fused"])),
        file=str(path),
        answers=tuple(answers),
    )
    return redacted(made)
