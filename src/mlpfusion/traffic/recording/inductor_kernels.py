"""Observes the kernels that Inductor generated, by the arguments of its wrapper code.

The wrapper is a Python module that is there whether the code was compiled now or comes from a cache. Its kernels are
globals of it: a C++ kernel says in its argument list what it only reads, a Triton kernel by the names of its arguments.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from torch import Tensor

from mlpfusion.traffic.recording.generated_code import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from mlpfusion.traffic.recording.ledger import Ledgers

_CPP: Final = re.compile(
    r"^(?P<name>\w+) = async_compile\.cpp_pybinding\(.*?extern \"C\"\s+void\s+kernel\((?P<arguments>[^)]*)\)",
    re.MULTILINE | re.DOTALL,
)
_POINTER: Final = re.compile(r"^(?P<const>const\s+)?[\w:]+\s*\*\s*(?:__restrict__\s*)?(?P<name>\w+)$")


class _Pointer(NamedTuple):
    """One pointer among a kernel's arguments: its place, and what the kernel does with it."""

    place: int
    reads: bool
    writes: bool


@contextmanager
def watched(ledgers: Ledgers) -> Iterator[None]:
    """Write down every launch of a kernel that Inductor generated before, while the context lasts."""
    replaced: list[tuple[ModuleType, str, Any]] = []
    try:
        for module in _wrappers():
            cpp = _cpp_kernels(module)
            for name, value in list(vars(module).items()):
                watcher = _watcher(ledgers, name, value, cpp)
                if watcher is not None:
                    replaced.append((module, name, value))
                    setattr(module, name, watcher)
        yield
    finally:
        for module, name, value in replaced:
            setattr(module, name, value)


def _wrappers() -> list[ModuleType]:
    """The generated modules that hold a whole graph: they have a `call`, those of single kernels have none."""
    found = [module for name, module in list(sys.modules.items()) if name.startswith(PREFIX)]
    if "torch._inductor.codecache" in sys.modules:  # some are in PyTorch's own list only
        listed = getattr(sys.modules["torch._inductor.codecache"].PyCodeCache, "modules", ())
        found += [module for module in listed if module not in found and module.__name__.startswith(PREFIX)]
    return [module for module in found if callable(getattr(module, "call", None))]


def _watcher(ledgers: Ledgers, name: str, value: Any, cpp: dict[str, tuple[_Pointer, ...] | None]) -> Any:
    """What takes the place of a global of a wrapper while the ledger is kept; None for what launches nothing."""
    if name in cpp or (name.startswith("cpp_") and callable(value)):
        return _CppKernel(ledgers, name, value, cpp.get(name))
    if callable(getattr(value, "run", None)) and _is_kernel(value):
        return _TritonKernel(ledgers, name, value)
    return None


def _is_kernel(value: Any) -> bool:
    """Whether a global with a `run` is one of Inductor's Triton kernels, or several of which it takes the fastest."""
    return any(kind.__name__ in ("CachingAutotuner", "MultiKernelCall") for kind in type(value).__mro__)


def _cpp_kernels(module: ModuleType) -> dict[str, tuple[_Pointer, ...] | None]:
    """The pointers of every C++ kernel in a wrapper's source; None for a kernel whose arguments cannot be read."""
    try:
        with open(str(getattr(module, "__file__", "")), encoding="utf-8") as lines:
            text = lines.read()
    except OSError:
        return {}
    return {match["name"]: cpp_pointers(match["arguments"]) for match in _CPP.finditer(text)}


def cpp_pointers(arguments: str) -> tuple[_Pointer, ...] | None:
    """What a C++ kernel does with its pointers, from its argument list; None if one has no known form."""
    found = []
    for place, argument in enumerate(text.strip() for text in arguments.split(",")):
        if "*" not in argument:
            continue
        match = _POINTER.match(argument)
        if match is None:
            return None
        roles = pointer_roles(match["name"])
        if match["const"]:
            roles = (True, False)
        if roles is None:
            return None
        found.append(_Pointer(place, *roles))
    return tuple(found)


def pointer_roles(name: str) -> tuple[bool, bool] | None:
    """Whether Inductor's kernels read and write through an argument of this name; None if it is not of their making."""
    if name.startswith("in_out_ptr"):
        return True, True
    if name.startswith("in_ptr") or re.fullmatch(r"arg_[A-Z]\w*", name):
        return True, False
    if name.startswith("out_ptr"):
        return False, True
    return None


def _argument_names(kernel: Any) -> list[str]:
    """The names of a Triton kernel's arguments: of its function, or of its signature where it came from a cache."""
    names = getattr(getattr(kernel, "fn", None), "arg_names", None)
    signature = (getattr(kernel, "triton_meta", None) or {}).get("signature", {})
    return list(names or (signature if isinstance(signature, dict) else ()))


class _CppKernel:
    """A C++ kernel of a wrapper; calling it writes the launch down."""

    def __init__(self, ledgers: Ledgers, name: str, kernel: Any, pointers: tuple[_Pointer, ...] | None) -> None:
        self._ledgers = ledgers
        self._name = name
        self._kernel = kernel
        self._pointers = pointers

    def __call__(self, *args: Any) -> Any:
        pointers, unknown = self._pointers, None
        if pointers is None or not all(isinstance(value, Tensor) for value in _at(args, pointers)):
            pointers, unknown = (), "its argument list in Inductor's code cannot be read"
        with self._ledgers.running(args):
            self._ledgers.launch(
                self._name,
                "inductor",
                kernel=self._name,
                reads=[args[one.place] for one in pointers if one.reads],
                writes=[args[one.place] for one in pointers if one.writes],
                unknown=unknown,
            )
            return self._kernel(*args)


def _at(args: tuple[Any, ...], pointers: tuple[_Pointer, ...]) -> list[Any]:
    """The arguments at these places; None for one that is not there."""
    return [args[one.place] if one.place < len(args) else None for one in pointers]


class _TritonKernel:
    """A Triton kernel of a wrapper; `run` writes the launch down, all else is the kernel's own."""

    def __init__(self, ledgers: Ledgers, name: str, kernel: Any) -> None:
        self._ledgers = ledgers
        self._name = name
        self._kernel = kernel

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        ledgers = self._ledgers
        if ledgers.quiet:
            return self._kernel.run(*args, **kwargs)
        names = _argument_names(self._kernel)
        given = {name: value for name, value in zip(names, args, strict=False) if isinstance(value, Tensor)}
        given |= {name: value for name, value in kwargs.items() if isinstance(value, Tensor)}
        roles = {name: pointer_roles(name) for name in given}
        unknown = None
        if len(given) < sum(isinstance(value, Tensor) for value in (*args, *kwargs.values())):
            unknown = "its arguments have no names"
        elif strange := [name for name, known in roles.items() if known is None]:
            unknown = f"its argument {strange[0]!r} does not say whether it is read or written"
        if unknown is not None and names:  # a kernel of the user's own: Triton's code says it
            return self._kernel.run(*args, **kwargs)
        ledgers.launch(
            self._name,
            "inductor",
            kernel=self._name,
            reads=[value for name, value in given.items() if (roles[name] or (True, False))[0]],
            writes=[value for name, value in given.items() if (roles[name] or (False, True))[1]],
            unknown=unknown,
        )
        ledgers.quiet += 1
        try:
            return self._kernel.run(*args, **kwargs)
        finally:
            ledgers.quiet -= 1
