"""Turns result files into races: the rows of one workload that were timed, or predicted, together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec.structs import replace

from mlpfusion.records.bench import Profiles
from mlpfusion.records.choice import Choice
from mlpfusion.records.clocks import Clocks
from mlpfusion.records.prediction import Foresight
from mlpfusion.records.profile import Profile, Row
from mlpfusion.spec import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlpfusion.device import DeviceKind
    from mlpfusion.records.choice import Contender, Point
    from mlpfusion.records.clocks import Ratio
    from mlpfusion.records.prediction import Foreseen, ForeseenPoint
    from mlpfusion.stages.tabulate.sources import Source

Standing = Literal["measured", "emulated", "predicted", "failed", "unavailable"]


class Entry(NamedTuple):
    """One backend of a race. Only `measured` ones are ranked.

    `to_winner` is its time over that of its point's winner, of a choice, which keeps no rounds.
    """

    row: Row
    standing: Standing
    to_winner: Ratio | None = None
    predicted: Foreseen | None = None

    @property
    def name(self) -> str:
        """The backend."""
        return self.row.backend


class Race(NamedTuple):
    """The rows of one workload on one device from one file: what is ranked together, and nothing else.

    `part` is its name in a file of several profiles. `created` is None of a prediction.
    """

    source: Source
    part: str | None
    work: Workload
    device: str
    device_kind: DeviceKind
    torch: str | None
    triton: str | None
    created: str | None
    entries: tuple[Entry, ...]

    @property
    def shape(self) -> tuple[object, ...]:
        """What another race must have to be one of the same workload."""
        return (self.work.spec, self.work.tokens, self.work.mode)


def of_sources(sources: Sequence[Source]) -> tuple[Race, ...]:
    """The races of all files in the order of files, modes and tokens; files of other kinds have none.

    A choice has no rounds: where the profile of a point is there too, the profile stands for it.
    """
    found = [race for source in sources for race in _of_source(source)]
    profiled = {(race.shape, race.device) for race in found if not isinstance(race.source.result, Choice)}
    kept = [
        race for race in found if not (isinstance(race.source.result, Choice) and (race.shape, race.device) in profiled)
    ]
    # Inference comes first, as it does everywhere; the order of files decides between equal ones.
    return tuple(
        sorted(
            kept,
            key=lambda race: (
                race.work.spec.hidden_size,
                race.work.spec.intermediate_size,
                race.work.mode,
                race.work.tokens,
            ),
        )
    )


def _of_source(source: Source) -> Iterator[Race]:
    found = source.result
    if isinstance(found, Profile):
        yield _of_profile(source, None, found)
    elif isinstance(found, Profiles):
        for name, each in found.profiles.items():
            yield _of_profile(source, name, each)
    elif isinstance(found, Choice):
        for point in found.points:
            yield _of_point(source, found, point)
    elif isinstance(found, Foresight):
        for foreseen in found.points:
            yield _of_foreseen(source, found, foreseen)


def _of_profile(source: Source, part: str | None, found: Profile) -> Race:
    return Race(
        source=source,
        part=part,
        work=found.workload,
        device=found.device.name,
        device_kind=found.device.kind,
        torch=found.environment.torch,
        triton=found.environment.triton,
        created=found.created,
        entries=tuple(Entry(row, standing(row)) for row in found.rows),
    )


def standing(row: Row) -> Standing:
    """What a row of a profile is among the others."""
    if row.status != "ok":
        return row.status
    return "emulated" if row.emulated else "measured"


def _of_point(source: Source, found: Choice, point: Point) -> Race:
    return Race(
        source=source,
        part=None,
        work=Workload(spec=found.spec, batch=1, seq=point.tokens, mode=point.mode),
        device=found.device.name,
        device_kind=found.device.kind,
        torch=found.environment.torch,
        triton=found.environment.triton,
        created=found.created,
        entries=tuple(_of_contender(found, point, each) for each in point.contenders),
    )


def _of_contender(found: Choice, point: Point, each: Contender) -> Entry:
    failed = each.verdict in ("failed", "unavailable")
    row = Row(
        backend=each.backend,
        status="ok" if not failed else "failed" if each.verdict == "failed" else "unavailable",
        reason=each.reason if failed or each.verdict == "untimed" else None,
        emulated=each.verdict == "untimed",
        tokens=point.tokens,
        clocks=None
        if each.clock is None
        else replace(Clocks(neighbours=point.neighbours), **{found.clock: each.clock}),
        memory=each.memory,
    )
    return Entry(row, standing(row), to_winner=each.ratio)


def _of_foreseen(source: Source, found: Foresight, point: ForeseenPoint) -> Race:
    entries = []
    for each in point.backends:
        known = each.predicted_us is not None
        row = Row(backend=each.backend, status="ok" if known else "unavailable", reason=each.reason)
        entries.append(Entry(row, "predicted" if known else "unavailable", predicted=each))
    return Race(
        source=source,
        part=None,
        work=Workload(spec=found.spec, batch=1, seq=point.tokens, mode=point.mode),
        device=found.card,
        device_kind="cuda",
        torch=None,
        triton=None,
        created=None,
        entries=tuple(entries),
    )
