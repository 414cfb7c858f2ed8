"""Reads and writes mlpfusion's own files: JSON with its kind and schema number at the top."""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from mlpfusion.errors import MeasurementError, UsageError
from mlpfusion.records import bench, choice, prediction, profile, proof, tuning, validation
from mlpfusion.records.bench import Bench, Profiles
from mlpfusion.records.choice import Choice, Plan
from mlpfusion.records.prediction import Foresight
from mlpfusion.records.profile import Profile
from mlpfusion.records.proof import Proof
from mlpfusion.records.sweep import study
from mlpfusion.records.sweep.study import Study
from mlpfusion.records.tuning import Tuning
from mlpfusion.records.validation import SelfTest, Validation
from mlpfusion.storage import files, inputs, invariants, schema_1
from mlpfusion.storage.letters import escaped
from mlpfusion.storage.redacted import redacted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from mlpfusion.records.base import Record

RESULT_NAME: Final = "result.json"  # the result file inside the directory of `--out`, beside the traces
TRACE_SUFFIX: Final = ".trace.json.gz"  # of a backend's trace in that directory
CELLS: Final = "cells"  # the folder of a study's result files, beside its own file
RESULT: Final = "result file"  # what messages call the files
CHOICE: Final = "choice file"
PLAN: Final = "choice plan"
STUDY: Final = "study file"
_MOST_BYTES: Final = 2**28  # of a file that is read; a profile of eight backends has less than 2**20
_WIDTH: Final = 120  # a JSON value that fits on such a line is not broken up
_VERSION: Final = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9.]+)?")
_SHOWN: Final = 40  # characters of a value that a message quotes
_START: Final = 4096  # bytes in which a file says what it is
_KIND: Final = re.compile(rb'^\s*\{\s*"schema"\s*:\s*\w+\s*,\s*"kind"\s*:\s*"([\w -]+)"')
_TRAFFIC: Final = "traffic"
Result = Profile | Choice | Plan | Foresight | Proof | Validation | SelfTest | Tuning | Study | Profiles | Bench


class _Kind(NamedTuple):
    """What a file of a kind holds, and the newest schema of it that is read; those from 1 on are."""

    record: type[Result]
    newest: int


_KINDS: Final = {
    "profile": _Kind(Profile, profile.SCHEMA),
    "choice": _Kind(Choice, choice.SCHEMA),
    "choice plan": _Kind(Plan, choice.SCHEMA),
    "prediction": _Kind(Foresight, prediction.SCHEMA),
    "proof": _Kind(Proof, proof.SCHEMA),
    "validation": _Kind(Validation, validation.SCHEMA),
    "self-test": _Kind(SelfTest, validation.SCHEMA),
    "tuning": _Kind(Tuning, tuning.SCHEMA),
    "study": _Kind(Study, study.SCHEMA),
    _TRAFFIC: _Kind(Profiles, bench.SCHEMA),
    **dict.fromkeys(bench.KINDS, _Kind(Bench, bench.SCHEMA)),
}


# ---- files -----------------------------------------------------------------------------------------------------------


def save(result: Profile | Choice | Plan | Study | Validation | SelfTest, path: str | os.PathLike[str]) -> None:
    """Write a result to `path`, `redacted`: a reader sees the old file or the new one, never half of either.

    Raises:
        UsageError: `path` cannot be a result file (a directory, a device, a missing folder).
        MeasurementError: a number in it is NaN or infinite, which is no result and no JSON.
        MlpfusionError: the disk refused.
    """
    named: dict[type, str] = {Choice: CHOICE, Plan: PLAN, Study: STUDY}
    data = encode(redacted(result)).encode("utf-8", "backslashreplace")
    files.write_whole(named.get(type(result), RESULT), Path(path), data)


def load(path: str | os.PathLike[str]) -> Profile:
    """The profile in a result file, plain or gzip; `-` is stdin.

    Raises:
        UsageError: there is no such file, or it is not a profile of a schema up to this one; the message says which.
    """
    found = _load(RESULT, path, ("profile",))
    assert isinstance(found, Profile)
    return found


def load_choice(path: str | os.PathLike[str]) -> Choice:
    """The choice in a file. Whether it holds here is another question: `conditions.differences` has the answer.

    Raises:
        UsageError: there is no such file, or it is no choice of this schema, or a damaged one.
    """
    found = _load(CHOICE, path, ("choice",))
    assert isinstance(found, Choice)
    return found


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """The plan of a choice in a file; errors are as of `load_choice`."""
    found = _load(PLAN, path, ("choice plan",))
    assert isinstance(found, Plan)
    return found


def load_study(path: str | os.PathLike[str]) -> Study:
    """The study in a file; errors are as of `load_choice`."""
    found = _load(STUDY, path, ("study",))
    assert isinstance(found, Study)
    return found


def load_any(path: str | os.PathLike[str]) -> Result:
    """What a verb has written to a file, of any kind, plain or gzip; `-` is stdin. Errors are as of `load`."""
    return _load(RESULT, path, tuple(_KINDS))


def load_with_digest(path: str | os.PathLike[str]) -> tuple[Result, str]:
    """What `load_any` gives, and the SHA-256 of the bytes that it was read from, as they are on disk."""
    data = inputs.raw(RESULT, path, _MOST_BYTES)
    found = _parsed(RESULT, path, tuple(_KINDS), inputs.unpacked(RESULT, path, data, _MOST_BYTES))
    return found, hashlib.sha256(data).hexdigest()


def load_profiles(path: str | os.PathLike[str]) -> dict[str, Profile]:
    """The profiles in one file of several, by name; errors are as of `load`."""
    found = _load(RESULT, path, (_TRAFFIC,))
    assert isinstance(found, Profiles)
    return found.profiles


def kind_of(path: Path) -> str | None:
    """The kind that a plain file of mlpfusion names at its top, whatever follows; None of any other file."""
    try:
        with path.open("rb") as file:
            start = file.read(_START)
    except OSError:
        return None
    found = _KIND.search(start)
    return None if found is None else found[1].decode()


def _load(what: str, path: str | os.PathLike[str], kinds: Sequence[str]) -> Result:
    named = what == RESULT
    data = inputs.read(what, path, _MOST_BYTES) if named else files.read_whole(what, Path(path), _MOST_BYTES)
    return _parsed(what, path, kinds, data)


def _parsed(what: str, path: str | os.PathLike[str], kinds: Sequence[str], data: bytes) -> Result:
    named = what == RESULT  # a result file is shown by its path alone, as it may be of any name
    shown = "stdin" if inputs.is_stdin(path) and named else repr(str(path)) if named else f"{what} {str(path)!r}"
    head = _head(data, shown, RESULT if named else "file")
    _check_head(head, shown, kinds)
    wrong = f"{shown} is a damaged {head.kind}" if named else f"{shown} is damaged"
    return _decoded(data, head, wrong)


def _decoded(data: bytes, head: _Head, wrong: str) -> Result:
    kind = _KINDS[head.kind]
    try:
        if kind.record is Bench:
            content = msgspec.json.decode(data, type=dict[str, Any])
            del content["schema"], content["kind"]
            found: Result = Bench(schema=head.schema, kind=head.kind, content=content)
        elif kind.record is Profiles:
            found = msgspec.convert(_with_profiles(msgspec.json.decode(data), wrong), Profiles)
        elif head.schema < kind.newest:
            found = msgspec.convert(schema_1.upgraded(msgspec.json.decode(data)), kind.record)
        else:
            found = msgspec.json.decode(data, type=kind.record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(_placed(f"{wrong}: {error}", head)) from None
    for broken in invariants.broken(found):
        raise UsageError(_placed(f"{wrong}: {broken}", head))
    return found


def _with_profiles(document: dict[str, Any], wrong: str) -> dict[str, Any]:
    """The document of a file of several profiles, each of which may be of any schema that is read."""
    profiles = document.get("profiles")
    if not isinstance(profiles, dict):
        return document
    found = {}
    for name, each in profiles.items():
        shown = f"{wrong}: profile {name!r} in it"
        head = _head(msgspec.json.encode(each), shown)
        _check_head(head, shown, ("profile",))
        found[name] = schema_1.upgraded(each) if head.schema < profile.SCHEMA else each
    return {**document, "profiles": found}


def load_folder(path: str | os.PathLike[str]) -> list[tuple[str, Result]]:
    """Every file of ours in a folder, by its path in it, in the order of `files_in`.

    Raises:
        UsageError: there is none, or one is damaged.
    """
    return [(str(each.relative_to(path)), load_any(each)) for each in files_in(path)]


def files_in(path: str | os.PathLike[str]) -> list[Path]:
    """The files of ours in a folder and below it: the choice first, and the shortest paths; others are left out.

    Raises:
        UsageError: there is none, or a study's file is damaged.
    """
    folder = Path(path)
    found = kinds_in(folder)
    if not found:
        raise UsageError(
            f"folder {str(folder)!r} holds no file of mlpfusion; name a result file, or a folder with some"
        )
    return sorted(found, key=lambda each: (found[each] != "choice", len(each.parts), str(each)))


def kinds_in(folder: Path) -> dict[Path, str]:
    """The files of ours in a folder and below it, and of which kind each is; of a study's folder, what that lists.

    Beside its cells lie those of an earlier definition, and the shards that it was merged from.

    Raises:
        UsageError: a study's file is damaged.
    """
    kinds = {each: kind_of(each) for each in folder.rglob("*.json") if each.is_file()}  # a pipe may never end
    found = {each: kind for each, kind in kinds.items() if kind in _KINDS}
    for place in sorted((each for each, kind in found.items() if kind == "study"), key=lambda each: len(each.parts)):
        if place in found:  # else it is a shard of one above
            own = {place, *cells_of(place, load_study(place))}
            found = {each: kind for each, kind in found.items() if each in own or not each.is_relative_to(place.parent)}
    return found


def cells_of(path: Path, study: Study) -> list[Path]:
    """The result files of a study's cells that are there, `path` being that of its own file."""
    found = [path.parent / CELLS / each.file for each in study.cells if each.file is not None]
    return [each for each in dict.fromkeys(found) if each.is_file()]


def _placed(message: str, head: _Head) -> str:
    return schema_1.place(message) if head.schema == 1 else message


def check_file(path: Path, *, kind: str = "profile", what: str = RESULT, advice: str = "; name another file") -> Path:
    """The real path behind `path` if a file of a kind can be written there, else a `UsageError`; leaves nothing behind.

    What is there already may only be such a file, of any schema, or empty: anything else, a trace say, would be lost.
    """
    target = files.check_file(what, path)
    if target.exists() and target.stat().st_size and not _holds(kind, target):
        raise UsageError(f"{what} {str(path)!r} exists and holds no {kind!r} of mlpfusion{advice}")
    return target


def _holds(kind: str, path: Path) -> bool:
    try:
        return bool(_head(files.read_whole(RESULT, path, _MOST_BYTES), "it").kind == kind)
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


# ---- the top of a file -----------------------------------------------------------------------------------------------


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """The top of a file as it is there: `kind` and `schema` say how to read it, `mlpfusion` which version wrote it."""

    schema: Any = None
    kind: Any = None
    mlpfusion: Any = None


def _head(data: bytes, shown: str, what: str = "file") -> _Head:
    """The head of a JSON file; messages call it `shown`, and `what` it should be.

    Raises:
        UsageError: it is no JSON, or no file of mlpfusion.
    """
    try:
        found = msgspec.json.decode(data, type=_Head)
    except msgspec.ValidationError:
        found = _Head()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{shown} is not JSON, or cut short: {error}") from None
    if not isinstance(found.kind, str) or found.schema is None:
        raise UsageError(f"{shown} is not a {what} of mlpfusion: no schema number and kind at its top")
    return found


def _check_head(found: _Head, shown: str, kinds: Sequence[str]) -> None:
    """Raise a UsageError unless the file is of one of these kinds and of a schema of it that is read."""
    if found.kind not in kinds:
        raise UsageError(f"{shown} holds a {_quoted(found.kind)}; valid here: {', '.join(map(repr, kinds))}")
    newest = _KINDS[found.kind].newest
    schema = found.schema
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise UsageError(f"{shown} is damaged: its schema is {_quoted(schema)}; valid: 1 to {newest}")
    if schema > newest:
        raise UsageError(f"{shown} was {_newer(found, newest)}")


def _quoted(value: object) -> str:
    """A value of a file as a message shows it."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _newer(found: _Head, newest: int) -> str:
    """Which version to upgrade to: the one that wrote the file, if the file names one."""
    known = isinstance(found.mlpfusion, str) and len(found.mlpfusion) <= _SHOWN and _VERSION.fullmatch(found.mlpfusion)
    by = f"mlpfusion {found.mlpfusion}" if known else "a newer mlpfusion"
    reads = f"this one reads up to {newest}: pip install -U"
    wanted = f"'mlpfusion>={found.mlpfusion.split('+')[0]}'" if known else "mlpfusion"
    return f"written by {by} with schema {_quoted(found.schema)}; {reads} {wanted}"


# ---- JSON ------------------------------------------------------------------------------------------------------------


def encode(result: Record) -> str:
    """The JSON text of a result: the same text for equal results, one line per small object and list of numbers.

    A choice, which is kept beside a model and compared by line, has one line per value; so has a study, which may have
    thousands of cells.

    Raises:
        MeasurementError: a number in it is NaN or infinite.
    """
    plain = msgspec.to_builtins(result)
    for where in _not_finite(plain, "result"):
        raise MeasurementError(f"{where} is not a finite number and cannot be a result")
    if isinstance(result, Choice | Plan | Study):
        return escaped(msgspec.json.format(msgspec.json.encode(result), indent=1).decode()) + "\n"
    return escaped(_layout(plain, 0)) + "\n"


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
