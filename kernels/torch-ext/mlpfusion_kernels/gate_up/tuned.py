"""Looks up the configuration of a call: the one tuned for this card and shape, else the shipped one.

Nothing is ever tuned by a call: what was tuned comes from one file, which is read when a process first needs it.
"""

# Shapes are passed in the order of the formula.
# ruff: noqa: PLR0917

from __future__ import annotations

import functools
import hashlib
import json
import os
import stat
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton

from .choice import choose, choose_backward
from .configs import Card, Config
from .decode import DecodeConfig, StreamTile, choose_decode
from .limits import DIRECTIONS, decode_refusal, refusal

KIND = "tuned configurations of mlpfusion_kernels"
SCHEMA = 1

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_MOST_BYTES = 16 * 2**20
_MOST_REASONS = 3


class Key(NamedTuple):
    """What an entry of the file is for. `tokens` stands for its bucket: all numbers of tokens up to it, to its half."""

    device: str
    capability: tuple[int, int]
    dtype: str
    direction: str
    tokens: int
    hidden_size: int
    intermediate_size: int


class Entry(NamedTuple):
    """One configuration of the file, and the version of the kernels that it was found for.

    Entries of one key and different versions are different entries, as environments that share the file have them.
    """

    key: Key
    kernels: str
    config: Config | DecodeConfig


def bucket(tokens: int) -> int:
    """The next power of two: shapes with as many tokens share a configuration; the sizes of the weights are exact."""
    return 1 << (tokens - 1).bit_length()


def cache_file() -> Path:
    """Path of the file: in $MLPFUSION_CACHE_DIR, else in the folder `mlpfusion` of the user's cache directory."""
    chosen = os.environ.get("MLPFUSION_CACHE_DIR")
    if chosen:
        return Path(chosen) / "tuned.json"
    caches = os.environ.get("XDG_CACHE_HOME", "")
    # By the XDG specification a relative path there is to be ignored.
    folder = Path(caches) if os.path.isabs(caches) else Path(os.path.expanduser("~"), ".cache")
    return folder / "mlpfusion" / "tuned.json"


@functools.cache
def kernels_version() -> str:
    """16 hexadecimal digits that change with the kernels, with what launches them and with Triton.

    Raises OSError where the sources of this package are not files.
    """
    here = Path(__file__)
    found = hashlib.sha256(triton.__version__.encode())
    for path in (*sorted(here.parent.glob("*.py")), here.parents[1] / "activations.py"):
        if path != here:
            found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


# ---- what a call asks ------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def forward_config(
    card: Card,
    dtype: torch.dtype,
    m: int,
    hidden: int,
    intermediate: int,
    *,
    training: bool = False,
    descriptors: bool = True,
) -> Config:
    """As `choose`, but a tuned configuration comes first."""
    found = _tuned(card, dtype, "training" if training else "forward", m, hidden, intermediate)
    if isinstance(found, Config) and (descriptors or found.form == "pointer"):
        return found
    return choose(card, dtype, m, hidden, intermediate, training=training, descriptors=descriptors)


@functools.lru_cache(maxsize=1024)
def backward_config(card: Card, dtype: torch.dtype, m: int, hidden: int, intermediate: int) -> Config:
    """As `choose_backward`, but a tuned configuration comes first."""
    found = _tuned(card, dtype, "backward", m, hidden, intermediate)
    return found if isinstance(found, Config) else choose_backward(card, dtype, m, hidden, intermediate)


@functools.lru_cache(maxsize=1024)
def decode_config(card: Card, dtype: torch.dtype, m: int, hidden: int, intermediate: int) -> DecodeConfig:
    """The configuration for a few tokens: a tuned one, else that of `choose_decode`."""
    found = _tuned(card, dtype, "decode", m, hidden, intermediate)
    return found if isinstance(found, DecodeConfig) else shipped_decode(card, dtype, m, hidden, intermediate)


def shipped_decode(card: Card, dtype: torch.dtype, m: int, hidden: int, intermediate: int) -> DecodeConfig:
    """The configuration for a few tokens without the file."""
    overlap = card.capability >= (9, 0)
    sms, itemsize = card.multiprocessors, dtype.itemsize
    return choose_decode(m, hidden, intermediate, sms, itemsize, shared_bytes=card.shared_bytes, overlap=overlap)


def reload_tuned() -> None:
    """Make the next calls read the file of tuned configurations again; a captured graph keeps its own."""
    for each in (forward_config, backward_config, decode_config, _of_card):
        each.cache_clear()


def _tuned(
    card: Card, dtype: torch.dtype, direction: str, m: int, hidden: int, intermediate: int
) -> Config | DecodeConfig | None:
    if not card.name:  # Triton's interpreter
        return None
    return _of_card(card).get(
        Key(card.name, card.capability, _NAMES[dtype], direction, bucket(m), hidden, intermediate)
    )


# ---- the file --------------------------------------------------------------------------------------------------------


@functools.cache
def _of_card(card: Card) -> dict[Key, Config | DecodeConfig]:
    """What the file holds for this card and these kernels; what else it holds is ignored, with one warning."""
    path = cache_file()
    try:
        version = kernels_version()
        raw = parse(read(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        warnings.warn(f"tuned configurations in {str(path)!r} are ignored: {_why(error)}", stacklevel=2)
        return {}
    found: dict[Key, Config | DecodeConfig] = {}
    faults: list[str] = []
    stale: dict[Key, str] = {}
    others: list[str] = []
    for place, one in enumerate(raw):
        try:
            key, kernels = key_of(one)
            if (key.device, key.capability) != (card.name, card.capability):
                others.append(key.device)
            elif kernels != version:
                stale[key] = f"entry {place}: found for other kernels ({_short(kernels)}, these are {version!r})"
            else:
                found[key] = _fitting(entry_of(one), card)
        except (ValueError, RecursionError) as error:
            faults.append(f"entry {place}: {error}")
    # What other kernels and other cards have there is of interest only where these have nothing.
    faults += [reason for key, reason in stale.items() if key not in found]
    if others and not found:
        faults.append(f"{len(others)} of other cards than {card.name}: {', '.join(sorted(set(others)))}")
    if faults:
        more = f"; and {len(faults) - _MOST_REASONS} more" if len(faults) > _MOST_REASONS else ""
        reasons = "; ".join(faults[:_MOST_REASONS]) + more
        warnings.warn(f"tuned configurations in {str(path)!r} are ignored in part: {reasons}", stacklevel=2)
    return found


def read(path: Path) -> bytes:
    """The bytes of a file of tuned configurations.

    Raises OSError where it cannot be read, ValueError where it is too large to be one or no regular file.
    """
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be waited for until somebody writes to it
        raise ValueError("it is not a regular file")
    with path.open("rb") as file:
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"it is larger than {_MOST_BYTES // 2**20} MiB")
    return data


def parse(data: bytes) -> list[object]:
    """The entries of a file, not looked into; ValueError says why it is none."""
    try:
        document = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is no JSON: {_why(error)}") from None
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ValueError(f"it has no kind {KIND!r} at its top")
    schema, entries = document.get("schema"), document.get("entries")
    if isinstance(schema, int) and schema > SCHEMA:
        raise ValueError(
            f"its schema is {_short(schema)} and these kernels read up to {SCHEMA}: upgrade them to read it"
        )
    if isinstance(schema, bool) or schema != SCHEMA or not isinstance(entries, list):
        raise ValueError(f"its schema is {_short(schema)}, not {SCHEMA}, or it has no list of entries")
    return entries


def key_of(raw: object) -> tuple[Key, str]:
    """What an undamaged entry of the file is for, and its kernels, whatever configurations those have.

    ValueError names the field at fault.
    """
    if not isinstance(raw, dict):
        raise ValueError(f"it is no object but {_short(raw)}")
    device, dtype, direction, kernels = (_text(raw, name) for name in ("device", "dtype", "direction", "kernels"))
    if dtype not in _DTYPES:
        raise ValueError(f"dtype {_short(dtype)} is none of {', '.join(_DTYPES)}")
    if direction not in DIRECTIONS:
        raise ValueError(f"direction {_short(direction)} is none of {', '.join(DIRECTIONS)}")
    capability = raw.get("capability")
    if not isinstance(capability, list) or [type(part) for part in capability] != [int, int]:
        raise ValueError(f"capability must be two integers, got {_short(capability)}")
    sizes = [_integer(raw, name) for name in ("tokens", "hidden_size", "intermediate_size")]
    if min(sizes) < 1 or bucket(sizes[0]) != sizes[0]:
        raise ValueError(f"sizes must be positive, and tokens a power of two, got {sizes}")
    if raw.get("digest") != digest(raw):
        raise ValueError("its digest is not that of its fields, so it is damaged")
    return Key(device, (capability[0], capability[1]), dtype, direction, *sizes), kernels


def entry_of(raw: Any) -> Entry:
    """An entry of these kernels as it is in the file; ValueError names the field at fault."""
    key, kernels = key_of(raw)
    config = raw.get("config")
    return Entry(key, kernels, _decode(config) if key.direction == "decode" else _config(config))


def entry_to_json(entry: Entry) -> dict[str, Any]:
    """What `entry_of` reads."""
    raw = {**entry.key._asdict(), "kernels": entry.kernels, "config": _plain(entry.config)}
    return {**raw, "digest": digest(raw)}


def digest(raw: dict[str, Any]) -> str:
    """16 hexadecimal digits of an entry's fields: a changed digit in a tile is still a tile, but not the tuned one."""
    fields = [raw.get(name) for name in (*Key._fields, "kernels", "config")]
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]


def document_of(entries: list[Any]) -> bytes:
    """What `parse` reads."""
    document = {"kind": KIND, "schema": SCHEMA, "entries": entries}
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def _fitting(entry: Entry, card: Card) -> Config | DecodeConfig:
    """The configuration of an entry for this card; ValueError says why it cannot run there."""
    config, key, dtype = entry.config, entry.key, _DTYPES[entry.key.dtype]
    if isinstance(config, DecodeConfig):
        reason = decode_refusal(config, card, dtype, key.tokens)
    else:
        reason = refusal(config, card, dtype, key.direction, key.hidden_size)
    if reason is not None:
        raise ValueError(reason)
    return config


def _config(raw: object) -> Config:
    fields = _fields(raw, "config", Config._fields)
    return Config(_text(fields, "form"), *(_integer(fields, name) for name in Config._fields[1:]))


def _decode(raw: object) -> DecodeConfig:
    fields = _fields(raw, "config", DecodeConfig._fields)
    overlap, down = fields["overlap"], fields["down"]
    if not isinstance(overlap, bool):
        raise ValueError(f"overlap must be true or false, got {_short(overlap)}")
    tile = None if down is None else _tile(down, "down")
    return DecodeConfig(_integer(fields, "tokens"), _tile(fields["gate_up"], "gate_up"), tile, overlap)


def _tile(raw: object, name: str) -> StreamTile:
    fields = _fields(raw, name, StreamTile._fields)
    return StreamTile(*(_integer(fields, field) for field in StreamTile._fields))


def _fields(raw: object, what: str, names: tuple[str, ...]) -> dict[str, object]:
    if not isinstance(raw, dict) or set(raw) != set(names):
        raise ValueError(f"{what} must have the fields {', '.join(names)}, got {_short(raw)}")
    return raw


def _text(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a text, got {_short(value)}")
    return value


def _integer(fields: dict[str, Any], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int or abs(value) >= 2**31:  # True is no number of tokens
        raise ValueError(f"{name} must be an integer of 32 bits, got {_short(value)}")
    return value


def _plain(config: Any) -> Any:
    """A configuration as JSON's objects."""
    return {name: _plain(value) for name, value in config._asdict().items()} if hasattr(config, "_asdict") else config


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
