"""Rewrites a trace with an allow-list of fields: no paths, host names, environment or free text."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any, Final

import msgspec

from mlpfusion.errors import UsageError
from mlpfusion.storage import files
from mlpfusion.trace.read.chrome import CATEGORIES, integer, load_bytes, load_json, nanoseconds

_FLOWS: Final = frozenset({"ac2g", "fwdbwd", "async_cpu_to_gpu", "forward_backward"})
_INTEGERS: Final = (
    "correlation", "External id", "external id", "stream", "device", "context", "registers per thread",
    "shared memory", "bytes", "Sequence number", "Fwd thread id", "graph node id", "graph id", "cbid", "queued",
    "Ev Idx",
)  # fmt: skip
_NUMBERS: Final = ("blocks per SM", "warps per SM", "est. achieved occupancy %", "memory bandwidth (GB/s)")
_SHAPES: Final = ("grid", "block", "Input Dims", "Input Strides")
_WORDS: Final = {
    "Input type": re.compile(r"[\w:<>, ()\[\]]{0,64}"),
    "Input Types": re.compile(r"[\w:<>, ()\[\]]{0,64}"),
}
_DEVICE_FACTS: Final = (
    "id", "totalGlobalMem", "computeMajor", "computeMinor", "maxThreadsPerBlock", "maxThreadsPerMultiprocessor",
    "regsPerBlock", "warpSize", "sharedMemPerBlock", "numSms", "regsPerMultiprocessor", "sharedMemPerBlockOptin",
    "sharedMemPerMultiprocessor",
)  # fmt: skip

# A region id such as `0/1` is the one slash that an event's name may have; any other could be a path.
_REGION_ID: Final = re.compile(r"\b\d+/\d+\b")
# Annotations are the user's own words: only ours and PyTorch's are kept.
_OUR_ANNOTATION: Final = re.compile(
    r"mlpfusion\.(call|warmup)|ProfilerStep\s?#\d+|Torch-Compiled Region: [\d/]+|Pregraph bytecode|dynamo"
    r"|TorchDynamo Cache Lookup|AOTDispatcher Runtime Wrapper Prologue|## Call CompiledFxGraph \w+ ##"
    r"|entire_frame_compile|_compile\.compile_inner|compile_attempt_\d+"
)
_HIDDEN: Final = "(scrubbed)"


def scrub(in_path: str | Path, out_path: str | Path) -> None:
    """Write the trace `in_path` to `out_path` as gzipped JSON with allow-listed keys, fields and values only.

    Times, ids, shapes, launch geometry and the names of kernels, operators and API calls stay; annotations other than
    ours and PyTorch's, names that look like paths, Python frames and every other field go. Viewers still load it.

    Raises:
        UsageError: `in_path` is not a readable trace, or `out_path` cannot be a file.
        MlpfusionError: the disk refused; what was at `out_path` is still there.
    """
    try:
        document = load_json(load_bytes(in_path), in_path, _File)
    except msgspec.ValidationError as error:
        raise UsageError(f"{str(in_path)!r} is not a Chrome trace: {error}") from error
    kept = [entry for raw in document.traceEvents for entry in _entry(raw)]
    out: dict[str, Any] = {"schemaVersion": 1, "displayTimeUnit": "ms"}
    base = integer(document.baseTimeNanoseconds)
    if base is not None:
        out["baseTimeNanoseconds"] = base
    out["deviceProperties"] = [_device(facts) for facts in document.deviceProperties if isinstance(facts, dict)]
    out["traceEvents"] = kept
    # A fixed mtime makes the same trace the same file.
    files.write_whole("trace", Path(out_path), gzip.compress(msgspec.json.encode(out), mtime=0))


class _File(msgspec.Struct):
    traceEvents: list[msgspec.Raw]
    baseTimeNanoseconds: object = None
    deviceProperties: list[Any] = []


def _entry(raw: msgspec.Raw) -> list[dict[str, Any]]:
    """The entry with what is allowed of it, or nothing. A list, so that the caller can flatten."""
    fields = _without_floats(raw)
    if not isinstance(fields, dict):
        return []
    time = _time(fields.get("ts"))
    place = {key: _place(fields.get(key)) for key in ("pid", "tid")}
    phase, category, name = (_text(fields.get(key)) for key in ("ph", "cat", "name"))
    if time is None or None in place.values():
        return []
    args = fields.get("args")
    args = args if isinstance(args, dict) else {}
    if phase == "M":
        label = _label(name, args)
        return [{"ph": "M", "name": name, "ts": time, **place, "args": label}] if label else []
    if phase in ("s", "f", "t") and category in _FLOWS:
        bound = {"bp": "e"} if fields.get("bp") == "e" else {}
        identity = integer(fields.get("id"))
        return [{"ph": phase, "cat": category, "name": category, "id": identity, "ts": time, **place, **bound}]
    duration = _time(fields.get("dur", msgspec.Raw(b"0")))
    if phase != "X" or CATEGORIES.get(category.lower(), "other") in ("other", "python") or duration is None:
        return []
    shown = {"ph": "X", "cat": category, "name": _name(name, category), "ts": time, "dur": duration, **place}
    return [{**shown, "args": _args(args)}]


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


def _place(value: object) -> int | str | None:
    number = integer(value)
    if number is not None:
        return number
    return value if isinstance(value, str) and re.fullmatch(r"stream \d+|CPU|GPU \d+", value) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _name(name: str, category: str) -> str:
    if CATEGORIES[category.lower()] in ("annotation", "device_annotation"):
        return name if _OUR_ANNOTATION.fullmatch(name) else _HIDDEN
    suspect = _REGION_ID.sub("", name)
    return _HIDDEN if "/" in suspect or "\\" in suspect or not name.isprintable() else name


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
    return kept


def _is_shape(value: object) -> bool:
    if isinstance(value, list):
        return all(_is_shape(part) for part in value)
    return isinstance(value, int) or value == ""


def _device(facts: dict[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {key: facts[key] for key in _DEVICE_FACTS if isinstance(facts.get(key), int)}
    name = _text(facts.get("name"))
    if re.fullmatch(r"(NVIDIA|AMD|Tesla)[\w .-]{0,60}", name):
        kept["name"] = name
    return kept
