"""Reads a Chrome trace written by torch.profiler into columns of events on an exact nanosecond axis."""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mlpfusion.errors import UsageError
from mlpfusion.records.trace import Integrity
from mlpfusion.trace.read.blocks import Blocks
from mlpfusion.trace.read.chrome import Category
from mlpfusion.trace.read.columns import Columns, Frames, Kind, Message, Place
from mlpfusion.trace.read.header import Facts
from mlpfusion.trace.read.redact import scrub
from mlpfusion.trace.read.source import MAX_BYTES, NoTraceError, TooLargeError, texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.trace.read.inputs import Inputs
    from mlpfusion.trace.read.source import Source, Text

__all__ = ["Event", "Trace", "read", "read_text", "scrub", "traces"]


class Event(msgspec.Struct, frozen=True, gc=False):
    """One interval of the trace: an operator, an annotation, an API call, or work on the device.

    `dims` and `types` are those of the inputs of an operator that multiplies matrices or works element by element,
    where the trace has them.
    """

    name: str
    category: Category
    start_ns: int
    duration_ns: int
    pid: int | str
    tid: int | str
    correlation: int | None = None
    dims: tuple[tuple[int, ...], ...] | None = None
    types: tuple[str, ...] | None = None

    @property
    def end_ns(self) -> int:
        """First nanosecond after the event."""
        return self.start_ns + self.duration_ns


class Trace(NamedTuple):
    """The intervals of a trace as columns, by start and, at one start, the longest first.

    `kind` indexes `kinds` (name and category), `place` indexes `places` (process and thread, or device and stream);
    `correlation` is 0 where there is none; a negative `duration` of device work is damage. Events of no use here
    (unknown categories) are left out; `integrity.events` counts all. `damaged_by` says why the text ends early, if it
    is known. `inputs` has by row those of a sized operator, as they are written. `facts` are those
    around the events. `foreign` says what device or profiler a trace has events of that are not read. `frames` are
    Python's, which are no rows. `messages` has by row the arguments of a collective, of its operator or its kernel, as
    they are written.
    """

    label: str
    kinds: tuple[Kind, ...]
    places: tuple[Place, ...]
    start: NDArray[np.int64]
    duration: NDArray[np.int64]
    kind: NDArray[np.int32]
    place: NDArray[np.int32]
    correlation: NDArray[np.int64]
    integrity: Integrity
    frames: Frames
    facts: Facts = Facts()
    damaged_by: str | None = None
    inputs: Inputs | None = None
    foreign: str | None = None
    messages: Mapping[int, Message] = MappingProxyType({})

    @property
    def gpu(self) -> str | None:
        """The GPU's name, if the trace has it."""
        return self.facts.gpu

    @property
    def dropped(self) -> int:
        """How many entries could not be read."""
        return self.integrity.dropped

    @property
    def events(self) -> tuple[Event, ...]:
        """All events as records: for small traces."""
        return tuple(self.rows(range(len(self.start))))

    def rows(self, indices: Iterable[int] | NDArray[np.int64]) -> Iterator[Event]:
        """The events at these places of the columns."""
        import numpy as np

        at = np.asarray(indices if hasattr(indices, "__len__") else list(indices), dtype=np.int64)
        columns = (self.start, self.duration, self.kind, self.place, self.correlation)
        values = zip(*(column[at].tolist() for column in columns), strict=True)
        texts = self.inputs.of(at) if self.inputs is not None else [None] * len(at)
        for (start, duration, kind, place, correlation), text in zip(values, texts, strict=True):
            name, category = self.kinds[kind]
            pid, tid = self.places[place]
            dims = _dims(text.dims) if text else None
            types = _types(text.types) if text else None
            yield Event(name, category, start, duration, pid, tid, correlation or None, dims, types)


@lru_cache(maxsize=1024)
def _dims(text: bytes) -> tuple[tuple[int, ...], ...] | None:
    """`[[8, 4], [4, 2], []]` as tuples; None where it is something else, as for lists of tensors."""
    try:
        return msgspec.json.decode(text, type=tuple[tuple[int, ...], ...])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


@lru_cache(maxsize=1024)
def _types(text: bytes) -> tuple[str, ...] | None:
    """`["c10::BFloat16", "Scalar"]` as a tuple."""
    try:
        return msgspec.json.decode(text, type=tuple[str, ...])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def read(source: Source, *, max_bytes: int = MAX_BYTES) -> Trace:
    """The one trace in `source`: a file, gzipped or not, a member of an archive, stdin, or the bytes themselves.

    Raises:
        UsageError: it cannot be opened, holds no trace or several, or more than `max_bytes` of text.
    """
    found: Trace | None = None
    for trace in traces(source, max_bytes=max_bytes):
        if found is not None:
            raise UsageError(f"{found.label!r} is not the only trace in its archive; name one as archive:member")
        found = trace
    assert found is not None, "at least one, or an error"
    return found


def traces(source: Source, *, max_bytes: int = MAX_BYTES) -> Iterator[Trace]:
    """Every trace in `source`; members of an archive that are none are passed over if there is another.

    Raises:
        UsageError: it cannot be opened, holds no trace, or more than `max_bytes` of text.
    """
    none: UsageError | None = None
    found = False
    for text in texts(source, max_bytes=max_bytes):
        try:
            trace = read_text(text)
        except TooLargeError:
            raise
        except UsageError as error:
            if not text.listed:
                raise
            none = none or error
        else:
            found = True
            yield trace
    if none is not None and not found:
        raise none


def head(source: Source) -> Facts:
    """What is known before the events of the first trace in `source`; nothing if that cannot be read."""
    try:
        found = texts(source)  # held, since its file closes with it
        first = next(found, None)
        return Facts() if first is None else Blocks(first.label, first.chunks).head()
    except UsageError:
        return Facts()


def read_text(text: Text) -> Trace:
    """The trace in one text.

    Raises:
        UsageError: the text is no trace, or holds no event of torch.profiler.
    """
    blocks = Blocks(text.label, text.chunks)
    columns = Columns()
    for entries in blocks:
        columns.extend(entries)
        if columns.unread:
            blocks.drop(entries, columns.unread)
    table = columns.table()
    if not len(table.start):
        refusal = UsageError if blocks.lost_bytes is not None else NoTraceError
        raise refusal(_nothing(text.label, blocks, columns))
    integrity = Integrity(
        events=columns.seen,
        dropped=blocks.dropped + columns.dropped,
        repaired=blocks.repaired,
        frames=blocks.frames + columns.unread_frames,
        damage=tuple(sorted(blocks.damage, key=lambda damage: damage.offset)),
        lost_bytes=blocks.lost_bytes,
        zero=table.zero,
        negative=columns.negative,
        linked_by_flow=table.linked_by_flow,
    )
    return Trace(
        label=text.label,
        kinds=columns.kinds(),
        places=columns.places(),
        start=table.start,
        duration=table.duration,
        kind=table.kind,
        place=table.place,
        correlation=table.correlation,
        integrity=integrity,
        frames=table.frames,
        facts=blocks.facts,
        damaged_by=blocks.cut_off,
        inputs=table.inputs,
        messages=table.messages,
        foreign=columns.foreign(),
    )


def _nothing(label: str, blocks: Blocks, columns: Columns) -> str:
    """Why no event was found, in one line."""
    if blocks.lost_bytes is not None:
        return f"trace {label!r} is cut off ({blocks.cut_off or 'it ends early'}): not one event of it survives"
    if columns.begins and not columns.seen:
        return f"trace {label!r} has only begin/end pairs (ph B and E), which are not read; complete events (ph X) are"
    said = ": only metadata" if columns.others and not columns.seen else ""
    foreign = columns.foreign()
    if foreign is not None:
        return f"trace {label!r} is {foreign}"
    if columns.seen:
        return f"trace {label!r} has {columns.seen} timed events, but none of torch.profiler's kinds"
    return f"trace {label!r} has no timed events{said}"
