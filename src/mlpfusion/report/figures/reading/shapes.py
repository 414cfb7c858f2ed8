"""Takes measured rows out of files of every kind: profiles, several in one, grids, choices without their rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mlpfusion import stats
from mlpfusion.device import Device
from mlpfusion.errors import UsageError
from mlpfusion.records.bench import Bench, Profiles
from mlpfusion.records.choice import Choice
from mlpfusion.records.clocks import Clock, Clocks, Samples
from mlpfusion.records.profile import BASELINE, Profile, Row
from mlpfusion.records.sweep.study import Study
from mlpfusion.report.figures.shape import Shape
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.units import PositiveTime

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from mlpfusion.records.choice import Point
    from mlpfusion.storage.gathered import Gathered

# Scripts of bench/ whose files have raced backends by shape, and what in them is no backend: the time of the matrix
# products alone.
_RACED: Final = ("grid", "fused")
_LIMIT: Final = "limit"


def of(files: Sequence[Gathered]) -> tuple[Shape, ...]:
    """Every measured shape of the files, those of one MLP together and by ascending tokens.

    A choice's own points are among them only where its folder lacks their rows.
    """
    names = _models(files)
    found = [shape for path, record, _ in files for shape in _of_record(path, record)]
    beside = {(Path(shape.path).parent, shape.key) for shape in found}
    for path, record, _ in files:
        if isinstance(record, Choice):
            made = [_of_point(path, record, point) for point in record.points]
            found += [shape for shape in made if (Path(path).parent, shape.key) not in beside]
    specs = list(dict.fromkeys(shape.workload.spec for shape in found))
    found.sort(key=lambda one: (specs.index(one.workload.spec), one.workload.mode, one.workload.tokens))
    return tuple(shape._replace(model=shape.model or names.get(shape.workload.spec)) for shape in found)


def _models(files: Iterable[Gathered]) -> dict[MLPSpec, str]:
    """What choices and studies call their MLPs."""
    found: dict[MLPSpec, str] = {}
    for _, record, _ in files:
        if isinstance(record, Choice):
            found[record.spec] = record.model.name if record.tp == 1 else f"{record.model.name}/{record.tp}"
        elif isinstance(record, Study):
            for kept in record.cells:
                uses = kept.cell.work.of
                names = [each.model if each.tp == 1 else f"{each.model}/{each.tp}" for each in uses]
                found.setdefault(kept.cell.work.workload.spec, ", ".join(names))
    return found


def _of_record(path: str, record: Any) -> list[Shape]:
    if isinstance(record, Profile):
        return [_of_profile(path, record)]
    if isinstance(record, Profiles):
        return [_of_profile(path, each)._replace(model=name) for name, each in record.profiles.items()]
    if isinstance(record, Bench) and record.kind in _RACED:
        return _of_bench(path, record)
    return []


def _of_profile(path: str, found: Profile) -> Shape:
    return Shape(
        path=path,
        workload=found.workload,
        rows=found.rows,
        device=found.device,
        created=found.created,
        environment=found.environment,
        processes=found.processes,
        ceilings=found.ceilings,
        profile=found,
    )


def _of_point(path: str, choice: Choice, point: Point) -> Shape:
    """A point of a choice: its contenders' times, without samples."""
    rows = tuple(
        Row(
            backend=each.backend,
            status="failed" if each.verdict == "failed" else "unavailable" if each.verdict == "unavailable" else "ok",
            reason=each.reason,
            tokens=point.tokens,
            clocks=_clocks({choice.clock: each.clock}) if each.clock is not None else None,
            memory=each.memory,
        )
        for each in point.contenders
    )
    return Shape(
        path=path,
        workload=Workload(spec=choice.spec, batch=1, seq=point.tokens, mode=point.mode),
        rows=rows,
        device=choice.device,
        created=choice.created,
        environment=choice.environment,
    )


def _clocks(found: Mapping[str, Clock]) -> Clocks:
    return Clocks(event_us=found.get("event_us"), graph_us=found.get("graph_us"), wall_us=found.get("wall_us"))


# ---- files of scripts, which have no records of their own ------------------------------------------------------------


class _Peer(msgspec.Struct):
    name: str
    status: str
    reason: str | None = None
    samples: dict[str, tuple[PositiveTime | None, ...]] = {}


class _Raced(msgspec.Struct):
    workload: Workload
    peers: tuple[_Peer, ...]
    created: str | None = None


class _Share(msgspec.Struct):
    name: str
    spec: MLPSpec

    def is_of(self, spec: MLPSpec) -> bool:
        """Whether it has this MLP's sizes and activation, in whatever dtype."""
        return msgspec.structs.replace(spec, dtype=self.spec.dtype) == self.spec


class _Races(msgspec.Struct):
    rows: tuple[_Raced, ...]
    device: Device
    shares: tuple[_Share, ...] = ()


def _of_bench(path: str, found: Bench) -> list[Shape]:
    try:
        races = msgspec.convert(found.content, _Races)
        return [
            Shape(
                path=path,
                workload=each.workload,
                rows=_rows(each),
                device=races.device,
                created=each.created,
                model=next((share.name for share in races.shares if share.is_of(each.workload.spec)), None),
            )
            for each in races.rows
        ]
    except (msgspec.ValidationError, UsageError, TypeError, ArithmeticError) as error:
        raise UsageError(f"{path!r} is a damaged {found.kind}: {error}") from None


def _rows(found: _Raced) -> tuple[Row, ...]:
    ran = [peer for peer in found.peers if peer.name != _LIMIT]
    baseline = next((peer for peer in ran if peer.name == BASELINE), None)
    return tuple(
        Row(
            backend=peer.name,
            status="ok" if peer.status == "ok" else "unavailable" if peer.status == "unavailable" else "failed",
            reason=peer.reason,
            tokens=found.workload.tokens,
            clocks=_clocks({name: clock for name in peer.samples if (clock := _clock(peer, name, baseline))}),
        )
        for peer in ran
    )


def _clock(peer: _Peer, name: str, baseline: _Peer | None) -> Clock | None:
    """One clock of a race of interleaved rounds, with the ratio to the baseline where both were in all of them."""
    if name not in ("event_us", "graph_us", "wall_us"):
        return None
    values = peer.samples[name]
    if not any(value is not None for value in values):
        return None
    mine = Samples(backend=peer.name, clock=name, l2="cold", values=values)
    others = baseline.samples.get(name, ()) if baseline is not None and baseline is not peer else ()
    theirs = Samples(backend=BASELINE, clock=name, l2="cold", values=others) if len(others) == len(values) else None
    return stats.summarise(mine, theirs)
