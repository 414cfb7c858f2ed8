"""Sees at each call whether something has changed that a swapped module's own forward would read."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from mlpfusion.models.reads import CLASS, GLOBAL, MISSING, REGISTRIES

if TYPE_CHECKING:
    from mlpfusion.models.reads import Read

_UNGUARDED: Final = (Tensor, torch.jit.ScriptFunction)


class Watched:
    """What the forward of one module read when it was probed, and the parts whose hooks would be left out.

    Identity is compared, of tensors their version as well, and containers of constants by value. A copy of the module
    has a copy of this, which finds the copy's own objects at the first call.
    """

    def __init__(self, root: nn.Module, reads: list[Read], parts: list[nn.Module]) -> None:
        self.reads, self.parts = reads, parts
        # The name of the first thing of which a compiler would not see that it has changed.
        self.unguarded = next((read.shown for read in reads if isinstance(read.value, _UNGUARDED)), None)
        self._root: nn.Module | None = None  # whose the objects below are
        self._resolve(root)

    def of(self, root: nn.Module) -> None:
        """Watch this module, which has the parts and attributes of the one before."""
        self._root = root

    def _other(self) -> str | None:
        """The name of the first thing that is not equal to what it was, tensors and parts left out."""
        for mapping, name, value, shown in (*self._same, *self._equal):
            if not isinstance(value, (Tensor, nn.Module)) and mapping.get(name, MISSING) != value:
                return shown
        return None

    def tensor(self) -> str | None:
        """The name of the first tensor that was read, whose value may differ in a copy, or None."""
        return next((read.shown for read in self.reads if isinstance(read.value, Tensor)), None)

    def changed(self, root: nn.Module) -> str | None:
        """The name of the first thing that is another one by now, or None; this runs at each call."""
        if self._root is not root:  # it is a copy's
            self._resolve(root)
            if (read := self.tensor()) is not None:  # which may have changed since it was copied
                return self._other() or read
        for mapping, name, value, shown in self._same:
            if mapping.get(name, MISSING) is not value:
                return shown
        for tensor, version, shown in self._versions:
            if tensor._version != version:
                return shown
        for mapping, name, value, shown in self._equal:
            if mapping.get(name, MISSING) != value:
                return shown
        for cls, name, value, shown in self._classes:
            if getattr(cls, name, MISSING) is not value:
                return shown
        return None

    def changed_traced(self, root: nn.Module) -> str | None:
        """As `changed`, without tensors, for a compiler: it guards on what is read here by its own names."""
        for read in self.reads:
            owner: Any = sys.modules[read.steps[0]] if read.kind == GLOBAL else root
            for step in () if read.kind == GLOBAL else read.steps:
                owner = getattr(owner, step)
            if _is_another(getattr(owner, read.name, MISSING), read.value):
                return read.shown
        return None

    def _resolve(self, root: nn.Module) -> None:
        self._same: list[tuple[Any, str, Any, str]] = []
        self._equal: list[tuple[Any, str, Any, str]] = []
        self._classes: list[tuple[type, str, Any, str]] = []
        self._versions: list[tuple[Tensor, int, str]] = []
        for read in self.reads:
            if read.kind == GLOBAL:
                mapping: Any = vars(sys.modules[read.steps[0]])
            else:
                owner: Any = root
                for step in read.steps:
                    owner = _step(owner, step)
                if owner is MISSING:
                    mapping = {}
                elif read.kind == CLASS:
                    self._classes.append((type(owner), read.name, read.value, read.shown))
                    continue
                else:
                    mapping = owner.__dict__ if read.kind == "__dict__" else owner.__dict__[read.kind]
            if isinstance(read.value, dict | list | set):
                self._equal.append((mapping, read.name, read.value, read.shown))
                continue
            self._same.append((mapping, read.name, read.value, read.shown))
            if isinstance(read.value, Tensor):
                self._versions.append((read.value, read.value._version, read.shown))
        self._root = root

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _root=None)


def _is_another(now: Any, before: Any) -> bool:
    """Whether these differ. Of a `functools.partial` a compiler sees a new object each time, but knows its parts."""
    if isinstance(before, functools.partial):
        if not isinstance(now, functools.partial):
            return True
        return now.func is not before.func or _is_another((now.args, now.keywords), (before.args, before.keywords))
    if isinstance(before, tuple | list):
        if not isinstance(now, tuple if isinstance(before, tuple) else list) or len(now) != len(before):
            return True
        return any(_is_another(each, other) for each, other in zip(now, before, strict=True))
    if isinstance(before, dict):
        if not isinstance(now, dict) or now.keys() != before.keys():
            return True
        return any(_is_another(now[key], before[key]) for key in before)
    return now is not before and (isinstance(now, nn.Module) or now != before)


def _step(owner: Any, name: str) -> Any:
    if isinstance(owner, nn.Module):
        for registry in REGISTRIES:
            if name in owner.__dict__[registry]:
                return owner.__dict__[registry][name]
    return getattr(owner, name, MISSING)
