"""Takes results apart into cases: one workload that was measured on one device, with the row of every backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from mlpfusion.records.bench import Profiles
from mlpfusion.records.choice import Choice
from mlpfusion.records.clocks import Clock, Clocks, Ratio
from mlpfusion.records.profile import Profile, Row
from mlpfusion.report.profile.columns.clocks import CLOCKS, clock_of, has_spread
from mlpfusion.report.profile.row import verdict
from mlpfusion.stats import paired

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlpfusion.device import Device
    from mlpfusion.records.choice import Contender, Point
    from mlpfusion.records.environment import Environment, Process
    from mlpfusion.report.page.sources import Source
    from mlpfusion.report.profile.columns.clocks import ClockName
    from mlpfusion.spec import MLPSpec

_STATUS: Final = {"failed": "failed", "unavailable": "unavailable"}


class Case(NamedTuple):
    """One workload on one device. `source` names the file; `point` is the one of a choice file without samples.

    `label` is what a row calls it, beside its tokens: the sizes, and what else is not the same in all cases.
    """

    source: str
    device: Device
    environment: Environment
    spec: MLPSpec
    mode: str
    tokens: int
    rows: tuple[Row, ...]
    created: str
    complete: bool
    processes: tuple[Process, ...]
    profile: Profile | None = None
    point: Point | None = None
    point_clock: str | None = None
    label: str = ""

    @property
    def shape(self) -> str:
        """`768 × 3072 gelu_tanh bfloat16`: what is computed for each token."""
        spec = self.spec
        bias = " with bias" if spec.bias else ""
        return f"{self.sizes} {spec.activation} {spec.dtype}{bias}"

    @property
    def sizes(self) -> str:
        """`768 × 3072`: the hidden and the intermediate size."""
        return f"{self.spec.hidden_size} × {self.spec.intermediate_size}"

    @property
    def workload(self) -> str:
        """The same with mode and tokens."""
        return f"{self.shape}, {self.mode}, {tokens(self.tokens)}"


def tokens(count: int) -> str:
    """`1 token`, `8192 tokens`."""
    return f"{count} token{'' if count == 1 else 's'}"


def cases(sources: Sequence[Source]) -> tuple[Case, ...]:
    """All cases, by shape, mode and tokens; a choice's point is one only where no file has its samples."""
    measured = [case for each in sources for case in _of_profiles(each)]
    known = {(case.spec, case.mode, case.tokens, case.device.name) for case in measured}
    chosen = [case for each in sources for case in _of_choice(each)]
    both = [*measured, *(each for each in chosen if (each.spec, each.mode, each.tokens, each.device.name) not in known)]
    return _labelled(sorted(both, key=lambda case: (case.device.name, case.shape, case.mode, case.tokens)))


def _labelled(found: Sequence[Case]) -> tuple[Case, ...]:
    parts = [
        (case.spec.activation, case.spec.dtype, "with bias" if case.spec.bias else "", case.mode, case.device.name)
        for case in found
    ]
    differ = [place for place in range(5) if len({each[place] for each in parts}) > 1]
    return tuple(
        case._replace(label=", ".join(filter(None, [case.sizes, *(each[place] for place in differ)])))
        for case, each in zip(found, parts, strict=True)
    )


def _of_profiles(source: Source) -> Iterator[Case]:
    found = source.result
    named = {"": found} if isinstance(found, Profile) else found.profiles if isinstance(found, Profiles) else {}
    for name, profile in named.items():
        yield Case(
            source=f"{source.name}:{name}" if name else source.name,
            device=profile.device,
            environment=profile.environment,
            spec=profile.workload.spec,
            mode=profile.workload.mode,
            tokens=profile.workload.tokens,
            rows=profile.rows,
            created=profile.created,
            complete=profile.complete,
            processes=profile.processes,
            profile=profile,
        )


def _of_choice(source: Source) -> Iterator[Case]:
    found = source.result
    if not isinstance(found, Choice):
        return
    for point in found.points:
        yield Case(
            source=source.name,
            device=found.device,
            environment=found.environment,
            spec=found.spec,
            mode=point.mode,
            tokens=point.tokens,
            rows=tuple(_row(each, point, found.clock) for each in point.contenders),
            created=found.created,
            complete=True,
            processes=(),
            point=point,
            point_clock=found.clock,
        )


def _row(each: Contender, point: Point, clock: ClockName) -> Row:
    """What a choice keeps of a backend's row."""
    status = each.verdict if each.verdict in ("failed", "unavailable") else "ok"
    return Row(
        backend=each.backend,
        status=status,
        reason=each.reason if status != "ok" else None,
        tokens=point.tokens,
        clocks=_clocks(each.clock, point, clock),
        memory=each.memory,
    )


def _clocks(found: Clock | None, point: Point, name: ClockName) -> Clocks | None:
    if found is None:
        return None
    return msgspec.structs.replace(Clocks(neighbours=point.neighbours), **{name: found})


# ---- who is fastest --------------------------------------------------------------------------------------------------


class Rival(NamedTuple):
    """A backend behind the winner, and the winner's time / its own, or None where no rounds can be paired."""

    row: Row
    clock: Clock
    ratio: Ratio | None

    @property
    def is_behind(self) -> bool:
        """Whether the interval of the ratio excludes 1."""
        return self.ratio is not None and (self.ratio.high < 1 or self.ratio.low > 1)


class Standing(NamedTuple):
    """The order of one case by one clock: the lowest median, and the others in their order."""

    case: Case
    clock: ClockName
    winner: Row | None
    time: Clock | None
    rivals: tuple[Rival, ...]

    @property
    def tied(self) -> tuple[Rival, ...]:
        """Those that the winner is not known to beat."""
        return tuple(each for each in self.rivals if not each.is_behind)


def is_timed(row: Row, clock: ClockName) -> bool:
    """Whether a row is right, was not emulated, and has this clock with a spread."""
    found = clock_of(row, clock)
    return verdict(row)[0] == "ok" and found is not None and has_spread(found)


def standing(case: Case, clock: ClockName) -> Standing:
    """Who is fastest in a case by a clock; nobody where no right row has a time with a spread."""
    timed = [(row, found) for row in case.rows if is_timed(row, clock) and (found := clock_of(row, clock)) is not None]
    timed.sort(key=lambda each: each[1].median)
    if not timed:
        return Standing(case, clock, None, None, ())
    (winner, time), rest = timed[0], timed[1:]
    rivals = tuple(Rival(row, found, ratio_of(case, winner, row, clock)) for row, found in rest)
    return Standing(case, clock, winner, time, rivals)


def ratio_of(case: Case, one: Row, other: Row, clock: ClockName) -> Ratio | None:
    """The time of a row over another's of the same case, from paired rounds, or as the file has recorded it.

    None where neither is possible. A choice keeps no rounds, and of each backend its time over the winner's.
    """
    mine, theirs = clock_of(one, clock), clock_of(other, clock)
    if mine is None or theirs is None:
        return None
    for row, against, turned in ((one, other, False), (other, one, True)):
        recorded = _recorded(case, row, against.backend, clock)
        if recorded is not None:
            return _turned(recorded, row.backend) if turned else recorded
    return paired(mine, theirs, other.backend)


def _recorded(case: Case, row: Row, baseline: str, clock: ClockName) -> Ratio | None:
    """The ratio of a row to a baseline that its file holds."""
    if case.point is not None:
        kept = next((each.ratio for each in case.point.contenders if each.backend == row.backend), None)
    else:
        kept = getattr(clock_of(row, clock), "ratio_to_eager", None)
    return kept if kept is not None and kept.baseline == baseline and row.backend != baseline else None


def _turned(ratio: Ratio, baseline: str) -> Ratio | None:
    """The inverse of a ratio, whose interval changes its ends; `report.speedup` says how near that is."""
    if not ratio.low:  # only an edited file holds it
        return None
    ends = {"median": 1 / ratio.median, "low": 1 / ratio.high, "high": 1 / ratio.low}
    return Ratio(baseline=baseline, confidence=ratio.confidence, n=ratio.n, **ends)


def default_clock(found: Sequence[Case]) -> ClockName:
    """The clock that a page shows first: that of a choice, else the first by which a backend has been timed."""
    for case in found:
        if case.point_clock in CLOCKS:
            return next(name for name in CLOCKS if name == case.point_clock)
    for name in CLOCKS:
        if any(is_timed(row, name) for case in found for row in case.rows):
            return name
    return CLOCKS[0]


def clocks_read(found: Sequence[Case]) -> tuple[ClockName, ...]:
    """Every clock by which any right row was timed."""
    return tuple(name for name in CLOCKS if any(is_timed(row, name) for case in found for row in case.rows))
