"""Takes out of a record what is its maker's own, before it goes into a result file."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args, get_origin

import msgspec

from mlpfusion.device import Device
from mlpfusion.records.base import Record
from mlpfusion.records.choice import Conditions
from mlpfusion.records.environment import Checkout, Environment
from mlpfusion.records.profile import Decoded
from mlpfusion.records.validation import Checked, Control, Peer
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.storage import private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

Kept = TypeVar("Kept", bound=Record)

# Records of what drivers and our own package say, and the only fields of two more that anybody else has a say in.
_FACTS: Final = (Checkout, Control, Decoded, Device, MLPSpec, Workload)
_ONLY: Final[dict[type, frozenset[str]]] = {
    Environment: frozenset({"distributions", "card"}),
    Conditions: frozenset({"versions"}),
    Checked: frozenset({"sentence", "repro", "refused"}),
}
# Fields with our own words, times and digests; and those of files, which have to be found again beside the result.
_OURS: Final = frozenset({"mlpfusion", "created", "started", "definition", "digest", "policy", "gpu", "gpus"})
_FILES: Final = frozenset({"file", "trace_file"})
# Fields that name backends and targets, by which rows are found; so do the keys of all dicts but of reasons.
_NAMES: Final = frozenset(
    {"backend", "backends", "chosen", "winner", "runner_up", "tied", "target", "not_judged", "baseline"}
)
# Fields of what names kernels and functions, in which a word is none of a user's or host's, whatever they are called.
_KERNELS: Final = frozenset({"name", "op", "launched_by", "kernels", "runtime_launches"})


def redacted(record: Kept) -> Kept:
    """The record with each text as `private.text` leaves it, and loose backends and targets without their folders.

    A name by which rows are found is changed in the same way wherever it stands. Twice gives the same as once.
    """
    short = private.last_parts(dict.fromkeys(_named(record, "")))
    names = {name: new for name, new in short.items() if name != new}
    for name, new in list(names.items()):  # a sentence may have the path alone
        path = name.rpartition(":")[0]
        if path.endswith(".py"):
            names.setdefault(path, new.rpartition(":")[0])
    longest = sorted(names, key=len, reverse=True)  # one name may be a part of another

    def cleaned(said: str, field: str) -> str:
        if said in names:
            return private.text(names[said])
        for name in longest:
            said = said.replace(name, names[name])
        return private.text(said, names=field not in _KERNELS)

    found: Kept = _changed(record, cleaned, "")
    return found


def renamed(record: Kept, names: Mapping[str, str]) -> Kept:
    """The record with other names for what is called so, wherever they stand alone."""
    found: Kept = _changed(record, lambda said, _: names.get(said, said), "")
    return found


def _named(value: Any, field: str) -> Iterator[str]:
    """The names of backends and targets, in the order of the record."""
    if isinstance(value, str):
        if field in _NAMES:
            yield value
    elif isinstance(value, Record):
        for name in _texts(type(value)):
            inner = "target" if isinstance(value, Peer) and name == "name" else name
            yield from _named(getattr(value, name), inner)
    elif isinstance(value, dict):
        for key, item in value.items():
            if field != "reasons" and (".py" in key or key.startswith("auto:")):
                yield from _named(key, "backend")
            yield from _named(item, "")
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _named(item, field)


def _changed(value: Any, cleaned: Callable[[str, str], str], field: str) -> Any:
    """The value with all its texts cleaned; itself if nothing is to be changed."""
    if isinstance(value, str):
        return cleaned(value, field)
    if isinstance(value, Record):
        given = {name: getattr(value, name) for name in _texts(type(value))}
        made = {name: item if _is_beside(name, item) else _changed(item, cleaned, name) for name, item in given.items()}
        changed = {name: item for name, item in made.items() if item is not given[name] and item != given[name]}
        return msgspec.structs.replace(value, **changed) if changed else value
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, item in value.items():
            found[_free(cleaned(key, field), found)] = _changed(item, cleaned, field)
        return found
    if isinstance(value, tuple | list):
        return type(value)(_changed(item, cleaned, field) for item in value)
    return value


def _is_beside(field: str, value: Any) -> bool:
    """Whether it is the name of a file beside the result."""
    return field in _FILES and value is not None and "/" not in value


def _free(key: str, taken: dict[str, Any]) -> str:
    """The key, numbered if it is there: what told two apart may be gone."""
    number, free = 1, key
    while free in taken:
        number += 1
        free = f"{key} ({number})"
    return free


@functools.cache
def _texts(kind: type) -> tuple[str, ...]:
    """The fields of a record in which third parties may have a say."""
    if kind in _FACTS:
        return ()
    only = _ONLY.get(kind)
    fields = msgspec.structs.fields(kind)
    return tuple(
        each.name
        for each in fields
        if _has_text(each.type) and (each.name not in _OURS if only is None else each.name in only)
    )


def _has_text(kind: Any) -> bool:
    """Whether a value of a type may hold a text that is none of a fixed list."""
    if kind in (str, Any, object) or (isinstance(kind, type) and issubclass(kind, Record)):
        return True
    return get_origin(kind) is not Literal and any(map(_has_text, get_args(kind)))
