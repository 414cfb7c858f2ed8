"""Triton kernels behind a function: the bare ones, and the autotuners with their configurations."""

from __future__ import annotations

import inspect
import types
from typing import Any

_DEPTH = 6


def jit_function(found: Any) -> Any:
    """`found` if it is a kernel of Triton, whatever is wrapped around it, else None."""
    try:
        from triton.runtime.jit import KernelInterface
    except ImportError:
        return None
    return found if isinstance(found, KernelInterface) else None


def wrapping(kernel: Any) -> str:
    """How to make a target of a bare kernel, in one line."""
    while not hasattr(kernel, "arg_names") and hasattr(kernel, "fn"):
        kernel = kernel.fn
    function = kernel if inspect.isfunction(kernel) else getattr(kernel, "fn", kernel)
    name = getattr(function, "__name__", "kernel")
    return (
        "validate a function that launches it, such as: def act_mul(gate, up): out = torch.empty_like(gate); "
        f"n = out.numel(); {name}[(triton.cdiv(n, 1024),)](gate, up, out, n, BLOCK=1024); return out"
    )


def reachable(function: Any) -> list[Any]:
    """The Triton kernels that a function can reach by the global names in its code, its closure and what these call."""
    found: list[Any] = []
    seen: set[int] = set()
    _follow(function, found, seen, _DEPTH)
    return found


def _follow(value: Any, found: list[Any], seen: set[int], depth: int) -> None:
    if id(value) in seen or depth == 0:
        return
    seen.add(id(value))
    if jit_function(value) is not None:
        found.append(value)
        return
    if inspect.isclass(value):
        for name in ("forward", "backward", "setup_context", "__call__"):
            if name in vars(value):
                _follow(inspect.unwrap(getattr(value, name)), found, seen, depth - 1)
        return
    value = getattr(value, "__func__", value)
    wrapped = getattr(value, "_init_fn", None) or getattr(value, "__wrapped__", None)  # a custom operator
    if wrapped is not None:
        _follow(wrapped, found, seen, depth - 1)
    if not isinstance(value, types.FunctionType) or (value.__module__ or "").partition(".")[0] in {"torch", "triton"}:
        return
    for name in _names(value.__code__):
        if name in value.__globals__:
            _follow(value.__globals__[name], found, seen, depth - 1)
    for cell in value.__closure__ or ():
        try:
            _follow(cell.cell_contents, found, seen, depth - 1)
        except ValueError:  # a cell that is still empty
            continue


def _names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _autotuner(kernel: Any) -> Any:
    """The autotuner among the wrappers of a kernel, or None."""
    while kernel is not None and not hasattr(kernel, "configs"):
        kernel = getattr(kernel, "fn", None)
    return kernel


class Pins:
    """The configurations of the autotuners among some kernels, and the one that is pinned."""

    def __init__(self, kernels: list[Any]) -> None:
        tuners = [tuner for kernel in kernels if (tuner := _autotuner(kernel)) is not None]
        self._all = [(tuner, list(tuner.configs)) for tuner in tuners]

    @property
    def count(self) -> int:
        """Configurations of the tuner that has the most."""
        return max((len(configs) for _, configs in self._all), default=0)

    def pin(self, index: int | None) -> str:
        """Leave each tuner one configuration, or (None) all; returns the pinned ones in words."""
        said = []
        for tuner, configs in self._all:
            tuner.configs = configs if index is None else [configs[index % len(configs)]]
            getattr(tuner, "cache", {}).clear()
            said += [] if index is None else [str(tuner.configs[0])]
        return "; ".join(said)
