"""Finds the traceEvents in the text of a trace, and decodes them in blocks that are cut where an event starts."""

from __future__ import annotations

import re
from bisect import bisect_left
from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion.errors import UsageError
from mlpfusion.records.trace import Damage
from mlpfusion.trace.read import header
from mlpfusion.trace.read.entry import Entry, decode_alone, repaired
from mlpfusion.trace.read.header import END, Facts, HeaderScan
from mlpfusion.trace.read.source import BLOCK, CutOffError, NoTraceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_DECODER: Final = msgspec.json.Decoder(list[Entry])
_RAWS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_TRAILING: Final = re.compile(r"trailing characters \(byte (\d+)\)")
_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# Between two events. Two objects of a list inside an event look the same, which shows when the parts do not decode.
_BETWEEN: Final = re.compile(rb"\}\s*,\s*(?=\{\s*[\"}])")
# The same where one event ends and the next begins with no comma between them.
_JOINT: Final = re.compile(rb"\}\s*(?P<comma>,?)\s*(?=\{\s*[\"}])")
_LAST_END: Final = re.compile(rb"\}\s*,?\s*" + END.pattern)
# Nothing is counted by Python frames, so that one less is no loss.
_FRAME: Final = re.compile(rb'"cat"\s*:\s*"python_function"', re.IGNORECASE)
_BOM: Final = b"\xef\xbb\xbf"
_SHOWN: Final = 20
_TRIED_ENDS: Final = 50
_LONGEST_HEADER: Final = 64 * 2**20
_LONGEST_EVENT: Final = 16 * 2**20
# What follows the events; it is read only for the name of the GPU and the rank.
_LONGEST_TAIL: Final = 2**20


class Blocks:
    """The entries of one text, a list for each block, and what had to be repaired, dropped or was lost on the way."""

    def __init__(self, label: str, chunks: Iterator[bytes]) -> None:
        self.facts = Facts()
        self.dropped = 0
        self.repaired = 0
        self.frames = 0  # of those that could not be read: Python's
        self.damage: list[Damage] = []
        self.lost_bytes: int | None = None
        self.cut_off: str | None = None
        self._label = label
        self._chunks = chunks
        self._size = 0
        self._last_block = b"", 0
        self._tail = b""  # the end of the list, and what follows it in the last block
        self._offsets: list[int] | None = None  # of the entries in the last block, once requested

    def __iter__(self) -> Iterator[list[Entry]]:
        """Each block's entries.

        Raises:
            UsageError: the text is empty or no Chrome trace.
        """
        waiting, is_list = self._find_events()
        offset = self._size - len(waiting)
        ended = END.match(waiting.lstrip()) is not None
        while not ended:
            chunk = self._next()
            if not chunk:
                break
            buffer = waiting + chunk
            cut = _last_boundary(buffer)
            if cut is None and len(buffer) < _LONGEST_EVENT:
                waiting = buffer
                continue
            stop, skip = cut if cut is not None else (len(buffer), 0)
            found, used, ended = self._block(buffer[:stop], offset, to_come=cut is not None)
            yield found
            if ended:
                self._read_tail(buffer[stop:])
            taken = stop + skip if used == stop else used
            waiting = buffer[taken:]
            offset += taken
        if not ended:
            yield from self._last(waiting, offset, is_list=is_list)

    def head(self) -> Facts:
        """The facts before the events; nothing can be read afterwards.

        Raises:
            UsageError: the text is empty or no Chrome trace.
        """
        self._find_events()
        return self.facts

    def drop(self, entries: Sequence[Entry], unread: Sequence[tuple[Entry, str]]) -> None:
        """Place entries of the last block, all of which are `entries`, that turned out to be of no use, with reasons.

        They are counted by who found that out.
        """
        if len(self.damage) >= _SHOWN:
            return
        numbers = {id(entry): number for number, entry in enumerate(entries)}
        if self._offsets is None:
            data, offset = self._last_block
            self._offsets = _positions(data, _RAWS.decode(b"[%b]" % data), offset)
        for entry, reason in unread[: _SHOWN - len(self.damage)]:
            offset = self._offsets[numbers[id(entry)]]
            self.damage.append(Damage(offset=offset, what="dropped", reason=reason))

    def _next(self) -> bytes:
        try:
            chunk = next(self._chunks, b"")
        except CutOffError as error:
            self.cut_off = str(error)
            return b""
        self._size += len(chunk)
        return chunk

    def _read_tail(self, rest: bytes) -> None:
        """Look behind the events for what is not before them: the GPU, the rank. Damage there is none of the events."""
        if self.facts.whole:
            return
        cut_off = self.cut_off
        tail = self._tail + rest
        while len(tail) < _LONGEST_TAIL and (chunk := self._next()):
            tail += chunk
        self.facts, self.cut_off = self.facts.or_else(header.facts_behind(tail)), cut_off

    def _find_events(self) -> tuple[bytes, bool]:
        """The text after the bracket that opens the events, and whether they are the whole document."""
        head = self._next().removeprefix(_BOM)
        while not head.strip() and (chunk := self._next()):
            head = chunk
        start = head.lstrip()
        if not start:
            raise UsageError(f"trace {self._label!r} is empty" + (f": {self.cut_off}" if self.cut_off else ""))
        if start[:1] == b"[":
            return start[1:], True
        if start[:1] != b"{":
            if _is_json(start):
                raise NoTraceError(f"trace {self._label!r} is not a Chrome trace")
            raise UsageError(f"trace {self._label!r} is not valid JSON")
        scan = HeaderScan()
        while (position := scan.find(head)) is None:
            chunk = self._next() if len(head) < _LONGEST_HEADER else b""
            if not chunk:
                broken = not scan.closed and len(head) < _LONGEST_HEADER
                reason = "not valid JSON" if broken else "not a Chrome trace: it has no traceEvents"
                refusal = UsageError if broken or self.cut_off else NoTraceError
                raise refusal(f"trace {self._label!r} is {reason}" + (f"; {self.cut_off}" if self.cut_off else ""))
            head += chunk
        opening = head[position : position + 1]
        if opening != b"[":
            raise UsageError(f"trace {self._label!r} is not a Chrome trace: its traceEvents are no list")
        self.facts = header.facts(head[:position])
        return head[position + 1 :], False

    def _block(
        self, data: bytes, offset: int, *, to_come: bool = False, last: bool = False
    ) -> tuple[list[Entry], int, bool]:
        """The entries of whole events, how many bytes were used, and whether the list of events ends in them.

        A final piece that does not decode is left for the next block if more is `to_come`, and lost if it is the
        `last` of the text.
        """
        self._last_block, self._offsets = (data, offset), None
        try:
            return _DECODER.decode(b"[%b]" % data), len(data), False
        except _ERRORS as error:
            end = _closing(data, error)
        if end is not None:
            self._last_block, self._tail = (data[:end], offset), data[end:]
            try:
                return _DECODER.decode(b"[%b]" % data[:end]), len(data), True
            except _ERRORS:
                pass
        return self._recover(data, offset, to_come=to_come, last=last)

    def _recover(self, data: bytes, offset: int, *, to_come: bool, last: bool) -> tuple[list[Entry], int, bool]:
        """As `_block`, for data that do not decode as they are: bisected to the single events, and these repaired."""
        joints = list(_JOINT.finditer(data))
        starts = [len(data) - len(data.lstrip()), *(joint.end() for joint in joints)]
        stops = [*(joint.start() + 1 for joint in joints), len(data)]
        joined = {joint.end() for joint in joints if not joint["comma"]}
        pieces = list(zip(starts, stops, strict=True))
        self._offsets = []
        found: list[Entry] = []
        group: list[tuple[int, int]] = []
        for piece, entries in [*_bisected(data, pieces), (None, None)]:
            if piece is not None and entries is None:
                group.append(piece)
                continue
            if group:
                start, stop = group[0][0], group[-1][1]
                if piece is None and to_come and stop - start < BLOCK:
                    return found, start, False
                mended, ended = self._mended(data, group, offset, last=last)
                found += mended
                if ended:
                    self._tail = data[self._offsets[-1] - offset if self._offsets else 0 :]
                    return found, len(data), True
                group = []
            if piece is not None and entries:
                if piece[0] in joined:
                    self._log(offset + piece[0], entries[0], "no comma before it")
                first = bisect_left(starts, piece[0])
                self._offsets += [offset + start for start in starts[first : first + len(entries)]]
                found += entries
        return found, len(data), False

    def _mended(
        self, data: bytes, group: list[tuple[int, int]], offset: int, *, last: bool
    ) -> tuple[list[Entry], bool]:
        """The entries of neighbouring pieces that do not decode, and whether the list of events ends in them."""
        whole = data[group[0][0] : group[-1][1]]
        for end in (len(whole), _closing_of(whole)):
            if end is not None:
                try:  # an event that was cut inside, fields of a wrong type, or the end of the list
                    return self._alone(whole[:end], offset + group[0][0]), end < len(whole)
                except _ERRORS:
                    pass
        found: list[Entry] = []
        for start, stop in group:
            entry, clean, ended = _mend(data[start:stop])
            if entry is None and last and not ended and stop == len(data):
                self.lost_bytes = stop - start
            elif not clean:
                self._log(offset + start, entry, "does not decode", data[start:stop])
            self._keep(found, entry, offset + start)
            if ended:
                return found, True
        return found, False

    def _alone(self, data: bytes, offset: int) -> list[Entry]:
        raws = _RAWS.decode(b"[%b]" % data)
        found: list[Entry] = []
        for raw, at in zip(raws, _positions(data, raws, offset), strict=True):
            entry = decode_alone(raw)
            if entry is None:
                entry = repaired(bytes(raw))  # bytes that are no text do not stop a decoder that only skips them
                self._log(at, entry, "does not decode", bytes(raw))
            self._keep(found, entry, at)
        return found

    def _keep(self, found: list[Entry], entry: Entry | None, offset: int) -> None:
        if entry is not None and self._offsets is not None:
            found.append(entry)
            self._offsets.append(offset)

    def _log(self, offset: int, entry: Entry | None, reason: str, text: bytes = b"") -> None:
        if entry is None and _FRAME.search(text):
            self.frames += 1
            reason = f"a Python frame that {reason}"
        elif entry is None:
            self.dropped += 1
        else:
            self.repaired += 1
        if len(self.damage) < _SHOWN:
            self.damage.append(Damage(offset=offset, what="repaired" if entry else "dropped", reason=reason))

    def _last(self, data: bytes, offset: int, *, is_list: bool) -> Iterator[list[Entry]]:
        """The entries of the rest of the text, which may end the list of events, or be cut off."""
        text = data.rstrip(b", \t\r\n")
        ended = False
        if text:
            found, _, ended = self._block(text, offset, last=True)
            yield found
        if ended:
            self._read_tail(b"")
        if not ended and self.lost_bytes is None and not (is_list and self.cut_off is None):
            self.lost_bytes = 0


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except _ERRORS:
        return False
    return True


def _last_boundary(buffer: bytes) -> tuple[int, int] | None:
    """Where the last whole event ends, and how many bytes separate it from the next; None without a boundary."""
    for start in (max(0, len(buffer) - 8192), max(0, len(buffer) - BLOCK), 0):
        found = list(_BETWEEN.finditer(buffer, start))
        if found:
            return found[-1].start() + 1, found[-1].end() - found[-1].start() - 1
    return None


def _positions(data: bytes, raws: Sequence[msgspec.Raw], offset: int) -> list[int]:
    """Where each of the values begins that follow each other in `data`."""
    found = []
    at = 0
    for raw in raws:
        text = bytes(raw)
        at = data.index(text, at)
        found.append(offset + at)
        at += len(text)
    return found


def _closing(data: bytes, error: Exception) -> int | None:
    """Where in `data` the bracket is that closes the events, by the message of a decoder that was given `[data]`."""
    trailing = _TRAILING.search(str(error))
    if trailing is None:
        return None
    end = data.rfind(b"]", 0, int(trailing[1]) - 1)
    return end if end >= 0 and END.match(data, end) else None


def _closing_of(data: bytes) -> int | None:
    try:
        _RAWS.decode(b"[%b]" % data)
    except _ERRORS as error:
        return _closing(data, error)
    return None


def _mend(piece: bytes) -> tuple[Entry | None, bool, bool]:
    """The entry of a piece, whether it needed no repair, and whether the list of events ends after it."""
    entry = repaired(piece)
    if entry is not None:
        return entry, False, False
    ends = list(_LAST_END.finditer(piece))[:_TRIED_ENDS]
    for end in ends:
        head = piece[: end.start() + 1]
        entry = decode_alone(head)
        if entry is not None and entry.ph:
            return entry, True, True
        entry = repaired(head)
        if entry is not None:
            return entry, False, True
    return None, False, bool(ends)


def _bisected(
    data: bytes, pieces: list[tuple[int, int]]
) -> Iterator[tuple[tuple[int, int] | None, list[Entry] | None]]:
    """Ranges of pieces in order with their entries, or single pieces with None where they do not decode."""
    if not pieces:
        return
    start, stop = pieces[0][0], pieces[-1][1]
    try:
        entries = _DECODER.decode(b"[%b]" % data[start:stop])
    except _ERRORS:
        entries = []
    # An object without a phase is no event but a part of one.
    if len(entries) == len(pieces) and all(entry.ph for entry in entries):
        yield (start, stop), entries
    elif len(pieces) == 1:
        yield pieces[0], None
    else:
        middle = len(pieces) // 2
        yield from _bisected(data, pieces[:middle])
        yield from _bisected(data, pieces[middle:])
