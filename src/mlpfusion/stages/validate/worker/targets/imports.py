"""Keeps what an installed library changes when it is imported apart from what a target changes itself."""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib
import sys
from importlib import metadata
from typing import TYPE_CHECKING, Any

import torch
from torch._guards import TracingContext

from mlpfusion.stages.validate.worker import settings

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

_BOOTSTRAP: Any = vars(importlib)["_bootstrap"]  # whose function `importlib.import_module` calls


@contextlib.contextmanager
def apart(state: dict[str, object], own: Collection[str]) -> Iterator[None]:
    """Within, what the import of an installed library changes is put into `state`, as if it had been so before.

    A program that uses the library has that change without the target too: scikit-learn sets an environment variable,
    and transformers imports it where it is installed. Packages named in `own` are no libraries, nor is a file beside
    the target's. What the target had changed before stays a change of its own.
    """
    by_statement, by_name = builtins.__import__, _BOOTSTRAP._gcd_import
    importing = False

    def aside(load: Callable[[], Any], top: str) -> Any:
        nonlocal importing
        importing, before = True, settings.read(state)
        try:
            return load()
        finally:
            importing, after = False, settings.read(state)
            if before != after and _is_installed(top):
                _put(state, before, after)

    def statement(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        load = functools.partial(by_statement, name, globals, locals, fromlist, level)
        top = name.partition(".")[0]
        is_passed = importing or level or top in own or _is_there(name, fromlist) or _is_traced()
        return load() if is_passed else aside(load, top)

    def named(name: str, package: Any = None, level: int = 0) -> Any:
        load = functools.partial(by_name, name, package, level)
        top = (str(package) if level else name).partition(".")[0]
        is_passed = importing or top in own or (not level and name in sys.modules) or _is_traced()
        return load() if is_passed else aside(load, top)

    builtins.__import__, _BOOTSTRAP._gcd_import = statement, named
    try:
        yield
    finally:
        builtins.__import__, _BOOTSTRAP._gcd_import = by_statement, by_name


def _is_there(name: str, fromlist: Any) -> bool:
    module = sys.modules.get(name)
    return module is not None and all(hasattr(module, each) for each in fromlist or () if each != "*")


def _is_traced() -> bool:
    """Whether the settings cannot be read, since operators make no tensors of their own just now."""
    core: Any = torch._C
    if core._len_torch_dispatch_stack() or core._len_torch_function_stack() or TracingContext.try_get():
        return True
    cuda: Any = torch.cuda
    return bool(cuda.is_initialized() and cuda.is_current_stream_capturing())


def _is_installed(top: str) -> bool:
    return top in sys.stdlib_module_names or top in metadata.packages_distributions()


def _put(state: dict[str, object], before: dict[str, object], after: dict[str, object]) -> None:
    for name, was in before.items():
        known, now = state[name], after[name]
        if isinstance(known, dict) and isinstance(was, dict) and isinstance(now, dict):
            kept = {key for key in known.keys() | was.keys() | now.keys() if known.get(key) != was.get(key)}
            theirs = {key: value for key, value in now.items() if key not in kept}
            state[name] = theirs | {key: value for key, value in known.items() if key in kept}
        elif known == was:
            state[name] = now
