"""Collects the entries of a trace in columns, exact to the nanosecond, and sorts these by time."""

from __future__ import annotations

import re
from array import array
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from mlpfusion.trace.names.ops import SIZED
from mlpfusion.trace.read.chrome import CATEGORIES, DEVICE_WORK, FOREIGN, Category, integer, nanoseconds
from mlpfusion.trace.read.inputs import Gathered, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from mlpfusion.trace.read.entry import Entry
    from mlpfusion.trace.read.inputs import Inputs

_UNUSED: Final = frozenset({"other", "device_annotation", "sync"})
_LINKED: Final = DEVICE_WORK | {"api"}
_FLOWS: Final = frozenset({"ac2g", "async_cpu_to_gpu"})
_DIGITS: Final = b"0123456789"
# The operator that bears a collective's arguments; the kernels that it launched bear them as well.
PARAMETERS: Final = "record_param_comms"
_TALKS: Final = re.compile(r"nccl|rccl", re.IGNORECASE)
_LONGEST: Final = 16  # digits before the point: an absolute time in µs
_LARGEST_NS: Final = 2**62
_T = TypeVar("_T")


class Kind(NamedTuple):
    """What events with one name and category have in common."""

    name: str
    category: Category


class Place(NamedTuple):
    """Where events happen: the process and its thread, or the device and its stream."""

    pid: int | str
    tid: int | str


class Frames(NamedTuple):
    """Python's frames as columns, in the order in which they are written, without those that are not timed well."""

    start: NDArray[np.int64]
    duration: NDArray[np.int64]
    kind: NDArray[np.int32]
    place: NDArray[np.int32]


class Table(NamedTuple):
    """The columns by start and, at one start, the longest first, without frames."""

    start: NDArray[np.int64]
    duration: NDArray[np.int64]
    kind: NDArray[np.int32]
    place: NDArray[np.int32]
    correlation: NDArray[np.int64]
    zero: int
    linked_by_flow: int
    inputs: Inputs
    frames: Frames
    messages: dict[int, Message]


class Message(NamedTuple):
    """The arguments of a collective as they are written: empty where an event does not have one."""

    collective: bytes
    dtype: bytes
    sent: bytes
    received: bytes
    group_size: bytes
    group: bytes
    sequence: bytes


_Instant: TypeAlias = tuple[tuple[object, ...], int]


class _Ids(dict[tuple[object, ...], int]):
    """Numbers keys in the order of their first use."""

    def __missing__(self, key: tuple[object, ...]) -> int:
        self[key] = number = len(self)
        return number


class Columns:
    """The columns so far. `seen` counts timed entries, `others` the rest, `dropped` the timed ones without a time.

    `unread_frames` counts Python's frames without one, which are not among the `dropped`: nothing is counted by them.
    `begins` counts the beginnings of begin/end pairs, which are not read, where nothing timed is beside them.
    """

    def __init__(self) -> None:
        self.seen = 0
        self.others = 0
        self.begins = 0
        self.dropped = 0
        self.unread: list[tuple[Entry, str]] = []  # those among the last entries that were dropped, and why
        self.negative = 0
        self._kinds = _Ids()
        self._places = _Ids()
        self._start, self._duration, self._correlation = array("q"), array("q"), array("q")
        self._kind, self._place = array("i"), array("i")
        self.unread_frames = 0
        self._frames = array("q"), array("q"), array("i"), array("i")  # start, duration, kind, place
        self._used: dict[int, bool] = {}
        self._nameless: set[int] = set()
        self._python: set[int] = set()  # kinds of frames
        self._linkable: set[int] = set()
        self._on_device: set[int] = set()
        self._sized: set[int] = set()  # kinds of operators whose inputs are kept
        self._inputs = Gathered()
        self._texts: dict[bytes, bytes] = {}
        self._talking: set[int] = set()  # kinds of collectives
        self._messages: dict[int, Message] = {}
        self._wants_flows = False
        self._flows: list[tuple[str, int, int, int]] = []  # phase, id, place, time

    def extend(self, entries: Sequence[Entry]) -> None:
        """Add the complete events among the entries."""
        import numpy as np

        self.unread = []
        timed = [entry for entry in entries if entry.ph == "X"]
        kinds = [self._kinds[entry.cat, entry.name] for entry in timed]
        self.seen += len(timed)
        self.others += len(entries) - len(timed)
        if not timed:
            self.begins += sum(entry.ph == "B" for entry in entries)
        if len(self._used) < len(self._kinds):
            self._look_at_kinds()
        used = self._used
        if not all(map(used.__getitem__, kinds)):
            if self._nameless:
                pairs = zip(timed, kinds, strict=True)
                self.unread += [(entry, "has no name") for entry, kind in pairs if kind in self._nameless]
            if not self._python.isdisjoint(kinds):
                self._add_frames(timed, kinds)
            timed = [entry for entry, kind in zip(timed, kinds, strict=True) if used[kind]]
            kinds = [kind for kind in kinds if used[kind]]
        starts = _times([entry.ts for entry in timed])
        durations = _times([entry.dur for entry in timed])
        if starts is None or durations is None:
            timed, kinds, starts, durations = self._one_by_one(timed, kinds)
        self.dropped += len(self.unread)
        self._start.extend(starts)
        self._duration.extend(durations)
        self._kind.extend(kinds)
        if not self._sized.isdisjoint(kinds):
            self._add_inputs(timed, kinds)
        if not self._talking.isdisjoint(kinds):
            self._add_messages(timed, kinds)
        numbers = self._places
        self._place.extend([numbers[entry.pid, entry.tid] for entry in timed])
        correlations = _correlations(timed)
        self._correlation.extend(correlations)
        if not self._wants_flows:
            without = np.array(kinds, dtype=np.int64)[np.frombuffer(correlations, dtype=np.int64) == 0]
            self._wants_flows = not self._linkable.isdisjoint(np.unique(without).tolist())
        if self._wants_flows:
            self._add_flows(entries)

    def _add_frames(self, timed: Sequence[Entry], kinds: Sequence[int]) -> None:
        python = self._python
        found = [(entry, kind) for entry, kind in zip(timed, kinds, strict=True) if kind in python]
        starts, durations = (_times([getattr(entry, key) for entry, _ in found]) for key in ("ts", "dur"))
        if starts is None or durations is None:
            timed_well = []
            for entry, kind in found:
                start, duration = nanoseconds(entry.ts), nanoseconds(entry.dur)
                if start is not None and duration is not None and duration >= 0:
                    timed_well.append((entry, kind, start, duration))
            self.unread_frames += len(found) - len(timed_well)
            found = [(entry, kind) for entry, kind, *_ in timed_well]
            starts, durations = [start for *_, start, _ in timed_well], [duration for *_, duration in timed_well]
        numbers = self._places
        columns = starts, durations, [kind for _, kind in found], [numbers[entry.pid, entry.tid] for entry, _ in found]
        for column, values in zip(self._frames, columns, strict=True):
            column.extend(values)

    def _add_inputs(self, timed: Sequence[Entry], kinds: Sequence[int]) -> None:
        first = len(self._start) - len(timed)
        for at, kind in enumerate(kinds):
            args = timed[at].args if kind in self._sized else None
            if args is not None and args.dims:
                self._inputs.add(first + at, Text(bytes(args.dims), bytes(args.types)))

    def _add_messages(self, timed: Sequence[Entry], kinds: Sequence[int]) -> None:
        first = len(self._start) - len(timed)
        for at, kind in enumerate(kinds):
            args = timed[at].args if kind in self._talking else None
            if args is not None and args.collective:
                parts = (getattr(args, name) for name in Message._fields)
                self._messages[first + at] = Message(
                    *(self._texts.setdefault(text, text) for text in map(bytes, parts))
                )

    def kinds(self) -> tuple[Kind, ...]:
        """What the numbers in the column of kinds mean."""
        return tuple(Kind(str(name), _category(category, name)) for category, name in self._kinds)

    def foreign(self) -> str | None:
        """What device or profiler there are events of that are not read, or None."""
        written = (category for category, _ in self._kinds if isinstance(category, str))
        return next((FOREIGN[category.lower()] for category in written if category.lower() in FOREIGN), None)

    def places(self) -> tuple[Place, ...]:
        """What the numbers in the column of places mean."""
        return tuple(Place(_place(pid), _place(tid)) for pid, tid in self._places)

    def table(self) -> Table:
        """All columns, sorted. Nothing can be added afterwards."""
        import numpy as np

        linked, same = self._link_by_flow(), self._same_places()
        start = np.frombuffer(self._start, dtype=np.int64)
        duration = np.frombuffer(self._duration, dtype=np.int64)
        order = np.lexsort((-duration, start)).astype(np.int32)
        kind = np.frombuffer(self._kind, dtype=np.int32)[order]
        duration = duration[order]
        self._duration = array("q")
        on_device = np.array([kind.category in DEVICE_WORK for kind in self.kinds()] or [False])
        return Table(
            start=start[order],
            duration=duration,
            kind=kind,
            place=same[np.frombuffer(self._place, dtype=np.int32)[order]],
            correlation=np.frombuffer(self._correlation, dtype=np.int64)[order],
            zero=int(np.count_nonzero((duration == 0) & on_device[kind])),
            linked_by_flow=linked,
            inputs=self._inputs.sorted(order),
            messages=_sorted(self._messages, order),
            frames=self._framed(same),
        )

    def _framed(self, same: NDArray[np.int32]) -> Frames:
        import numpy as np

        start, duration = (np.frombuffer(column, dtype=np.int64) for column in self._frames[:2])
        kind, place = (np.frombuffer(column, dtype=np.int32) for column in self._frames[2:])
        return Frames(start, duration, kind, same[place])

    def _same_places(self) -> NDArray[np.int32]:
        """For each number of a place the first number of the same one: ids are written as numbers and as strings."""
        import numpy as np

        first: dict[Place, int] = {}
        same = [first.setdefault(place, number) for number, place in enumerate(self.places())]
        return np.array(same or [0], dtype=np.int32)

    def _look_at_kinds(self) -> None:
        for category, name in islice(self._kinds, len(self._used), None):
            found, number = _category(category, name), len(self._used)
            self._used[number] = bool(name) and found not in _UNUSED and found != "python"
            if found == "python":
                self._python.add(number)
                continue
            if found in _LINKED:
                self._linkable.add(number)
            if found in DEVICE_WORK:
                self._on_device.add(number)
            if found == "op" and str(name).rpartition("::")[2] in SIZED:
                self._sized.add(number)
            if (found == "op" and name == PARAMETERS) or (found == "kernel" and _TALKS.search(str(name))):
                self._talking.add(number)
            if not name:
                self._nameless.add(number)

    def _one_by_one(
        self, timed: Sequence[Entry], kinds: Sequence[int]
    ) -> tuple[list[Entry], list[int], list[int], list[int]]:
        """The entries that have a readable start, with 0 for a missing duration, or for a negative one of the host."""
        kept: list[tuple[Entry, int, int, int]] = []
        for entry, kind in zip(timed, kinds, strict=True):
            start = nanoseconds(entry.ts)
            duration = nanoseconds(entry.dur) if bytes(entry.dur) not in (b"", b"null") else 0
            if start is None or duration is None:
                self.unread.append((entry, f"has no readable {'start' if start is None else 'duration'}"))
                continue
            self.negative += duration < 0
            # That of device work stays negative: what is left of it depends on its launch.
            kept.append((entry, kind, start, duration if kind in self._on_device else max(0, duration)))
        entries, numbers, starts, durations = (list(column) for column in zip(*kept, strict=True)) if kept else [[]] * 4
        return entries, numbers, starts, durations

    def _add_flows(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.ph in ("s", "f") and entry.cat in _FLOWS:
                number, time = integer(entry.id), nanoseconds(entry.ts)
                if number is not None and time is not None:
                    self._flows.append((entry.ph, number, self._places[entry.pid, entry.tid], time))

    def _link_by_flow(self) -> int:
        """Give a correlation to events that an arrow joins but no id does; how many pieces of device work got one."""
        if not self._flows:
            return 0
        places, kinds = self.places(), self.kinds()
        begins: dict[_Instant, int] = {}
        ends: dict[_Instant, int] = {}
        for phase, number, place, time in self._flows:
            (begins if phase == "s" else ends)[places[place][:2], time] = number
        given: dict[int, int] = {}
        waiting: list[tuple[int, int]] = []
        for row, (kind, place, time) in enumerate(zip(self._kind, self._place, self._start, strict=True)):
            category = kinds[kind].category
            arrows = ends if category in DEVICE_WORK else begins if category == "api" else {}
            arrow = arrows.get((places[place][:2], time))
            if arrow is None:
                continue
            if category != "api":
                waiting.append((row, arrow))
                continue
            self._correlation[row] = self._correlation[row] or -arrow - 1
            given[arrow] = self._correlation[row]
        linked = [(row, arrow) for row, arrow in waiting if not self._correlation[row]]
        for row, arrow in linked:
            # Arrows are numbered as correlations are, which identifies one whose beginning is not in the trace.
            self._correlation[row] = given.get(arrow, arrow)
        return len(linked)


def _sorted(by_row: dict[int, _T], order: NDArray[np.int32]) -> dict[int, _T]:
    """The same by the rows' places in this order."""
    import numpy as np

    if not by_row:
        return {}
    places = np.empty(len(order), dtype=np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    return dict(zip(places[list(by_row)].tolist(), by_row.values(), strict=True))


def _category(written: object, name: object) -> Category:
    found = CATEGORIES.get(written.lower(), "other") if isinstance(written, str) else "other"
    # Before torch 1.11 a profiler step was written as an operator.
    return "annotation" if found == "op" and isinstance(name, str) and name.startswith("ProfilerStep") else found


def _place(value: object) -> int | str:
    number = integer(value)
    return number if number is not None else str(value)


def _times(texts: Sequence[object]) -> Sequence[int] | None:
    """The decimal µs in `texts` as integer ns, all at once; None if one is not written as torch writes them."""
    import numpy as np

    joined = b",".join(texts)  # type: ignore[arg-type]
    marks = joined.translate(None, _DIGITS)
    if marks == b".," * (len(texts) - 1) + b"." and _three_decimals(joined):
        joined, scale = joined.replace(b".", b""), 1
    elif marks == b"," * (len(texts) - 1) and joined[-1:].isdigit() and b",," not in joined and joined[:1] != b",":
        scale = 1000
    else:
        return None if texts else ()
    found = np.fromstring(joined, dtype=np.int64, sep=",")
    if len(found) != len(texts) or int(found.max()) >= _LARGEST_NS // scale:
        return None
    return array("q", (found * scale).tobytes())


def _three_decimals(joined: bytes) -> bool:
    """Whether each number, of digits and one point, has three digits after it and some but not too many before."""
    import numpy as np

    text = np.frombuffer(joined, dtype=np.uint8)
    points = np.flatnonzero(text == ord("."))
    commas = np.flatnonzero(text == ord(","))
    ends = np.append(commas, len(text))
    before = points - np.append(-1, commas) - 1
    return bool((ends - points == 4).all() and (before > 0).all() and (before <= _LONGEST).all())


def _correlations(entries: Sequence[Entry]) -> array[int]:
    try:
        return array("q", [entry.args.correlation for entry in entries])  # type: ignore[union-attr,misc]
    except (TypeError, AttributeError, OverflowError):
        return array("q", [_signed(integer(entry.args.correlation) if entry.args else None) for entry in entries])


def _signed(value: int | None) -> int:
    """An id as 64 bits hold it: some writers print it without its sign."""
    return 0 if value is None else (value + 2**63) % 2**64 - 2**63
