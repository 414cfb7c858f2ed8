"""Restores the class and the forward of swapped modules."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from torch import nn

from mlpfusion.backends import bypass
from mlpfusion.errors import UsageError
from mlpfusion.models.swapped import ADDED, OWN, VIEW

if TYPE_CHECKING:
    from collections.abc import Sequence


def restore(model: nn.Module) -> tuple[str, ...]:
    """Give every swapped module in `model` its own forward back, in place, whichever call of `swap` swapped it.

    It needs no handle, which a copy and a model read from a file have not; handles that there are know of it, and their
    own `restore()` leaves alone what is restored. Either all of the modules are restored or, with an error, none.

    Returns:
        The names of the modules that were restored, in the order of the model; "" is the model itself.

    Raises:
        UsageError: `model` is no module, nothing in it is swapped, or a module was wrapped since, by something that
            still relies on the swapped one.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"model must be a torch.nn.Module, got a {type(model).__name__}")
    swapped = [(name, module) for name, module in model.named_modules() if VIEW in module.__dict__]
    if not swapped:
        raise UsageError(f"nothing is swapped in this {type(model).__name__}: there is nothing to restore")
    give_back(swapped)
    return tuple(name for name, _ in swapped)


def give_back(swapped: Sequence[tuple[str, nn.Module]]) -> None:
    """Make these modules, given with their names, what they were before the swap: all of them, or none.

    Raises:
        UsageError: as `own_class`.
    """
    owns = [own_class(name, module) for name, module in swapped]
    for (_, module), own in zip(swapped, owns, strict=True):
        set_class(module, own)
        view, *_ = (module.__dict__.pop(name) for name in ADDED)
        object.__setattr__(view, "_call", None)  # its handle may keep it, and what was bound may hold CUDA graphs


def own_class(name: str, module: nn.Module) -> type[nn.Module]:
    """The class that a swapped module had, which it has while its handle is paused.

    Raises:
        UsageError: its class or its forward is another one since, which relies on the swapped one.
    """
    cls = type(module)
    shown = repr(name) if name else "the model itself"
    if OWN not in cls.__dict__ and hasattr(cls, OWN):
        raise UsageError(f"{shown} is a {cls.__module__}.{cls.__name__} now, wrapped since the swap; undo that first")
    if bypass.replaced(module):
        raise UsageError(f"the forward of {shown} was replaced since the swap; undo that first")
    own: type[nn.Module] = getattr(cls, OWN, cls)
    return own


def set_class(module: nn.Module, cls: type[nn.Module]) -> None:
    """Make the module one of class `cls`, which changes its forward and nothing else."""
    placed = bypass.only_placed(module)
    if bypass.only_bound(module):  # it would go on running the class that the module has now
        del module.__dict__["forward"]
    object.__setattr__(module, "__class__", cls)
    if placed:  # the hook calls the class's method that it has stored
        module.__dict__["_old_forward"] = types.MethodType(cls.forward, module)
