"""Notices which functions of PyTorch, Python, Triton and this package a target has put others in the place of."""

from __future__ import annotations

import builtins
import gc
import importlib
import inspect
import math
import random
import sys
import threading
import time
import types
import warnings
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

# Triton's language is not among them, since its interpreter replaces that itself.
_PLACES: Final[dict[str, Any]] = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.nn.functional": functional,
    "torch.nn": nn,
    "torch._C._nn": torch._C._nn,
    "torch.autograd": torch.autograd,
    "torch.autograd.Function": torch.autograd.Function,
    "torch.amp": torch.amp,
    "torch.linalg": torch.linalg,
    "torch.testing": torch.testing,
    "torch.utils.checkpoint": importlib.import_module("torch.utils.checkpoint"),
    "torch.profiler": torch.profiler,
    "torch.cuda": torch.cuda,
    "torch.cuda.Event": torch.cuda.Event,
    "torch.cuda.Stream": torch.cuda.Stream,
    "torch.cuda.CUDAGraph": torch.cuda.CUDAGraph,
    "time": time,
    "math": math,
    "random": random,
    "builtins": builtins,
    "warnings": warnings,
    "threading": threading,
    "gc": gc,
}
_ON_FIRST_USE: Final = ("triton", "triton.testing", "triton.runtime.jit", "triton.runtime.autotuner", "numpy")
_OURS: Final = "mlpfusion"
# What the dispatcher runs for these, a library of a target's may override.
_OPERATORS: Final = (
    *("gelu", "gelu_backward", "silu", "silu_backward", "relu", "tanh", "sigmoid", "mul.Tensor", "add.Tensor", "mm"),
    *("addmm", "bmm", "linear", "copy_", "clone", "empty.memory_format", "empty_strided", "empty_like"),
)
# By these a target is timed and judged: nobody else has a reason to replace them.
_JUDGING: Final = (
    *("time.", "torch.cuda.synchronize", "torch.cuda.Event.", "torch.cuda.Stream.", "torch.cuda.CUDAGraph."),
    *("torch.profiler.", "triton.testing.", "torch.testing.", "gc.", f"{_OURS}."),
)


class Functions:
    """Every function that a target may replace, as it was."""

    def __init__(self) -> None:
        for name in _ON_FIRST_USE:
            try:
                importlib.import_module(name)
            except ImportError:
                continue
        self._before = _members()
        self._operators = _operators()

    def replaced(self) -> list[str]:
        """The names of those that are others now, in their order."""
        now, operators = _members(), _operators()
        found = [name for name, value in self._before.items() if not _is_same(value, now.get(name))]
        return found + [f"aten::{name}" for name, dump in self._operators.items() if operators[name] != dump]


def judging(names: list[str]) -> list[str]:
    """Those by which a target is timed or judged."""
    return [name for name in names if name.startswith(_JUDGING)]


def _is_same(before: tuple[Any, Any], now: tuple[Any, Any] | None) -> bool:
    """Whether a name stands for the same function, of the same code."""
    if now is None:
        return False
    return _is_compiler_s(now[0]) or (before[0] is now[0] and before[1] is now[1])


def _members() -> dict[str, tuple[Any, Any]]:
    """What each place has by name, and its code: a function's own may be replaced under it."""
    places = {name: _own(place) for name, place in _PLACES.items()}
    places |= {name: vars(sys.modules[name]) for name in _ON_FIRST_USE if name in sys.modules}
    classes = [(f"torch.nn.{each.__name__}", each) for each in vars(nn).values() if inspect.isclass(each)]
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == _OURS and isinstance(module, types.ModuleType):
            places[name] = vars(module)
        if name in _ON_FIRST_USE or name.startswith(f"{_OURS}."):
            inside = (each for each in vars(module).values() if inspect.isclass(each) and each.__module__ == name)
            classes += [(f"{name}.{each.__name__}", each) for each in inside]
    for place, each in classes:
        called = {name: getattr(each, name, None) for name in ("__call__", "forward")}  # which a base may define
        places[place] = {**{name: one for name, one in called.items() if inspect.isfunction(one)}, **vars(each)}
    return {
        f"{place}.{name}": (value, getattr(value, "__code__", None))
        for place, own in places.items()
        for name, value in own.items()
        if callable(value) or isinstance(value, property | staticmethod | classmethod)
    }


def _own(place: Any) -> dict[str, Any]:
    """What a module has by name, or a class with its bases: a method may be replaced by a new one above it."""
    found: dict[str, Any] = {}
    for each in reversed(place.__mro__) if isinstance(place, type) else (place,):
        found |= vars(each)
    return found


def _is_compiler_s(value: Any) -> bool:
    """Whether a function is what PyTorch's compiler puts in another's place when it is first used."""
    names = getattr(value, "__globals__", None)
    # The class of functions has a descriptor of that name.
    return isinstance(names, dict) and str(names.get("__name__")).startswith(("torch._dynamo", "torch._compile"))


def _operators() -> dict[str, str]:
    dump: Any = torch._C._dispatch_dump
    return {name: str(dump(f"aten::{name}")) for name in _OPERATORS}
