"""Names what races were of: what all have in common, and what tells one from another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlpfusion.report.table.model import Value
    from mlpfusion.stages.tabulate.races import Race


class Field(NamedTuple):
    """Something that a race was of: its name, its heading, and the value. `of_shape`: means are over it."""

    key: str
    head: str
    value: Callable[[Race], Value]
    right: bool = False
    of_shape: bool = False


def file_of(race: Race) -> str:
    """The file of a race, and its name in a file of several."""
    return race.source.name if race.part is None else f"{race.source.name}: {race.part}"


FIELDS: Final = (
    Field("device", "device", lambda race: race.device),
    Field("activation", "activation", lambda race: race.work.spec.activation),
    Field("dtype", "dtype", lambda race: race.work.spec.dtype),
    Field("bias", "bias", lambda race: race.work.spec.bias),
    Field("mode", "mode", lambda race: race.work.mode),
    Field("hidden_size", "hidden", lambda race: race.work.spec.hidden_size, right=True, of_shape=True),
    Field("intermediate_size", "inner", lambda race: race.work.spec.intermediate_size, right=True, of_shape=True),
    Field("tokens", "tokens", lambda race: race.work.tokens, right=True, of_shape=True),
    Field("file", "file", file_of),
)
_BY_KEY: Final = {field.key: field for field in FIELDS}


def varying(races: Sequence[Race]) -> tuple[Field, ...]:
    """The fields by which races differ; the file is one of them only where nothing else tells two apart."""
    fields = tuple(field for field in FIELDS if field.key != "file" and len({field.value(race) for race in races}) > 1)
    told = {tuple(field.value(race) for field in fields) for race in races}
    return fields if len(told) == len(races) else (*fields, _BY_KEY["file"])


def title(races: Sequence[Race]) -> str:
    """What all races have in common, in one line."""
    differing = {field.key for field in varying(races)}
    if not races:
        return ""
    first = races[0]
    spec = first.work.spec
    sizes = differing.isdisjoint(("hidden_size", "intermediate_size"))
    words = ["" if "activation" in differing else f"{spec.activation} ", "gated MLP"]
    words += [f" {spec.hidden_size} × {spec.intermediate_size}"] if sizes else []
    parts = ["".join(words)]
    parts += [] if "dtype" in differing else [spec.dtype]
    parts += ["bias"] if spec.bias and "bias" not in differing else []
    parts += [] if "mode" in differing else [first.work.mode]
    parts += [] if "tokens" in differing else [f"{first.work.tokens} token{'s' * (first.work.tokens != 1)}"]
    parts += [] if "device" in differing else [f"on {first.device}"]
    return ", ".join(parts)


def shape_of(race: Race) -> tuple[Value, ...]:
    """What means are over."""
    return tuple(field.value(race) for field in FIELDS if field.of_shape)


def kind_of(race: Race) -> tuple[Value, ...]:
    """What races of one mean have in common."""
    return tuple(field.value(race) for field in FIELDS if not field.of_shape and field.key != "file")


def in_order(races: Sequence[Race], sort: str) -> list[Race]:
    """Races by a field, or by `-field` from the highest down."""
    field = _BY_KEY[sort.removeprefix("-")]
    return sorted(races, key=field.value, reverse=sort.startswith("-"))  # type: ignore[arg-type]


def check_sort(sort: str, columns: Sequence[str]) -> bool:
    """Whether `--sort` names a field of races, and not a column.

    Raises:
        UsageError: it names neither.
    """
    key = sort.removeprefix("-")
    if key not in _BY_KEY and key not in columns:
        raise UsageError(f"unknown column {key!r} of --sort; valid: {', '.join((*_BY_KEY, *columns))}")
    return key in _BY_KEY
