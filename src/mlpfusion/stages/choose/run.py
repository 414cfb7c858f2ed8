"""Makes a choice: measures every backend on a model's MLP at several token counts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from mlpfusion import backend as registry
from mlpfusion import device as devices
from mlpfusion import limits, spec
from mlpfusion.environment import conditions, provenance
from mlpfusion.errors import UsageError
from mlpfusion.models import known
from mlpfusion.records.choice import SCHEMA, Choice, ClockName, Model, Plan
from mlpfusion.stages.choose import decide, rows
from mlpfusion.stages.choose.eta import TimeLeft
from mlpfusion.stages.profile import run
from mlpfusion.storage import results
from mlpfusion.storage.files import alone
from mlpfusion.storage.redacted import redacted
from mlpfusion.workers import forking, interrupts

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from mlpfusion.device import Device
    from mlpfusion.records.choice import Conditions
    from mlpfusion.records.profile import Profile
    from mlpfusion.spec import MLPSpec, Mode, Workload

TOKENS: Final = (1, 16, 256, 2048, 8192)
ROUNDS: Final = 60
CLOCKS: Final[tuple[ClockName, ...]] = ("event_us", "graph_us", "wall_us")


def choose(
    model: str | os.PathLike[str] | Model | MLPSpec,
    *,
    tokens: Sequence[int] = TOKENS,
    modes: Sequence[Mode] = ("inference",),
    tp: int = 1,
    dtype: spec.Dtype | None = None,
    backends: Sequence[str] | None = None,
    device: str | None = None,
    out: str | os.PathLike[str] | None = None,
    clock: ClockName | None = None,
    rounds: int = ROUNDS,
    time_limit_s: float = 600.0,
    fresh: bool = False,
    on_event: Callable[[run.Progress], None] | None = None,
) -> Choice:
    """The fastest right backend for each number of tokens, in ranges.

    `model` is a known name, a config.json or its directory, or the sizes; `tp` cards share its intermediate size. The
    `clock` that decides is event_us on a GPU and wall_us on a CPU. With `out` each row is written there as it finishes,
    choice.json at the end, and a later call goes on where this one ended; `fresh` measures everything again.

    Raises:
        UsageError: a bad value, a refused model, a workload that does not fit, rows in `out` of something else, or
            another run that writes there.
    """
    asked = model_asked(model, dtype)
    here = device_of(device)
    names = [registry.check_name(name) for name in (registry.names() if backends is None else backends)]
    work = workloads(asked, tokens, modes, tp)
    judged_by, folder = clock_asked(clock, here), None if out is None else Path(out)
    with alone(folder):
        found = measure(
            work, names, here, folder=folder, rounds=rounds, time_limit_s=time_limit_s, fresh=fresh, on_event=on_event
        )
        choice = decided(found, here, model=asked, tp=tp, clock=judged_by, rounds=rounds, holds=_held(found, here))
        if folder is not None:
            results.save(choice, folder / rows.CHOICE_NAME)
    return choice


def measure(
    work: Sequence[Workload],
    names: Sequence[str],
    here: Device,
    *,
    folder: Path | None,
    rounds: int,
    time_limit_s: float,
    fresh: bool,
    on_event: Callable[[run.Progress], None] | None,
) -> list[Profile]:
    """Every workload's rows, of one MLP: those in `folder` already and those still to be measured.

    Raises:
        UsageError: a workload that does not fit, or rows in `folder` of something else.
    """
    limits.whole("rounds", rounds, limits.ROUNDS)
    limits.seconds("time_limit_s", time_limit_s)
    for each in work:
        run.check_memory(each, here, len(names))
    with rows.planned(folder, _plan(work[0].spec, rounds, names, here), fresh=fresh):
        before = {each: rows.as_typed(rows.earlier(folder, each), names) for each in work}
        for each, found in before.items():
            rows.check_kept(found, names, rows.path_of(folder, each))
        missing = {
            each: frozenset(names) - {row.backend for row in rows.finished(found)}
            for each, found in before.items()
            if not rows.is_whole(found, names)
        }
        left = TimeLeft(missing, on_event or (lambda event: None))

        def measured(each: Workload) -> Profile:
            return run.profile(
                each,
                backends=names,
                device=here.kind,
                json=rows.path_of(folder, each),
                rounds=rounds,
                time_limit_s=time_limit_s,
                finished=rows.finished(before[each]),
                on_event=left.watch(each),
            )

        with interrupts.stoppable(), forking.kept():
            profiles = [measured(each) if each in missing else found for each, found in before.items()]
    return [each for each in profiles if each is not None]


def _plan(made: MLPSpec, rounds: int, names: Sequence[str], here: Device) -> Plan:
    holds = conditions.conditions(here, names)
    return redacted(Plan(schema=SCHEMA, kind="choice plan", spec=made, rounds=rounds, holds=holds))


def _held(profiles: Sequence[Profile], here: Device) -> Callable[[Sequence[str]], Conditions]:
    """What a choice of some backends holds for, by what is installed here."""

    def holds(chosen: Sequence[str]) -> Conditions:
        behind = provenance.of_choice((row for profile in profiles for row in profile.rows), chosen)
        return conditions.conditions(here, chosen, also=behind)

    return holds


def decided(
    profiles: Sequence[Profile],
    device: Device,
    *,
    model: Model,
    tp: int,
    clock: ClockName,
    rounds: int,
    holds: Callable[[Sequence[str]], Conditions],
) -> Choice:
    """What the profiles of one MLP say, in all; `holds` has for the backends that are chosen what that holds for."""
    wrong = decide.disqualified(profiles)
    points = tuple(decide.point(profile, clock, wrong) for profile in profiles)
    found = decide.ranges(points)
    chosen = list(dict.fromkeys(each.backend for each in found))
    return Choice(
        schema=SCHEMA,
        kind="choice",
        mlpfusion=profiles[-1].mlpfusion,
        created=max(each.created for each in profiles),
        model=model,
        tp=tp,
        spec=profiles[-1].workload.spec,
        clock=clock,
        rounds=rounds,
        device=device,
        environment=profiles[-1].environment,
        holds=holds(chosen),
        points=points,
        ranges=found,
    )


# ---- what is asked ---------------------------------------------------------------------------------------------------


def model_asked(model: str | os.PathLike[str] | Model | MLPSpec, dtype: spec.Dtype | None) -> Model:
    """The model of a name, a config.json, its directory or sizes, in another dtype if one is given."""
    if isinstance(model, spec.MLPSpec):
        model = known.of_sizes(model)
    if not isinstance(model, Model):
        return known.find(model, dtype=dtype)
    return model if dtype is None else replace(model, spec=replace(model.spec, dtype=dtype))


def device_of(asked: str | None) -> Device:
    """The device of a kind, or of a card's short name such as h200 or a100-80gb if that card is here.

    Raises:
        UsageError: no such kind or card; or the card is not here: times of a card cannot be had without it.
    """
    if asked is None or asked in devices.DEVICE_KINDS:
        return replace(devices.detect(asked), interpreted=False)
    cards = cards_named(asked)
    here = replace(devices.detect(), interpreted=False)
    if not is_card(asked, here.name):
        raise UsageError(
            f"device {asked!r} ({' or '.join(cards)}) is not here, and a choice is measured; "
            f"`mlpfusion choose --device {asked}` predicts; here: {here.name}"
        )
    return here


def card_away(asked: str | None) -> tuple[str, ...]:
    """The known cards that a short name stands for if none of them is here; none for a device kind or a card here.

    Raises:
        UsageError: no such kind or card.
    """
    if asked is None or asked in devices.DEVICE_KINDS:
        return ()
    cards = cards_named(asked)
    return () if is_card(asked, devices.detect().name) else cards


def cards_named(asked: str, others: Sequence[str] = devices.DEVICE_KINDS) -> tuple[str, ...]:
    """The known cards that a short name such as a100-80gb stands for; a `UsageError`, with `others`, if none is."""
    cards = tuple(name for name in devices.KNOWN_CARDS if _parts(asked) and _parts(asked) <= _parts(name))
    if not cards:
        short = ", ".join(name.removeprefix("NVIDIA ").lower().replace(" ", "-") for name in devices.KNOWN_CARDS)
        raise UsageError(f"unknown device {asked!r}; valid: {', '.join(others)}, or a card: {short}")
    return cards


def is_card(asked: str, name: str) -> bool:
    """Whether a card's name has all that a short name such as a100-80gb says."""
    return _parts(asked) <= _parts(name)


def _parts(name: str) -> set[str]:
    return set(name.lower().replace("-", " ").split())


def workloads(model: Model, tokens: Sequence[int], modes: Sequence[Mode], tp: int) -> list[Workload]:
    """Every mode and number of tokens, each once, on the share of the MLP that one of `tp` cards has."""
    limits.whole("tp", tp, limits.CARDS)
    inner = model.spec.intermediate_size
    if inner % tp:
        raise UsageError(f"tp {tp} does not divide the intermediate_size {inner} of {model.name}")
    for count in tokens:
        limits.whole("tokens", count, limits.TOKENS)
    for mode in modes:
        spec.one_of("mode", mode, spec.MODES)
    for what, values in (("tokens", tokens), ("modes", modes)):
        if not values:
            raise UsageError(f"no {what} were given")
        twice = [each for each, number in Counter(values).items() if number > 1]
        if twice:
            raise UsageError(f"{what} names {twice[0]} twice")
    if "training" in modes and model.inference_only is not None:
        raise UsageError(f"{model.name} is for inference alone: {model.inference_only}")
    share = replace(model.spec, intermediate_size=inner // tp)
    return [spec.Workload(spec=share, batch=1, seq=count, mode=mode) for mode in modes for count in sorted(tokens)]


def clock_asked(asked: ClockName | None, here: Device) -> ClockName:
    """The clock that decides on a device: the one that is asked for, if it is there, or the usual one."""
    if asked is None:
        return "event_us" if here.kind == "cuda" else "wall_us"
    spec.one_of("clock", asked, CLOCKS)
    if here.kind == "cpu" and asked != "wall_us":
        raise UsageError(f"clock {asked!r} needs a GPU; valid on a CPU: wall_us")
    return asked
