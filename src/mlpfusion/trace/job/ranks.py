"""Reads the traces that a verb was given one after the other, each with its place in its job."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mlpfusion.errors import MlpfusionError
from mlpfusion.trace.analysis import summary
from mlpfusion.trace.job.arrivals import Arrivals, arrivals
from mlpfusion.trace.job.parts import parts
from mlpfusion.trace.job.place import Place, place, rank_in
from mlpfusion.trace.read import kineto
from mlpfusion.trace.read.source import MAX_BYTES, NoTraceError, texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlpfusion.device import DeviceKind
    from mlpfusion.records.trace import Reading
    from mlpfusion.trace.job.parts import Part
    from mlpfusion.trace.read.source import Text


class Told(NamedTuple):
    """One trace: its place, its reading, when it arrived at collectives, and whether it is part of a merged file."""

    place: Place
    reading: Reading
    arrivals: Arrivals
    part: Part | None = None


class Untold(NamedTuple):
    """A file that is no trace, or cannot be read, with the rank that its name gives."""

    source: str
    rank: int | None
    error: MlpfusionError

    @property
    def damaged(self) -> bool:
        """Whether it should have been a trace: other JSON beside the traces is passed over."""
        return self.rank is not None or not isinstance(self.error, NoTraceError)


def read_ranks(
    source: str,
    *,
    call: str | None = None,
    device: DeviceKind | None = None,
    max_bytes: int = MAX_BYTES,
    rank: int | None = None,
) -> Iterator[Told | Untold]:
    """What each trace in `source` says, or why it says nothing; one of several ranks says something for each.

    With `rank` only traces of that rank are analysed. Texts of an archive that are whole and no trace are passed over
    where there is another.
    """
    passed: list[Untold] = []
    found = False
    try:
        for text in texts(source, max_bytes=max_bytes):
            name = text.label.removeprefix(f"{source}:") if text.listed else source
            try:
                yield from _of_text(text, name, call=call, device=device, rank=rank)
            except NoTraceError as error:
                passed.append(_untold(text.label, name, error))
            except MlpfusionError as error:
                found = True
                yield _untold(text.label, name, error)
            else:
                found = True
    except MlpfusionError as error:
        yield _untold(source, source, error)
        return
    if not found:
        yield from passed[:1]


def _untold(source: str, name: str, error: MlpfusionError) -> Untold:
    return Untold(source, rank_in(name)[0], error)


def _of_text(
    text: Text, name: str, *, call: str | None, device: DeviceKind | None, rank: int | None
) -> Iterator[Told | Untold]:
    trace = kineto.read_text(text)
    found = parts(trace)
    for number, part in enumerate(found):
        where = place(trace.facts, name)
        if len(found) > 1:
            ids = [one for one in part.devices if isinstance(one, int)]
            where = Place(ids[0] if ids else number, "device", None, trace.facts.backend)
        if rank is not None and where.rank != rank:
            continue
        try:
            reading, calls = summary.with_calls(part.trace, call=call, device=device)
        except MlpfusionError as error:
            yield Untold(text.label, where.rank, error)
            continue
        if part.process is not None:
            reading = msgspec.structs.replace(
                reading, source=f"{text.label}, process {part.process}", notes=(*reading.notes, *_of_part(part))
            )
        runs = reading.breakdown.collective_runs if reading.breakdown and not reading.incomplete else ()
        yield Told(where, reading, arrivals(runs, calls), part if part.process is not None else None)


def _of_part(part: Part) -> Iterator[str]:
    """How a part of a merged trace was told from the others."""
    devices = ", ".join(map(str, part.devices))
    how = "in the order of both, which nothing in the trace contradicts" if part.assumed else "by what its launches ran"
    yield f"process {part.process} of a merged trace, with device {devices} {how}"
