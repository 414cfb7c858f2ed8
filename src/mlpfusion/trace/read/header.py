"""Reads the parts of a trace around its events: where their list begins and ends, the GPU's name, the rank."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import msgspec

from mlpfusion.trace.read.chrome import integer

# The bracket that closes the events.
END: Final = re.compile(rb"\]\s*(?:,\s*\"|\}|\Z)")
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|["{}\[\]]', re.DOTALL)
# The names of cards that are shown; anything else in their place may be a user's words.
GPU: Final = re.compile(r"(NVIDIA|AMD|Tesla|Intel)[\w .()-]{0,60}")
# `nccl`, or `cpu:gloo,cuda:nccl`.
BACKEND: Final = re.compile(
    r"(?:\w{1,8}:)?(?:nccl|rccl|gloo|mpi|ucc|xccl)(?:,\w{1,8}:(?:nccl|rccl|gloo|mpi|ucc|xccl)){0,3}"
)
_MOST_RANKS: Final = 10_000_000
_TRIED_ENDS: Final = 50


class Facts(NamedTuple):
    """What is known of a trace besides its events: the GPU, and the place of the process among those of its job."""

    gpu: str | None = None
    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None

    @property
    def whole(self) -> bool:
        """Whether nothing is left to be looked for."""
        return self.gpu is not None and self.rank is not None

    def or_else(self, other: Facts) -> Facts:
        """These facts, with the other ones where nothing is known."""
        gpu = self.gpu if self.gpu is not None else other.gpu
        return self._replace(gpu=gpu) if self.rank is not None else other._replace(gpu=gpu)


class _Header(msgspec.Struct):
    deviceProperties: object = None
    distributedInfo: object = None


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


def facts(head: bytes) -> Facts:
    """The facts in the text before the events."""
    return _facts(head + b"null}")


def facts_behind(tail: bytes) -> Facts:
    """As `facts`, in the text from the last event on."""
    for end in list(END.finditer(tail))[:_TRIED_ENDS]:
        found = _facts(b"{" + tail[end.start() + 1 :].lstrip(b", \t\r\n"))
        if found != Facts():
            return found
    return Facts()


def _facts(text: bytes) -> Facts:
    try:
        header = msgspec.json.decode(text, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Facts()
    devices = header.deviceProperties if isinstance(header.deviceProperties, list) else []
    names = [device.get("name") for device in devices if isinstance(device, dict)]
    gpu = next((name for name in names if isinstance(name, str) and GPU.fullmatch(name)), None)
    return Facts(gpu, *_place(header.distributedInfo))


def _place(job: object) -> tuple[int | None, int | None, str | None]:
    """The rank, the world size and the backend that a trace's distributedInfo gives."""
    if not isinstance(job, dict):
        return None, None, None
    rank, size, backend = integer(job.get("rank")), integer(job.get("world_size")), job.get("backend")
    return (
        rank if rank is not None and 0 <= rank < _MOST_RANKS else None,
        size if size is not None and 0 < size <= _MOST_RANKS else None,
        backend if isinstance(backend, str) and BACKEND.fullmatch(backend) else None,
    )
