"""Finds the Triton kernels behind a function: bare ones, and autotuners with their configurations."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections import deque
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# How far a kernel may be from the function: steps, items of one list or dict that are looked at, objects in all.
_DEPTH: Final = 12
_ITEMS: Final = 256
_MOST: Final = 20_000
# What a configuration may raise that Triton's autotuner then leaves out (3.6 and 3.7).
_LEFT_OUT: Final = frozenset({"OutOfResources", "CompileTimeAssertionFailure", "PTXASError"})
_KNOWN: Final = frozenset({*sys.stdlib_module_names, "numpy", "torch", "triton"})


def jit_function(found: Any) -> Any:
    """`found` if it is a kernel of Triton, whatever is wrapped around it, else None."""
    try:
        from triton.runtime.jit import KernelInterface
    except ImportError:
        return None
    return found if isinstance(found, KernelInterface) else None


def wrapping(kernel: Any) -> str:
    """How to make a target of a bare kernel, in one line, with the kernel's own parameters."""
    chosen: set[str] = set()  # by the configurations and heuristics around it, so that a launch leaves them out
    while not inspect.isfunction(kernel) and hasattr(kernel, "fn"):
        chosen.update(*(config.kwargs for config in getattr(kernel, "configs", ())), getattr(kernel, "values", ()))
        kernel = kernel.fn
    parameters = inspect.signature(kernel).parameters.values()
    constants = [each.name for each in parameters if "constexpr" in inspect.formatannotation(each.annotation)]
    operands = [each.name for each in parameters if each.name not in {*constants, *chosen}]
    block = next((name for name in constants if "BLOCK" in name.upper()), next(iter(constants), None))
    per_program = f"meta[{block!r}]" if block in chosen else "1024"
    grid = f"(triton.cdiv(n, {per_program}),)"
    given = dict(zip(operands, ("gate", "up", "out", "n"), strict=True)) if len(operands) == 4 else {}
    arguments = [f"{name}={given.get(name, '...')}" for name in operands]
    arguments += [f"{name}={1024 if name == block else '...'}" for name in constants if name not in chosen]
    return (
        "validate a function that launches it, such as: def act_mul(gate, up): out = torch.empty_like(gate); "
        f"n = out.numel(); {kernel.__name__}[{'lambda meta: ' if 'meta' in grid else ''}{grid}]"
        f"({', '.join(arguments)}); return out"
    )


def reachable(function: Any) -> list[Any]:
    """The Triton kernels that a function can reach.

    That is by what its code names: globals, its closure and defaults, attributes of modules and objects, what lies in
    their lists and dicts, the methods of classes, and what all these call in turn, as far as the limits go.
    """
    found: list[Any] = []
    waiting: deque[tuple[Any, frozenset[str], int]] = deque([(function, frozenset(), 0)])
    seen: dict[int, Any] = {}  # held, so that no other object gets the identity of one that was seen
    while waiting and len(seen) < _MOST:
        value, names, depth = waiting.popleft()
        if jit_function(value) is not None:
            if not any(value is each for each in found):
                found.append(value)
        elif depth < _DEPTH and (isinstance(value, types.ModuleType) or id(value) not in seen):
            seen[id(value)] = value
            waiting.extend((each, wanted, depth + 1) for each, wanted in _behind(value, names))
    return found


def _behind(value: Any, names: frozenset[str]) -> Iterator[tuple[Any, frozenset[str]]]:
    """What can be reached from a value in one step; `names` are those in the code that named it."""
    if isinstance(value, types.ModuleType):
        if not _is_known(value.__name__):
            yield from ((vars(value)[name], names) for name in names & vars(value).keys())
    elif isinstance(value, dict):
        yield from ((each, names) for each in list(value.values())[:_ITEMS])
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((each, names) for each in list(value)[:_ITEMS])
    elif isinstance(value, types.FunctionType):
        yield from _behind_function(value)
    elif isinstance(value, types.MethodType | functools.partial):
        bound = value.__func__ if isinstance(value, types.MethodType) else value.func
        yield bound, names
        yield from ((each, names) for each in (getattr(value, "__self__", None), getattr(value, "args", None)))
    elif isinstance(value, staticmethod | classmethod):
        yield value.__func__, names
    elif isinstance(value, property):
        yield value.fget, names
    elif inspect.isclass(value):
        bases = [each for each in value.__mro__ if not _is_known(each.__module__)]
        yield from ((each, names) for base in bases for each in vars(base).values())
    else:
        operator = getattr(value, "_init_fn", None)  # of a custom operator, or of a `triton_op` what stands for it
        yield operator or getattr(value, "__wrapped__", None), names
        if inspect.isfunction(operator) and _is_known(operator.__module__ or ""):
            yield from ((cell.cell_contents, names) for cell in operator.__closure__ or ())
        if not _is_known(type(value).__module__):
            yield type(value), names
            yield getattr(value, "__dict__", None), names


def _behind_function(function: types.FunctionType) -> Iterator[tuple[Any, frozenset[str]]]:
    yield getattr(function, "__wrapped__", None), frozenset()
    if _is_known(function.__module__ or ""):
        return
    names = _names(function.__code__)
    package = function.__globals__.get("__package__") or ""
    imported = (sys.modules.get(name) or sys.modules.get(f"{package}.{name}") for name in names)  # inside it
    yield from ((module, names) for module in imported if module is not None)
    yield from ((function.__globals__[name], names) for name in names & function.__globals__.keys())
    yield from ((each, names) for each in (function.__defaults__, function.__kwdefaults__))
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents, names
        except ValueError:  # a cell that is still empty
            continue


def _is_known(module: str) -> bool:
    """Whether a module is one that launches no kernels of a user's."""
    return module.partition(".")[0] in _KNOWN


def _names(code: types.CodeType) -> frozenset[str]:
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return frozenset(code.co_names).union(*inner)


def _autotuner(kernel: Any) -> Any:
    """The autotuner among the wrappers of a kernel, or None."""
    while kernel is not None and not hasattr(kernel, "configs"):
        kernel = getattr(kernel, "fn", None)
    return kernel


class Pins:
    """The configurations of the autotuners among some kernels, and the one that is pinned.

    `gave_way` says that a pinned one was not run since, as tuning would have left it out.
    """

    def __init__(self, kernels: list[Any]) -> None:
        self._all: list[tuple[Any, list[Any]]] = []
        self._index: int | None = None
        self.gave_way = False
        for kernel in kernels:
            self.adopt(_autotuner(kernel))

    def adopt(self, tuner: Any) -> None:
        """Take an autotuner in, one that is launched and was not found before, say, and pin it like the others."""
        if tuner is None or any(tuner is known for known, _ in self._all):
            return
        self._all.append((tuner, list(tuner.configs)))
        self._leave(*self._all[-1])

    def launch(self, run: Callable[..., Any], tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Have a tuner run what is pinned; what tuning would leave out for these operands gives way to another."""
        self.adopt(tuner)
        configs = next(configs for known, configs in self._all if known is tuner)
        if self._index is None or len(configs) == 1:
            return run(tuner, *args, **kwargs)
        prune = getattr(tuner, "early_config_prune", None)
        operands = dict(zip(tuner.arg_names, args, strict=False))
        kept = (configs if prune is None else prune(list(configs), operands, **kwargs)) or configs
        pinned = configs[self._index % len(configs)]
        first = pinned if any(each is pinned for each in kept) else kept[self._index % len(kept)]
        order = sorted(kept, key=lambda config: config is not first)
        for config in order[:-1]:
            tuner.configs = [config]
            self.gave_way |= config is not pinned
            try:
                return run(tuner, *args, **kwargs)
            except Exception as error:
                if type(error).__name__ not in _LEFT_OUT:
                    raise
        tuner.configs = order[-1:]
        self.gave_way |= order[-1] is not pinned
        return run(tuner, *args, **kwargs)

    @property
    def count(self) -> int:
        """Configurations of the tuner that has the most."""
        return max((len(configs) for _, configs in self._all), default=0)

    def pin(self, index: int | None) -> None:
        """Leave each tuner one configuration, or (None) all."""
        self._index = index
        self.gave_way = False
        for tuner, configs in self._all:
            self._leave(tuner, configs)

    def _leave(self, tuner: Any, configs: list[Any]) -> None:
        tuner.configs = configs if self._index is None else [configs[self._index % len(configs)]]
        getattr(tuner, "cache", {}).clear()

    def said(self) -> str:
        """The configurations that run now, in words; nothing where tuning would choose them."""
        return "" if self._index is None else "; ".join(str(tuner.configs[0]) for tuner, _ in self._all)


def on_launch(pins: Callable[[], Pins | None]) -> None:
    """Have every autotuner run by the pins of the moment: no search finds one that is only named in a call."""
    try:
        from triton.runtime.autotuner import Autotuner
    except ImportError:
        return
    run = Autotuner.run

    @functools.wraps(run)
    def pinned(self: Any, *args: Any, **kwargs: Any) -> Any:
        now = pins()
        return run(self, *args, **kwargs) if now is None else now.launch(run, self, args, kwargs)

    Autotuner.run = pinned
