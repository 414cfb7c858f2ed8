"""Reads the parts of a trace around its events: where their list begins and ends, and the GPU's name."""

from __future__ import annotations

import re
from typing import Final

import msgspec

# The bracket that closes the events.
END: Final = re.compile(rb"\]\s*(?:,\s*\"|\}|\Z)")
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|["{}\[\]]', re.DOTALL)
# The names of cards that are shown; anything else in their place may be a user's words.
GPU: Final = re.compile(r"(NVIDIA|AMD|Tesla|Intel)[\w .()-]{0,60}")
_TRIED_ENDS: Final = 50


class _Device(msgspec.Struct):
    name: object = None


class _Header(msgspec.Struct):
    deviceProperties: list[_Device] = []


class HeaderScan:
    """Looks for the value of traceEvents among the first keys of a document, as more and more of it is there."""

    def __init__(self) -> None:
        self.closed = False
        self._position = 0
        self._depth = 0

    def find(self, head: bytes) -> int | None:
        """Where the value begins, or None so far."""
        while not self.closed and (token := _TOKEN.search(head, self._position)):
            text = token[0]
            if text == b'"':
                return None  # a string that goes on
            if text in (b"{", b"["):
                self._depth += 1
            elif text in (b"}", b"]"):
                self._depth -= 1
                self.closed = self._depth == 0
            elif self._depth == 1 and text == b'"traceEvents"':
                value = re.compile(rb"\s*:\s*(?=\S)").match(head, token.end())
                if value is not None:
                    return value.end()
                if not head[token.end() :].strip(b" \t\r\n:"):
                    return None
            self._position = token.end()
        return None


def gpu(head: bytes) -> str | None:
    """The name of the first device in the text before the events. Nothing else of it is looked at."""
    return _named(head + b"null}")


def gpu_behind(tail: bytes) -> str | None:
    """As `gpu`, in the text from the last event on."""
    for end in list(END.finditer(tail))[:_TRIED_ENDS]:
        name = _named(b"{" + tail[end.start() + 1 :].lstrip(b", \t\r\n"))
        if name is not None:
            return name
    return None


def _named(text: bytes) -> str | None:
    try:
        devices = msgspec.json.decode(text, type=_Header).deviceProperties
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    names = [device.name for device in devices if isinstance(device.name, str)]
    return next((name for name in names if GPU.fullmatch(name)), None)
