"""Reads how kernels were launched: the grid, the block and the registers that a small trace has beside each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

from mlpfusion.records.profile import LaunchConfig
from mlpfusion.trace.read.chrome import CATEGORIES, nanoseconds
from mlpfusion.trace.read.source import texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mlpfusion.trace.read.source import Source

    # By the kernel's start in ns and its name.
    LaunchConfigs: TypeAlias = Mapping[tuple[int, str], LaunchConfig]


class _Entry(msgspec.Struct):
    cat: object = None
    name: object = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    args: msgspec.Raw = msgspec.Raw(b"")


class _File(msgspec.Struct):
    traceEvents: list[msgspec.Raw]


class _Args(msgspec.Struct):
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: object = msgspec.field(name="registers per thread", default=None)


_FILE: Final = msgspec.json.Decoder(_File)
_ENTRY: Final = msgspec.json.Decoder(_Entry)
_ARGS: Final = msgspec.json.Decoder(_Args)


def read(source: Source) -> LaunchConfigs:
    """How each kernel of a trace was launched; nothing of those, or of a whole trace, that do not say it.

    All of the trace is held in memory: for those that mlpfusion records.
    """
    held = texts(source)  # whose file closes with it
    text = b"".join(next(held).chunks)
    try:
        entries = _FILE.decode(text).traceEvents
    except msgspec.DecodeError:
        return {}
    return {found[0]: found[1] for raw in entries if b'"grid"' in bytes(raw) and (found := _config(raw)) is not None}


def _config(raw: msgspec.Raw) -> tuple[tuple[int, str], LaunchConfig] | None:
    try:
        entry = _ENTRY.decode(raw)
        args = _ARGS.decode(entry.args)
    except msgspec.DecodeError:
        return None
    start = nanoseconds(entry.ts)
    if CATEGORIES.get(str(entry.cat).lower()) != "kernel" or start is None or min(*args.grid, *args.block) < 0:
        return None
    registers = args.registers if type(args.registers) is int and args.registers >= 0 else None
    return (start, str(entry.name)), LaunchConfig(grid=args.grid, block=args.block, registers=registers)
