"""Notes what the forward of a copied module reads, so that a change of it in the original can be seen later.

The copy's classes are derived from the original's; an object that is no module, such as a shared config, is copied into
such a class when it is read.
"""

from __future__ import annotations

import enum
import functools
import inspect
import sys
import types
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterator

MISSING: Final = object()
REGISTRIES: Final = ("_parameters", "_buffers", "_modules")
CLASS, GLOBAL = "class", "global"
_OF_EVERY_MODULE: Final = frozenset(vars(nn.Module())) | {"_compiled_call_impl", "_hf_hook", "_old_forward", "forward"}
_MOST: Final = 64  # values in a container that is compared at each call
_NUMBERS: Final = (int, float, complex, bool, str, bytes, type(None))
_CONSTANT: Final = (
    *_NUMBERS, type(...), range, slice, frozenset, enum.Enum, torch.dtype, torch.device, torch.Size, torch.layout, type,
    functools.partial, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType,
    types.MethodWrapperType, torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch.jit.ScriptFunction,
)  # fmt: skip
_CONTAINERS: Final = (list, dict, set, tuple)


class Read(NamedTuple):
    """Something that a forward read, and what it was.

    `steps` lead from the module to the object that has it: names of parts and attributes, or of a Python module for a
    global. `kind` says where it is there: in which registry, in `__dict__`, in its class, or among globals.
    """

    steps: tuple[str, ...]
    name: str
    kind: str
    value: Any

    @property
    def shown(self) -> str:
        """How a reason calls it: "act.beta"."""
        return ".".join((*self.steps, self.name))


class _Watched(NamedTuple):
    """One object whose copy notes what is read: the original, the way to it, and the names in the order of reading."""

    original: Any
    steps: tuple[str, ...]
    names: dict[str, None]


class Recorder:
    """What a copy's forward reads and sets, of the module and of what hangs on it."""

    def __init__(self) -> None:
        self.sets: list[str] = []
        self._of: dict[int, _Watched] = {}  # by the id of a copy
        self._copies: dict[int, Any] = {}  # by the id of an original; it also keeps them alive

    def watch(self, copy: Any, original: Any, steps: tuple[str, ...]) -> None:
        """Note from now on what is read of this copy. A copy of a copy counts as its original's.

        Raises:
            TypeError: its class cannot be derived from.
        """
        known = self._of.get(id(original))
        if known is None:
            known = _Watched(original, steps, {})
            object.__setattr__(copy, "__class__", _recording(type(original), self))
        self._of[id(copy)] = known
        self._copies[id(copy)] = copy

    def note(self, copy: Any, name: str, value: Any) -> Any:
        """`name` of this object was read; the value, or a copy of it that notes in turn."""
        watched = self._of.get(id(copy))
        if watched is None:
            return value
        watched.names[name] = None
        if isinstance(value, (*_CONSTANT, *_CONTAINERS, Tensor, nn.Module)) or not hasattr(value, "__dict__"):
            return value
        if name in _OF_EVERY_MODULE or name.startswith("__"):
            return value
        made = self._copies.get(id(value))
        if made is None:
            try:
                made = object.__new__(type(value))
                made.__dict__.update(value.__dict__)
                self.watch(made, value, (*watched.steps, name))
            except TypeError:  # made in C, or of a fixed layout: it is refused
                return value
            self._copies[id(value)] = made
        return made

    def note_missing(self, copy: Any, name: str) -> None:
        """`name` was asked for and is no attribute: an entry of a registry, or nothing."""
        if id(copy) in self._of:
            self._of[id(copy)].names[name] = None

    def note_set(self, copy: Any, name: str) -> None:
        """`name` of this object was set or deleted."""
        if id(copy) in self._of:
            self.sets.append(".".join((*self._of[id(copy)].steps, name)))

    def reads(self, layers: set[int]) -> list[Read]:
        """All that was read, except of layers, whose ids are given: a change of these takes part anyway."""
        found = {}
        for watched in self._of.values():
            for read in _reads(watched, layers):
                found[read[:3]] = read
            code = "forward" if isinstance(watched.original, nn.Module) else "__call__"
            for read in _globals(inspect.getattr_static(type(watched.original), code, None)):
                found[read[:3]] = read
        return list(found.values())

    def unseen(self, reads: list[Read]) -> str | None:
        """Why a change of what was read might not be seen, or None."""
        for read in reads:
            value = read.value
            if isinstance(value, Tensor):
                if value.is_inference():
                    return f"its forward reads {read.shown}, a tensor of inference mode, whose changes cannot be seen"
            elif isinstance(value, _CONTAINERS):
                if not _is_constant(value) or _count(value) > _MOST:
                    return f"its forward reads {read.shown}, a {type(value).__name__} whose changes cannot be seen"
            elif isinstance(value, nn.Module):
                if read.kind != "_modules":
                    return f"its forward reads {read.shown}, a {type(value).__name__} that is no part of it"
            elif not isinstance(value, _CONSTANT) and id(value) not in self._copies:
                return f"its forward reads {read.shown}, a {type(value).__name__} whose changes cannot be seen"
        return None


def _recording(cls: Any, recorder: Recorder) -> type:
    """A class derived from `cls` that tells the recorder what is read and set."""

    def read(self: Any, name: str) -> Any:
        try:
            value = cls.__getattribute__(self, name)
        except AttributeError:  # nn.Module's parts and buffers come by its __getattr__
            recorder.note_missing(self, name)
            raise
        return recorder.note(self, name, value)

    def write(self: Any, name: str, value: Any) -> None:
        recorder.note_set(self, name)
        cls.__setattr__(self, name, value)

    def delete(self: Any, name: str) -> None:
        recorder.note_set(self, name)
        cls.__delattr__(self, name)

    members = {"__getattribute__": read, "__setattr__": write, "__delattr__": delete, "__module__": cls.__module__}
    made: type = type(cls)(cls.__name__, (cls,), members)
    return made


def _reads(watched: _Watched, layers: set[int]) -> Iterator[Read]:
    owner, steps = watched.original, watched.steps
    is_module = isinstance(owner, nn.Module)
    for name in watched.names:
        if is_module and name in REGISTRIES:  # its forward goes through all of them
            found = [(each, name, value) for each, value in owner.__dict__[name].items()]
        else:
            found = [(name, *_found(owner, name, is_module=is_module))]
        for each, kind, value in found:
            if kind and kind != "_parameters" and id(value) not in layers:
                yield Read(steps, each, kind, frozen(value))


def _found(owner: Any, name: str, *, is_module: bool) -> tuple[str, Any]:
    """Where an object has this attribute, and its value; an empty kind where it is code, or PyTorch's own."""
    own = owner.__dict__
    if is_module:
        for registry in REGISTRIES:
            if name in own[registry]:
                return registry, own[registry][name]
        if name in _OF_EVERY_MODULE:
            return "", None
    if name in own:
        return "__dict__", own[name]
    if name.startswith("__"):
        return "", None
    value = inspect.getattr_static(type(owner), name, MISSING)
    of_pytorch = is_module and name in vars(nn.Module)
    return ("", None) if value is MISSING or of_pytorch or hasattr(value, "__get__") else (CLASS, value)


def _globals(forward: object) -> Iterator[Read]:
    """Numbers and tensors among the globals that a function of the user's names."""
    if not isinstance(forward, types.FunctionType) or forward.__module__.partition(".")[0] == "torch":
        return
    module = sys.modules.get(forward.__module__)
    if module is None or vars(module) is not forward.__globals__:
        return
    for name in forward.__code__.co_names:
        value = forward.__globals__.get(name, MISSING)
        if isinstance(value, (*_NUMBERS, *_CONTAINERS, Tensor)):
            yield Read((forward.__module__,), name, GLOBAL, frozen(value))


def frozen(value: Any) -> Any:
    """The value, or a copy of a container that changes with nothing."""
    if isinstance(value, dict):
        return {key: frozen(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [frozen(inner) for inner in value]
    return set(value) if isinstance(value, set) else value


def _is_constant(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_constant, (*value.keys(), *value.values())))
    return all(map(_is_constant, value)) if isinstance(value, _CONTAINERS) else isinstance(value, _CONSTANT)


def _count(value: Any) -> int:
    if isinstance(value, dict):
        value = value.values()
    return sum(_count(each) if isinstance(each, _CONTAINERS) else 1 for each in value)
