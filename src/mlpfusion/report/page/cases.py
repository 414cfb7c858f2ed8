"""Takes results apart into cases: one race, as `mlpfusion table` has it, with where it was run and how."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mlpfusion.records.bench import Profiles
from mlpfusion.records.choice import Choice
from mlpfusion.records.clocks import Clock, Ratio
from mlpfusion.records.profile import Profile, Row
from mlpfusion.report.profile.columns.clocks import CLOCKS, clock_of, has_spread
from mlpfusion.report.profile.row import verdict
from mlpfusion.report.table.columns import RANKED
from mlpfusion.report.table.shapes import file_of
from mlpfusion.stages.tabulate.races import of_sources
from mlpfusion.stages.tabulate.rank import rank
from mlpfusion.stats import paired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.device import Device
    from mlpfusion.records.environment import Environment, Process
    from mlpfusion.report.page.sources import Source
    from mlpfusion.report.profile.columns.clocks import ClockName
    from mlpfusion.spec import MLPSpec
    from mlpfusion.stages.tabulate.races import Race


class Case(NamedTuple):
    """One race: a workload on one device, from one file. `chosen_by` is the clock of a choice, which has no rounds.

    `label` is what a row calls it, beside its tokens: the sizes, and what else is not the same in all cases.
    """

    race: Race
    device: Device
    environment: Environment
    created: str
    complete: bool = True
    processes: tuple[Process, ...] = ()
    chosen_by: str | None = None
    label: str = ""

    @property
    def source(self) -> str:
        """The file, and the name in a file of several."""
        return file_of(self.race)

    @property
    def spec(self) -> MLPSpec:
        """What is computed."""
        return self.race.work.spec

    @property
    def mode(self) -> str:
        """Inference or training."""
        return self.race.work.mode

    @property
    def tokens(self) -> int:
        """How many of a call."""
        return self.race.work.tokens

    @property
    def rows(self) -> tuple[Row, ...]:
        """The row of every backend."""
        return tuple(each.row for each in self.race.entries)

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
    """All measured races in the order of `mlpfusion table`; a choice's point only where no file has its samples."""
    made = [_of(race) for race in of_sources([each.read for each in sources])]
    return _labelled([each for each in made if each is not None])


def _of(race: Race) -> Case | None:
    found = race.source.result
    if isinstance(found, Profiles):
        found = found.profiles[race.part or ""]
    if isinstance(found, Profile):
        return Case(race, found.device, found.environment, found.created, found.complete, found.processes)
    if isinstance(found, Choice):
        return Case(race, found.device, found.environment, found.created, chosen_by=found.clock)
    return None  # a prediction


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


# ---- who is fastest --------------------------------------------------------------------------------------------------


class Rival(NamedTuple):
    """A backend after the winner, and the winner's time / its own, or None where no rounds can be paired.

    `is_behind`: the winner is known to beat it, so that it does not share the mark of the best.
    """

    row: Row
    clock: Clock
    ratio: Ratio | None
    is_behind: bool


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
    first = best(case, clock)
    rivals = tuple(
        Rival(row, found, ratio_of(case, winner, row, clock), bool(first) and row.backend not in first)
        for row, found in rest
    )
    return Standing(case, clock, winner, time, rivals)


def best(case: Case, clock: ClockName) -> frozenset[str]:
    """Those that share the first place by a clock, as `mlpfusion table` marks them; none where nothing is ranked."""
    return rank(case.race.entries, clock).best if clock in RANKED else frozenset()


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
    return paired(mine, theirs, other.backend) if clock in RANKED else None


def _recorded(case: Case, row: Row, baseline: str, clock: ClockName) -> Ratio | None:
    """The ratio of a row to a baseline that its file holds."""
    if case.chosen_by is not None:
        kept = next((each.to_winner for each in case.race.entries if each.row is row), None)
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
        if case.chosen_by in CLOCKS:
            return next(name for name in CLOCKS if name == case.chosen_by)
    for name in CLOCKS:
        if any(is_timed(row, name) for case in found for row in case.rows):
            return name
    return CLOCKS[0]


def clocks_read(found: Sequence[Case]) -> tuple[ClockName, ...]:
    """Every clock by which any right row was timed."""
    return tuple(name for name in CLOCKS if any(is_timed(row, name) for case in found for row in case.rows))
