"""Loads a function of a user's script, and records its calls."""

from __future__ import annotations

import inspect
import sys
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mlpfusion.errors import UsageError
from mlpfusion.workers import tasks

if TYPE_CHECKING:
    from collections.abc import Callable

_SHOWN: Final = 8


def trace(task: tasks.Trace) -> tasks.Traced:
    """Record what the task names. What the script raises is raised."""
    try:
        function = load(Path(task.script), task.function)
    except UsageError as error:
        return tasks.Traced(misused=str(error))
    from mlpfusion.measure import tracer

    tracer.record_scheduled(function, Path(task.trace), calls=task.calls)
    return tasks.Traced()


def load(path: Path, name: str) -> Callable[[], object]:
    """The function called `name` of a script, which runs as a separate module, not as `__main__`.

    Raises:
        UsageError: it has no such function (the message lists those that it has), or a call of it without arguments
            fails or runs nothing.
    """
    # A name of its own: a script called like a package must not take its place.
    spec = util.spec_from_file_location(f"_mlpfusion_script_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UsageError(f"script {path.name!r} is no Python file: its name must end in .py")
    module = util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))  # as Python does for a script, so that it finds its sibling files
    sys.modules[spec.name] = module  # dataclasses and pickle look their module up by name
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if callable(found):
        if (why := _unfit(found)) is not None:
            raise UsageError(f"{path.name}:{name} {why}")
        return found  # type: ignore[no-any-return]
    own = [
        each
        for each, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == spec.name and not each.startswith("_")
    ]
    valid = ", ".join(own[:_SHOWN]) + ", …" * (len(own) > _SHOWN) or "it has none"
    what = "is no function" if hasattr(module, name) else "does not exist"
    raise UsageError(f"{path.name}:{name} {what}; valid: {valid}")


def _unfit(found: Callable[..., object]) -> str | None:
    """Why a call of it without arguments says nothing, or None."""
    if inspect.isclass(found):
        return "is a class; name a function"
    if inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found):
        return "is async: a call of it runs nothing; name a function that is not"
    if inspect.isgeneratorfunction(found):
        return "is a generator: a call of it runs nothing; name a function that is none"
    if _needs_arguments(found):
        return "needs arguments; name a function that can be called without any"
    return None


def _needs_arguments(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind()
    except TypeError:
        return True
    except ValueError:  # a builtin that does not say
        return False
    return False
