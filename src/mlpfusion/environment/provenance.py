"""Names the distributions behind a backend: its package, those its class names, and those imported for it."""

from __future__ import annotations

import functools
import hashlib
import re
import sys
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mlpfusion import backend as registry
from mlpfusion.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set

    from mlpfusion.records.profile import Row

OURS: Final = registry.OURS
# Every environment has a field for these, with torch's own spelling of its version.
_APART: Final = frozenset({OURS, "mlpfusion-read", "torch", "triton"})

Versions = dict[str, "str | None"]  # a distribution, a loose file or a repository, and its version; None: not installed


def installed(name: str) -> Versions:
    """The distributions behind a backend's name, as far as known without running third-party code.

    A loose file has the digest of its contents for a version. A plugin is its distribution and what that requires; a
    built-in backend is ours and what its class names in `distributions`.
    """
    path = Path(name.rpartition(":")[0])
    if path.suffix == ".py":
        return {name: digest([path]) if path.is_file() else None}
    points = registry.points(name)
    owners = {_canonical(point.dist.name): point.dist.version for point in points if point.dist is not None}
    if registry.is_built_in(name):
        return {**owners, **_declared(points[0].load() if points else None, name)}
    required = {each: version(each) for owner in owners for each in _required(owner) - _APART}
    found = {each: there for each, there in required.items() if there is not None}  # a marker may have left one out
    return {**owners, **found} or {name: None}


def ran(name: str, made: object, before: Set[str]) -> Versions:
    """The distributions of a backend that ran in this process, whose modules were `before` when it was not yet loaded.

    Of a third party's, the distributions whose modules were imported since are named too, where nothing named already
    requires them. Ours declare theirs, as a test sees to: what those import by the way (transformers tries a dozen) is
    not behind them, and would make a choice stale for nothing.

    Raises:
        MeasurementError: its `distributions` or `loaded` is none.
    """
    found = {**installed(name), **of_object(made, name)}
    if registry.is_built_in(name):
        return found
    covered = _closure([*found, OURS])
    imported = [each for key, each in sys.modules.copy().items() if key not in before]
    new = _owners([file for each in imported if (file := getattr(each, "__file__", None))]) - covered
    unsaid = {each for each in new if not any(each in _closure([other]) for other in new - {each})}
    return {**found, **{each: version(each) for each in sorted(unsaid)}}


def of_backend(backend: str | registry.Backend) -> Versions:
    """The distributions behind a backend, given by name or as an object."""
    if isinstance(backend, str):
        return installed(backend)
    module = sys.modules.get(type(backend).__module__)
    file = getattr(module, "__file__", None)
    owners: Versions = {each: version(each) for each in sorted(_owners([file] if file else []))}
    if not owners and file and OURS not in type(backend).__module__.split("."):
        owners = {Path(file).name: digest([Path(file)])}
    return {**owners, **of_object(backend, backend.name)}


def of_targets(targets: Iterable[str]) -> Versions:
    """The distributions behind validation targets, each once."""
    return {each: there for target in dict.fromkeys(targets) for each, there in of_target(target).items()}


def of_target(target: str) -> Versions:
    """The distributions behind one validation target: a backend, a loose file, a Hub folder, or `module:name`."""
    if target in registry.names():
        return installed(target)
    path, _, _ = target.rpartition(":")
    place = Path(path or target)
    if place.suffix == ".py" or place.is_dir():
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        return {str(path or target): digest(files) if place.exists() else None}
    spec = util.find_spec(path.split(".")[0]) if path.split(".")[0].isidentifier() else None
    origin = None if spec is None else spec.origin
    return {each: version(each) for each in sorted(_owners([] if origin is None else [origin]))}


def of_object(made: object, name: str) -> Versions:
    """What a backend declares: its class's `distributions`, and what it has `loaded` from elsewhere.

    Raises:
        MeasurementError: one of them is not what it must be.
    """
    loaded: Any = getattr(made, "loaded", {})
    texts = [*loaded, *loaded.values()] if isinstance(loaded, dict) else [None]
    if not all(isinstance(each, str) for each in texts):
        raise MeasurementError(f"backend {name!r}: its `loaded` is {loaded!r}; it must be a dict of names and versions")
    return {**_declared(made, name), **loaded}


def behind(backends: Iterable[str]) -> Versions:
    """The distributions behind these backends, each once."""
    return {each: there for name in backends for each, there in installed(name).items()}


def of_rows(rows: Iterable[Row]) -> Versions:
    """The distributions behind all rows that ran, by name."""
    ran = [row for row in rows if row.status != "unavailable"]
    found = {each: there for row in ran for each, there in {**installed(row.backend), **row.distributions}.items()}
    return dict(sorted(found.items()))


def of_choice(rows: Iterable[Row], chosen: Sequence[str]) -> set[str]:
    """The installed distributions that rows name of the chosen backends: what a choice among them holds for."""
    found = {each for row in rows if row.backend in chosen for each in row.distributions.items()}
    return {name for name, there in found if there is not None and version(name) == there}


def version(distribution: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return metadata.version(distribution)
    except (metadata.PackageNotFoundError, ValueError):  # no distribution has an empty name
        return None


def digest(paths: Sequence[Path]) -> str:
    """Sixteen hex digits for the names and contents of files."""
    found = hashlib.sha256()
    for path in paths:
        found.update(path.name.encode("utf-8", "surrogateescape") + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


def _declared(backend: object, name: str) -> Versions:
    names: Any = getattr(backend, "distributions", ())
    if not isinstance(names, tuple | list) or not all(isinstance(each, str) and each for each in names):
        raise MeasurementError(
            f"backend {name!r}: its `distributions` is {names!r}; it must be a tuple of names of packages"
        )
    return {each: version(each) for each in names}


def _owners(files: Iterable[str]) -> set[str]:
    """The distributions that installed these files."""
    below = {path.removeprefix(f"{folder}/") for path in map(str, files) for folder in sys.path if folder}
    owners = _installed_files()
    return {_canonical(owners[path]) for path in below & owners.keys()}


@functools.cache
def _installed_files() -> Mapping[str, str]:
    """The distribution of every installed Python and extension file, by its path below the folder of packages."""
    found: dict[str, str] = {}
    for each in metadata.distributions():
        lines = (each.read_text("RECORD") or "").splitlines()
        name = each.name  # parses its metadata at every access
        paths = (line.split(",", 1)[0] for line in lines)
        found.update((path, name) for path in paths if path.endswith((".py", ".so", ".pyd")))
    return found


def _closure(names: Iterable[str]) -> set[str]:
    """These distributions and all that they require, directly or not."""
    found: set[str] = set()
    left = {_canonical(name) for name in names}
    while left:
        found |= left
        left = {each for name in left for each in _required(name)} - found
    return found


@functools.cache
def _required(distribution: str) -> frozenset[str]:
    """What a distribution requires by itself, without its extras."""
    try:
        lines = metadata.requires(distribution) or []
    except (metadata.PackageNotFoundError, ValueError):  # no distribution has an empty name
        return frozenset()
    names = (re.match(r"[\w.-]+", line) for line in lines if not re.search(r"\bextra\s*==", line))
    return frozenset(_canonical(name.group()) for name in names if name is not None)


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
