"""Reads and writes result files: JSON with a schema number."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mlpfusion.errors import MeasurementError, UsageError
from mlpfusion.records import invariants
from mlpfusion.records.profile import SCHEMA, Profile
from mlpfusion.storage import files, inputs, schema

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from mlpfusion.records.base import Record

RESULT_NAME: Final = "result.json"  # the result file inside the directory of `--out`, beside the traces
TRACE_SUFFIX: Final = ".trace.json.gz"  # of a backend's trace in that directory
_MOST_BYTES: Final = 2**28  # of a result file that is read; a profile of eight backends has less than 2**20
_WIDTH: Final = 120  # a JSON value that fits on such a line is not broken up


def save(profile: Profile, path: str | os.PathLike[str]) -> None:
    """Write `profile` to `path`: a reader sees the old file or the new one, never half of either.

    Raises:
        UsageError: `path` cannot be a result file (a directory, a device, a missing folder).
        MeasurementError: a number in it is NaN or infinite, which is no result and no JSON.
        MlpfusionError: the disk refused.
    """
    files.write_whole("result file", Path(path), encode(profile).encode("utf-8", "backslashreplace"))


def load(path: str | os.PathLike[str]) -> Profile:
    """The profile in a result file, plain or gzip; `-` is stdin.

    Raises:
        UsageError: there is no such file, or it is not a profile of this schema; the message says which.
    """
    text = inputs.read("result file", path, _MOST_BYTES)
    shown = "stdin" if inputs.is_stdin(path) else repr(str(path))
    schema.check(schema.read(text, shown, "result file"), shown, kind="profile", newest=SCHEMA)
    try:
        profile = msgspec.json.decode(text, type=Profile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{shown} is a damaged profile: {error}") from None
    for wrong in invariants.broken(profile):
        raise UsageError(f"{shown} is a damaged profile: {wrong}")
    return profile


def encode(result: Record) -> str:
    """The JSON text of a result: the same text for equal results, one line per small object and list of numbers.

    Raises:
        MeasurementError: a number in it is NaN or infinite.
    """
    plain = msgspec.to_builtins(result)
    for where in _not_finite(plain, "result"):
        raise MeasurementError(f"{where} is not a finite number and cannot be a result")
    return _layout(plain, 0) + "\n"


def check_file(path: Path, *, kind: str = "profile") -> Path:
    """The real path behind `path` if a result file can be written there, else a `UsageError`; leaves nothing behind.

    What is there already may only be such a file, or empty: anything else, a trace say, would be lost.
    """
    target = files.check_file("result file", path)
    if target.exists() and target.stat().st_size and not _holds(kind, target):
        raise UsageError(f"result file {str(path)!r} exists and holds no {kind!r} of mlpfusion; name another file")
    return target


def _holds(kind: str, path: Path) -> bool:
    try:
        return bool(schema.read(files.read_whole("result file", path, _MOST_BYTES), "it").kind == kind)
    except UsageError:
        return False


def check_directory(path: Path, *, overwrite: bool) -> Path:
    """`path` if result file and traces can be written into it, made if need be, else a `UsageError`.

    An earlier run's files are lost only with `overwrite`.
    """
    files.check_directory("output directory", path)
    if path.is_dir():
        check_file(path / RESULT_NAME)
        found = [each for each in (path / RESULT_NAME, *sorted(path.glob(f"*{TRACE_SUFFIX}"))) if each.exists()]
        for each in found:
            if not each.is_file():
                raise UsageError(f"output directory {str(path)!r}: {each.name!r} in it is not a regular file")
        if found and not overwrite:
            raise UsageError(
                f"output directory {str(path)!r} holds {found[0].name!r} of an earlier run; name another directory, or "
                "--overwrite to replace what is there"
            )
    return path


def _not_finite(value: Any, where: str) -> Iterator[str]:
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{where} = {value}"
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _not_finite(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _not_finite(item, f"{where}[{index}]")


def _layout(value: Any, depth: int) -> str:
    flat = json.dumps(value, ensure_ascii=False, allow_nan=False)
    nested = isinstance(value, dict) or (
        isinstance(value, list | tuple) and any(isinstance(item, dict | list | tuple) for item in value)
    )
    if not nested or len(flat) + 2 * depth <= _WIDTH:
        return flat  # samples stay on one line, however many there are
    pad = "  " * (depth + 1)
    end = "\n" + "  " * depth
    if isinstance(value, dict):
        items = (f"{pad}{json.dumps(key)}: {_layout(item, depth + 1)}" for key, item in value.items())
        return "{\n" + ",\n".join(items) + end + "}"
    return "[\n" + ",\n".join(pad + _layout(item, depth + 1) for item in value) + end + "]"
