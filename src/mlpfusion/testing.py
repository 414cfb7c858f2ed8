"""`assert_valid` for pytest: fails with the text of the verdict: the cause, its smallest shape and a command."""

from __future__ import annotations

import functools
import importlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.validation import Verdict


def assert_valid(
    target: Any,
    *,
    activation: str = "gelu_tanh",
    dtypes: Sequence[str] | None = None,
    shapes: Sequence[tuple[int, ...]] | None = None,
    device: str | None = None,
    strict: bool = False,
    only: Sequence[str] | None = None,
    seed: int | None = None,
    time_limit_s: float = 600.0,
    quick: bool = False,
) -> Verdict:
    """Judge a target, and fail unless it is valid (with `strict`, valid without hazards).

    `target` is a text as for `mlpfusion validate`, or a function or class at the top level of a module: it is run in
    another process, which imports it by its name. `quick` judges one shape of each kind.

    Raises:
        AssertionError: what `mlpfusion validate` prints of each target that is not: the cause with the smallest failing
            shape and a command, and what follows from it.
        UsageError: a bad value, or something that is no target.
    """
    from mlpfusion.report.validation import page
    from mlpfusion.stages.validate.run import validate

    found = validate(
        [target if isinstance(target, str) else name_of(target)],
        activation=activation,
        dtypes=dtypes,
        shapes=shapes,
        device=device,
        against=(),
        only=only,
        seed=seed,
        time_limit_s=time_limit_s,
        quick=quick,
    )
    verdict = found.verdicts[0]
    if not all(each.is_accepted(strict=strict) for each in found.verdicts):
        raise AssertionError("\n\n\n".join(page(v) for v in found.verdicts if not v.is_accepted(strict=strict)))
    return verdict


def name_of(target: Any) -> str:
    """The text `file.py:name` or `module:name` by which another process finds a function or class.

    Raises:
        UsageError: it has no name at the top level of a module.
    """
    found = getattr(target, "_init_fn", target)  # of a custom operator, the function that it was made of
    if not hasattr(found, "__qualname__"):
        found = type(found)  # an instance of a backend, say
        if found.__module__.partition(".")[0] in {*sys.stdlib_module_names, "torch"}:
            raise UsageError(
                f"target {target!r} is a {found.__name__}, which another process cannot find by a name; valid: a "
                "function or class at the top level of a module, or a text such as file.py:name"
            )
    name, module_name = found.__qualname__, found.__module__
    owner = getattr(found, "__self__", None)
    if isinstance(owner, type):  # of an autograd.Function's apply, that class rather than the one that defines apply
        name, module_name = f"{owner.__qualname__}.{found.__name__}", owner.__module__
    if "<locals>" in name or "<lambda>" in name:
        raise UsageError(
            f"{name!r} is defined inside a function or has no name, so that another process cannot find it; move it to "
            "the top level of its file, as a def"
        )
    module = sys.modules.get(module_name) or importlib.import_module(module_name)
    file = getattr(module, "__file__", None)
    if file is not None and file.endswith(".py") and not _is_importable(module_name, Path(file).resolve()):
        return f"{Path(file).resolve()}:{name}"
    return f"{module_name}:{name}"


def _is_importable(module_name: str, file: Path) -> bool:
    """Whether another process gets this file by this name, as part of a package.

    A module in no package is a test or script that is not installed, and pytest imports from its own folders.
    """
    package, inside, _ = module_name.partition(".")
    return bool(inside) and any(file.is_relative_to(place) for place in _places(package, Path.cwd()))


@functools.cache
def _places(package: str, folder: Path) -> tuple[Path, ...]:
    """Where a new process that starts in `folder` finds a package; this one has its own paths and modules."""
    asks = (
        "import sys; from importlib.util import find_spec; spec = find_spec(sys.argv[1]); "
        "print(*(spec and spec.submodule_search_locations or ()), sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", asks, package], capture_output=True, text=True, cwd=folder, check=False
    )
    return tuple(Path(line).resolve() for line in done.stdout.splitlines() if line)
