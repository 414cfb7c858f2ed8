"""Reads a Chrome trace written by torch.profiler into frozen events on an exact nanosecond axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from mlpfusion.errors import UsageError
from mlpfusion.trace.chrome import CATEGORIES, Category, integer, load_bytes, load_json, nanoseconds
from mlpfusion.trace.redact import scrub

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Event", "Trace", "read", "scrub"]


class Event(msgspec.Struct, frozen=True, gc=False):
    """One interval of the trace: an operator, an annotation, an API call, or work on the device."""

    name: str
    category: Category
    start_ns: int
    duration_ns: int
    pid: int | str
    tid: int | str
    correlation: int | None = None
    external_id: int | None = None
    stream: int | None = None

    @property
    def end_ns(self) -> int:
        """First nanosecond after the event."""
        return self.start_ns + self.duration_ns


class Trace(msgspec.Struct, frozen=True):
    """All intervals of a trace, by start and, at one start, the longest first. `dropped` counts the unreadable ones."""

    events: tuple[Event, ...]
    dropped: int = 0


_Id: TypeAlias = int | float | str | None
_NO_TIME: Final = msgspec.Raw(b"")


class _Args(msgspec.Struct, gc=False):
    correlation: _Id = None
    external: _Id = msgspec.field(default=None, name="External id")
    external_before_2: _Id = msgspec.field(default=None, name="external id")
    stream: _Id = None


class _Entry(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str | None = None
    name: str = ""
    pid: _Id = None
    tid: _Id = None
    ts: msgspec.Raw = _NO_TIME
    dur: msgspec.Raw = _NO_TIME
    args: _Args | None = None


_NO_ARGS: Final = _Args()


def read(path: str | Path) -> Trace:
    """The intervals of the trace in `path`, JSON or gzipped JSON, whatever its name.

    Raises:
        UsageError: the file cannot be opened, is no trace, or holds no interval.
    """
    data = load_bytes(path)
    entries = _entries(data, path)
    events: list[Event] = []
    dropped = 0
    for entry in entries:
        if entry is None:
            dropped += 1
        elif entry.ph == "X":
            event = _event(entry)
            if event is None:
                dropped += 1
            else:
                events.append(event)
    if not events:
        raise UsageError(f"trace {str(path)!r} has no timed events{': only metadata' if entries else ''}")
    events.sort(key=lambda event: (event.start_ns, -event.duration_ns))
    return Trace(events=tuple(events), dropped=dropped)


def _entries(data: bytes, path: str | Path) -> list[_Entry | None]:
    """Every entry of `traceEvents`, None for one that is no object.

    The typed decode fails as a whole on one wrong type; then each entry is decoded by itself, without its wrong fields.
    """
    listed = data.lstrip()[:1] == b"["
    try:
        found = load_json(data, path, list[_Entry] if listed else _file(_Entry))
    except msgspec.ValidationError:
        try:
            found = load_json(data, path, list[msgspec.Raw] if listed else _file(msgspec.Raw))
        except msgspec.ValidationError as error:
            raise UsageError(f"{str(path)!r} is not a Chrome trace: {error}") from error
    events = found if listed else found.traceEvents
    if events is None:
        raise UsageError(f"{str(path)!r} is not a Chrome trace: it has no traceEvents")
    return [entry if isinstance(entry, _Entry) else _decode_alone(entry) for entry in events]


def _file(entry: type) -> Any:
    fields = [("traceEvents", list[entry] | None, None)]  # type: ignore[valid-type]
    return msgspec.defstruct("TraceFile", fields)


def _decode_alone(raw: msgspec.Raw) -> _Entry | None:
    try:
        return msgspec.json.decode(raw, type=_Entry)
    except msgspec.ValidationError:
        pass  # a field of another type: the others may still do
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    try:
        fields = msgspec.json.decode(raw, type=Any)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    args = fields.get("args")
    args = args if isinstance(args, dict) else {}
    return _Entry(
        ph=_text(fields.get("ph")),
        cat=_text(fields.get("cat")),
        name=_text(fields.get("name")),
        pid=integer(fields.get("pid")),
        tid=integer(fields.get("tid")),
        ts=_time_text(fields.get("ts")),
        dur=_time_text(fields.get("dur")),
        args=_Args(
            correlation=integer(args.get("correlation")),
            external=integer(args.get("External id", args.get("external id"))),
            stream=integer(args.get("stream")),
        ),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _time_text(value: object) -> msgspec.Raw:
    return msgspec.Raw(str(value).encode()) if isinstance(value, (int, float, str)) else _NO_TIME


def _event(entry: _Entry) -> Event | None:
    """The event of a complete (`ph` X) entry; None without a name or a readable time, or with a negative length."""
    start = nanoseconds(entry.ts)
    duration = nanoseconds(entry.dur) if bytes(entry.dur) else 0
    if start is None or duration is None or duration < 0 or not entry.name:
        return None
    args = entry.args or _NO_ARGS
    external = integer(args.external)
    return Event(
        name=entry.name,
        category=CATEGORIES.get((entry.cat or "").lower(), "other"),
        start_ns=start,
        duration_ns=duration,
        pid=_place(entry.pid),
        tid=_place(entry.tid),
        correlation=integer(args.correlation),
        external_id=external if external is not None else integer(args.external_before_2),
        stream=integer(args.stream),
    )


def _place(value: _Id) -> int | str:
    number = integer(value)
    return number if number is not None else str(value)
