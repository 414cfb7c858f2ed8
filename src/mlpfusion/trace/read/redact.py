"""Rewrites a trace with an allow-list of fields: no paths, host names, environment or free text."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mlpfusion.errors import UsageError
from mlpfusion.storage import files
from mlpfusion.trace.read.chrome import CATEGORIES, integer, load_json, nanoseconds
from mlpfusion.trace.read.header import BACKEND, GPU
from mlpfusion.trace.read.placeholders import Placeholders
from mlpfusion.trace.read.source import whole_text

if TYPE_CHECKING:
    from mlpfusion.trace.read.source import Source

_FLOWS: Final = frozenset({"ac2g", "fwdbwd", "async_cpu_to_gpu", "forward_backward"})
_INTEGERS: Final = (
    "correlation", "External id", "external id", "stream", "device", "context", "registers per thread",
    "shared memory", "bytes", "Sequence number", "Fwd thread id", "graph node id", "graph id", "cbid", "queued",
    "Ev Idx", "Python id", "Python parent id", "Python module id", "In msg nelems", "Out msg nelems", "Group size",
    "Seq",
)  # fmt: skip
_NUMBERS: Final = ("blocks per SM", "warps per SM", "est. achieved occupancy %", "memory bandwidth (GB/s)")
_SHAPES: Final = ("grid", "block", "Input Dims", "Input Strides")
_WORDS: Final = {
    "Input type": re.compile(r"[\w:<>, ()\[\]]{0,64}"),
    "Input Types": re.compile(r"[\w:<>, ()\[\]]{0,64}"),
}
_WORD: Final = {
    "Collective name": re.compile(r"_?[a-z]+(?:_[a-z]+){0,4}"),
    "dtype": re.compile(r"[A-Za-z]+\d{0,2}\w{0,8}"),
}
_LONGEST: Final = 40  # letters of such a word
_DEVICE_FACTS: Final = (
    "id", "totalGlobalMem", "computeMajor", "computeMinor", "maxThreadsPerBlock", "maxThreadsPerMultiprocessor",
    "regsPerBlock", "warpSize", "sharedMemPerBlock", "numSms", "regsPerMultiprocessor", "sharedMemPerBlockOptin",
    "sharedMemPerMultiprocessor",
)  # fmt: skip


def scrub(source: Source, out_path: str | Path) -> None:
    """Write the trace `source` to `out_path`, gzipped if that ends in .gz, with allow-listed keys, fields and values.

    Times, ids, shapes, launch geometry and the names of kernels, operators and API calls stay. Names of a user's own
    (annotations, modules, Python frames, whatever looks like a path) become placeholders, one for each name, so that
    the trace reads as before; every other field goes. Viewers still load it.

    Raises:
        UsageError: `source` is no one readable trace, or `out_path` cannot be a file.
        MlpfusionError: the disk refused; what was at `out_path` is still there.
    """
    label, data = whole_text(source)
    try:
        document = load_json(data, label, _File)
    except msgspec.ValidationError as error:
        raise UsageError(f"{label!r} is not a Chrome trace: {error}") from error
    names = Placeholders()
    kept = [entry for raw in document.traceEvents for entry in _entry(raw, names)]
    out: dict[str, Any] = {"schemaVersion": 1, "displayTimeUnit": "ms"}
    base = integer(document.baseTimeNanoseconds)
    if base is not None:
        out["baseTimeNanoseconds"] = base
    job = _job(document.distributedInfo)
    if job:
        out["distributedInfo"] = job
    out["deviceProperties"] = [_device(facts) for facts in document.deviceProperties if isinstance(facts, dict)]
    out["traceEvents"] = kept
    text = msgspec.json.encode(out)
    # A fixed mtime makes the same trace the same file.
    files.write_whole("trace", Path(out_path), gzip.compress(text, mtime=0) if str(out_path).endswith(".gz") else text)


class _File(msgspec.Struct):
    traceEvents: list[msgspec.Raw]
    baseTimeNanoseconds: object = None
    deviceProperties: list[Any] = []
    distributedInfo: object = None


def _entry(raw: msgspec.Raw, names: Placeholders) -> list[dict[str, Any]]:
    """The entry with what is allowed of it, or nothing. A list, so that the caller can flatten."""
    fields = _without_floats(raw)
    if not isinstance(fields, dict):
        return []
    time = _time(fields.get("ts"))
    place = {key: _place(fields.get(key)) for key in ("pid", "tid")}
    phase, category, name = (_text(fields.get(key)) for key in ("ph", "cat", "name"))
    if None in place.values():
        return []
    args = fields.get("args")
    args = args if isinstance(args, dict) else {}
    if phase == "X":
        duration = _time(fields.get("dur", msgspec.Raw(b"0")))
        return _timed(category, names, name, {"ts": time, "dur": duration, **place}, args)
    if time is None:
        return []
    if phase == "M":
        label = _label(name, args)
        return [{"ph": "M", "name": name, "ts": time, **place, "args": label}] if label else []
    if phase in ("s", "f", "t") and category in _FLOWS:
        bound = {"bp": "e"} if fields.get("bp") == "e" else {}
        identity = integer(fields.get("id"))
        return [{"ph": phase, "cat": category, "name": category, "id": identity, "ts": time, **place, **bound}]
    return []


def _timed(
    category: str, names: Placeholders, name: str, when: dict[str, Any], args: dict[str, Any]
) -> list[dict[str, Any]]:
    """An event; one without a time stays without, as it is counted as damaged, which is part of what a trace says."""
    known = CATEGORIES.get(category.lower(), "other")
    shown = {"ph": "X", "cat": "other" if known == "other" else category, "name": names.of(name, known), **when}
    if None not in when.values():
        return [{**shown, "args": _args(args)}]
    return [] if known == "other" else [shown]


def _without_floats(raw: msgspec.Raw) -> object:
    """The entry as Python values, with times as their own decimal text."""
    try:
        times = msgspec.json.decode(raw, type=_Times)
        fields: object = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(fields, dict):
        fields.update({key: text for key, text in (("ts", times.ts), ("dur", times.dur)) if bytes(text)})
    return fields


class _Times(msgspec.Struct):
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")


def _time(raw: object) -> msgspec.Raw | None:
    value = nanoseconds(raw) if isinstance(raw, msgspec.Raw) else None
    if value is None:
        return None
    sign = "-" if value < 0 else ""
    return msgspec.Raw(f"{sign}{abs(value) // 1000}.{abs(value) % 1000:03d}".encode())


# Places that are no process and no thread, as PyTorch names them.
_PLACES: Final = re.compile(r"stream \d+|CPU|GPU \d+|Spans|Traces|PyTorch Profiler|Overhead")


def _place(value: object) -> int | str | None:
    number = integer(value)
    if number is not None:
        return number
    return value if isinstance(value, str) and _PLACES.fullmatch(value) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _label(name: str, args: dict[str, Any]) -> dict[str, Any]:
    """What a metadata entry may say: a sort index, `CPU`, `GPU 0`, `stream 7`, or `thread 12`."""
    if name in ("process_sort_index", "thread_sort_index"):
        index = integer(args.get("sort_index"))
        return {} if index is None else {"sort_index": index}
    if name == "process_labels":
        found = re.fullmatch(r"CPU|GPU \d+", _text(args.get("labels")))
        return {"labels": found.group()} if found else {}
    if name == "thread_name":
        found = re.match(r"(stream|thread) \d+(?!\w)", _text(args.get("name")))
        return {"name": found.group()} if found else {}
    return {}


def _args(args: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, value in args.items():
        if key in _INTEGERS:
            number = integer(value)
            if number is not None:
                kept[key] = number
        elif (key in _NUMBERS and isinstance(value, (int, float))) or (key in _SHAPES and _is_shape(value)):
            kept[key] = value
        elif key in _WORDS and isinstance(value, list) and all(isinstance(word, str) for word in value):
            kept[key] = [word if _WORDS[key].fullmatch(word) else "" for word in value]
        elif key in _WORD and isinstance(value, str) and len(value) < _LONGEST and _WORD[key].fullmatch(value):
            kept[key] = value
    return kept


def _is_shape(value: object) -> bool:
    if isinstance(value, list):
        return all(_is_shape(part) for part in value)
    return isinstance(value, int) or value == ""


def _device(facts: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {key: facts[key] for key in _DEVICE_FACTS if isinstance(facts.get(key), int)}
    name = _text(facts.get("name"))
    if GPU.fullmatch(name):
        kept["name"] = name
    return kept


def _job(facts: object) -> dict[str, Any]:
    """A rank's place among others, and the library that joins them; the groups' names are a user's."""
    if not isinstance(facts, dict):
        return {}
    kept: dict[str, Any] = {key: facts[key] for key in ("rank", "world_size") if isinstance(facts.get(key), int)}
    if BACKEND.fullmatch(_text(facts.get("backend"))):
        kept["backend"] = facts["backend"]
    return kept
