"""Reads a study file: TOML, whose every key is known and every value right, or refused by line and name."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from mlpfusion import backend as registry
from mlpfusion import limits, spec
from mlpfusion.errors import UsageError
from mlpfusion.models import known
from mlpfusion.records.sweep.cells import Settings, Use, Work
from mlpfusion.stages.choose import run as choose
from mlpfusion.stages.profile.settings import ROUNDS
from mlpfusion.stages.sweep.places import places
from mlpfusion.storage import files

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mlpfusion.records.choice import Model
    from mlpfusion.stages.sweep.places import Place

STUDY: Final = "study"  # what messages call the file
_MOST_BYTES: Final = 2**22
_MOST_CELLS: Final = 1_000_000
_AXES: Final = ("models", "tokens", "dtypes", "modes", "tp")
_KEYS: Final = (*_AXES, "backends", "rounds", "processes", "counters", "time_limit", "gpus", "exclude", "also")
_OF_MODEL: Final = ("name", "hidden_size", "intermediate_size", "activation", "dtype", "bias")
_Value = TypeVar("_Value")


class Definition(NamedTuple):
    """What a study file says: its name, what all cells share, its models, and the work of its cells, each once."""

    name: str
    settings: Settings
    models: tuple[Model, ...]
    work: tuple[Work, ...]
    lines: Mapping[str, int]


class Axes(NamedTuple):
    """The lists whose product are cells; `dtypes` None means each model's own."""

    models: Sequence[Model]
    tokens: Sequence[int]
    dtypes: Sequence[spec.Dtype] | None
    modes: Sequence[spec.Mode]
    tp: Sequence[int]


def read(path: str | os.PathLike[str]) -> Definition:
    """The study in a file; a model's path in it is relative to its folder.

    Raises:
        UsageError: no such file, no TOML, or something in it is not right; the message has the line.
    """
    file = Path(path)
    try:
        text = files.read_whole(STUDY, file, _MOST_BYTES).decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"study {str(path)!r} is no text in UTF-8: byte {error.start}") from None
    try:
        values: dict[str, Any] = msgspec.toml.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"study {str(path)!r}, {_placed(str(error), text)}") from None
    return _Reader(str(path), file.resolve().parent, values, places(text)).definition(file.stem)


class _Reader(NamedTuple):
    """A study file that is TOML, and the lines of what is in it."""

    file: str
    folder: Path
    values: dict[str, Any]
    places: Mapping[Place, int]

    def wrong(self, place: Place, message: str) -> UsageError:
        """The refusal of what is at a place, or, of what is not there, of the nearest that is."""
        while place and place not in self.places:
            place = place[:-1]
        line = f", line {self.places[place]}" if place else ""
        return UsageError(f"study {self.file!r}{line}: {message}")

    def definition(self, name: str) -> Definition:
        self._check_keys((), self.values, _KEYS)
        if "models" not in self.values:
            raise self.wrong((), "it names no models; valid: names, paths of a config.json, or tables of sizes")
        axes = self._axes((), self.values, None)
        named = {"backends": self._list((), "backends", self._backend)} if "backends" in self.values else {}
        limit = self._one("time_limit", 600.0, lambda value: limits.seconds("time_limit", value))
        settings = Settings(
            backends=tuple(named.get("backends", registry.names())),
            rounds=self._one("rounds", ROUNDS, lambda value: limits.whole("rounds", value, limits.ROUNDS)),
            processes=self._one("processes", 1, lambda value: limits.whole("processes", value, limits.PROCESSES)),
            counters=self._one("counters", False, lambda value: _flag("counters", value)),
            time_limit_s=limit,
            gpus=tuple(self._list((), "gpus", _kind)) if "gpus" in self.values else None,
        )
        work, lines, models = self._work(axes)
        return Definition(name, settings, tuple(models.values()), work, lines)

    # -- cells

    def _work(self, axes: Axes) -> tuple[tuple[Work, ...], dict[str, int], dict[str, Model]]:
        """Every workload once, with all models that it is of; the line of each model; the models by name."""
        found: dict[spec.Workload, tuple[Use, ...]] = {}
        lines: dict[str, int] = {}
        models: dict[str, Model] = {}
        self._take((), axes, found, lines, models)
        self._exclude(found)
        for number, table in enumerate(self._tables("also")):
            place: Place = ("also", number)
            before = sum(map(len, found.values()))
            self._take(place, self._axes(place, table, axes), found, lines, models)
            if sum(map(len, found.values())) == before:
                raise self.wrong(place, "this [[also]] adds no cell: all of its cells are there already")
        if not found:
            raise self.wrong(("exclude",), "no cell is left: all are excluded")
        return tuple(Work(of=of, workload=each) for each, of in found.items()), lines, models

    def _take(
        self,
        place: Place,
        axes: Axes,
        found: dict[spec.Workload, tuple[Use, ...]],
        lines: dict[str, int],
        models: dict[str, Model],
    ) -> None:
        size = len(axes.models) * len(axes.tokens) * len(axes.dtypes or "1") * len(axes.modes) * len(axes.tp)
        if size + len(found) > _MOST_CELLS:
            raise self.wrong((*place, "models"), f"{size} cells; at most {_MOST_CELLS} are taken")
        own = "models" in self._at(place)
        for number, model in enumerate(axes.models):
            where: Place = (*place, "models", number) if own else ("models", number)
            if models.setdefault(model.name, model) != model:
                raise self.wrong(where, f"another model is named {model.name!r} already; give this one a `name`")
            lines.setdefault(model.name, self.places.get(where, 1))
            for tp in axes.tp:
                for dtype in axes.dtypes or (model.spec.dtype,):
                    for work in self._workloads(where, model, axes, tp, dtype):
                        use = Use(model=model.name, tp=tp)
                        if use not in found.get(work, ()):
                            found[work] = (*found.get(work, ()), use)

    def _workloads(self, where: Place, model: Model, axes: Axes, tp: int, dtype: spec.Dtype) -> Sequence[spec.Workload]:
        made = replace(model, spec=replace(model.spec, dtype=dtype))
        try:
            return choose.workloads(made, axes.tokens, axes.modes, tp)
        except UsageError as error:
            raise self.wrong(where, str(error)) from None

    def _exclude(self, found: dict[spec.Workload, tuple[Use, ...]]) -> None:
        """Take out what the `exclude` tables describe, of the product alone."""
        for number, table in enumerate(self._tables("exclude")):
            place: Place = ("exclude", number)
            self._check_keys(place, table, _AXES)
            if not table:
                raise self.wrong(place, "an empty [[exclude]] would exclude every cell; name some by models or tokens")
            wanted = {name: self._list(place, name, self._excluded(name)) for name in table}
            hit = False
            for work, of in list(found.items()):
                facts = {"tokens": work.tokens, "dtypes": work.spec.dtype, "modes": work.mode}
                if any(facts[name] not in values for name, values in wanted.items() if name in facts):
                    continue
                kept = tuple(use for use in of if not _is_meant(use, wanted))
                hit = hit or kept != of
                found[work] = kept
                if not kept:
                    del found[work]
            if not hit:
                raise self.wrong(place, "this [[exclude]] matches no cell")

    def _excluded(self, name: str) -> Callable[[Any], Any]:
        return (lambda value: self._model(value).name) if name == "models" else _AXIS[name]

    # -- values

    def _axes(self, place: Place, table: dict[str, Any], usual: Axes | None) -> Axes:
        if usual is not None:
            self._check_keys(place, table, _AXES)
            if not table:
                raise self.wrong(place, f"an empty [[also]] adds no cell; valid: {', '.join(_AXES)}")
        given = {name: self._list(place, name, _AXIS.get(name, self._model)) for name in _AXES if name in table}
        if usual is not None:
            return usual._replace(**given)
        if len({model.name for model in given["models"]}) < len(given["models"]):
            names = [model.name for model in given["models"]]
            second = next(number for number, name in enumerate(names) if name in names[:number])
            raise self.wrong(("models", second), f"another model is named {names[second]!r} already; give one a `name`")
        return Axes(
            models=given["models"],
            tokens=given.get("tokens", choose.TOKENS),
            dtypes=given.get("dtypes"),
            modes=given.get("modes", ("inference",)),
            tp=given.get("tp", (1,)),
        )

    def _at(self, place: Place) -> Any:
        value: Any = self.values
        for part in place:
            value = value[part]
        return value

    def _tables(self, name: str) -> Iterator[dict[str, Any]]:
        found = self.values.get(name, [])
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise self.wrong((name,), f"{name} must be tables, as by [[{name}]], got {found!r}")
        if name in self.values and not found:
            raise self.wrong((name,), f"{name} is empty")
        yield from found

    def _check_keys(self, place: Place, table: dict[str, Any], valid: Sequence[str]) -> None:
        for key in table:
            if key not in valid:
                near = difflib.get_close_matches(key, valid, 1)
                hint = f"; did you mean {near[0]}?" if near else ";"
                where = f" in [[{place[0]}]]" if place and len(place) == 2 and place[0] != "models" else ""
                raise self.wrong((*place, key), f"unknown key {key!r}{where}{hint} valid: {', '.join(valid)}")

    def _list(self, place: Place, name: str, checked: Callable[[Any], _Value]) -> list[_Value]:
        """The values of a list that is not empty, each right and there once; a single value is a list of one."""
        at = (*place, name)
        given = self._at(at)
        values = given if isinstance(given, list) else [given]
        if not values:
            raise self.wrong(at, f"{name} is empty")
        found: dict[_Value, None] = {}  # a list of thousands is looked through once
        for number, value in enumerate(values):
            where = (*at, number)
            try:
                one = checked(value)
            except UsageError as error:
                raise self.wrong(where, f"{name}: {error}") from None
            if one in found:
                raise self.wrong(where, f"{name} has {getattr(one, 'name', value)!r} twice")
            found[one] = None
        return list(found)

    def _one(self, name: str, usual: _Value, checked: Callable[[Any], _Value]) -> _Value:
        if name not in self.values:
            return usual
        try:
            return checked(self.values[name])
        except UsageError as error:
            raise self.wrong((name,), str(error)) from None

    def _model(self, value: object) -> Model:
        if isinstance(value, str):
            if value in known.models():
                return known.models()[value]
            path = self.folder / value
            return known.find(path if value and path.exists() else value)
        if not isinstance(value, dict):
            raise UsageError(f"a model is a name, a path or a table of sizes, got {value!r}")
        for key in value:
            if key not in _OF_MODEL:
                raise UsageError(f"unknown key {key!r} of a model; valid: {', '.join(_OF_MODEL)}")
        for key in ("hidden_size", "intermediate_size", "activation"):
            if key not in value:
                raise UsageError(f"a model of sizes needs {key} too; valid: {', '.join(_OF_MODEL)}")
        made = known.of_sizes(
            spec.MLPSpec(
                hidden_size=value["hidden_size"],
                intermediate_size=value["intermediate_size"],
                activation=spec.one_of("activation", value["activation"], spec.ACTIVATIONS, spec.ACTIVATION_ALIASES),
                dtype=_AXIS["dtypes"](value.get("dtype", "bfloat16")),
                bias=value.get("bias", False),
            )
        )
        name = value.get("name", made.name)
        if not isinstance(name, str) or not name.strip():
            raise UsageError(f"name must be a text, got {name!r}")
        return replace(made, name=name)

    def _backend(self, value: object) -> str:
        """A backend's name; the file of one is relative to the study's folder."""
        if not isinstance(value, str):
            raise UsageError(f"a backend is a name, got {value!r}")
        path, colon, what = value.rpartition(":")
        if colon and path.endswith(".py") and not Path(path).is_file() and (self.folder / path).is_file():
            value = f"{self.folder / path}:{what}"
        return registry.check_name(value)


def _placed(error: str, text: str) -> str:
    """A message of the TOML reader with its line in front; what it finds at the end is in the last line."""
    reason, _, place = error.rpartition(" (at ")
    named = re.match(r"line (\d+)", place)
    line = int(named[1]) if named else len(text.rstrip().splitlines()) or 1
    reason = reason or error
    return f"line {line}: {reason[:1].lower()}{reason[1:]}"


def _is_meant(use: Use, wanted: Mapping[str, Sequence[object]]) -> bool:
    return use.model in wanted.get("models", [use.model]) and use.tp in wanted.get("tp", [use.tp])


def _kind(value: object) -> str:
    """A kind of GPU as it is named: a card's short name such as h200, or cpu."""
    if not isinstance(value, str):
        raise UsageError(f"a kind of GPU is a name, got {value!r}")
    if value != "cpu":
        choose.cards_named(value, ("cpu",))
    return value


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{name} must be true or false, got {value!r}")
    return value


_AXIS: Final[dict[str, Callable[[Any], Any]]] = {
    "tokens": lambda value: limits.whole("a number of tokens", value, limits.TOKENS),
    "dtypes": lambda value: spec.one_of("dtype", value, spec.DTYPES, spec.DTYPE_ALIASES),
    "modes": lambda value: spec.one_of("mode", value, spec.MODES),
    "tp": lambda value: limits.whole("a number of cards", value, limits.CARDS),
}
