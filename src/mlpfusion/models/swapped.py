"""The class of a swapped module: its former class, with a forward that runs a backend."""

from __future__ import annotations

import inspect
import weakref
from typing import TYPE_CHECKING, Any, ClassVar, Final

from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from mlpfusion.backends.bypass import bypassed
from mlpfusion.errors import BackendUnavailableError, UsageError
from mlpfusion.models.find import Found, probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.module import GatedMLP

# Attributes that a swapped module has besides its own. They are in no registry of nn.Module: no state_dict key, no
# submodule, no parameter twice.
VIEW: Final = "_mlpfusion_view"  # a GatedMLP of this module's own layers
FOUND: Final = "_mlpfusion_found"
OTHERS: Final = "_mlpfusion_others"  # its parts that are no layers, by name
OWN: Final = "_mlpfusion_own"  # of the classes that are made here: the one that the module had
DROPS: Final = "in training this module drops out values inside, which no backend does"
_PROJECTIONS: Final = {"gate": "gate_proj", "up": "up_proj", "gate_up": "gate_up_proj", "down": "down_proj"}


class Swapped(nn.Module):
    """Mixed in before the module's own class, of which everything but the forward stays."""

    _mlpfusion_view: GatedMLP
    _mlpfusion_found: Found
    _mlpfusion_others: dict[str, nn.Module]
    _mlpfusion_own: ClassVar[type[nn.Module]]  # the class that the module had
    _mlpfusion_input: ClassVar[str]  # what the module's own forward calls its one argument

    def forward(self, *given: Tensor, **named: Tensor) -> Tensor:
        """x [..., hidden_size], by position or by its own name -> y [..., hidden_size], by the backend.

        Raises:
            UsageError: more than that one tensor is given.
            BackendUnavailableError: in training, where the module's own forward would drop out values; a part of it was
                changed since in a way that the backend would leave out; or it cannot run the layers as they are now.
        """
        view = self._mlpfusion_view
        reason = self._changed()
        if reason is not None:
            raise BackendUnavailableError(view.backend, reason)
        if len(given) == 1 and not named:
            return view.forward(given[0])
        return view.forward(self._only(given, named))

    def _only(self, given: tuple[Tensor, ...], named: dict[str, Tensor]) -> Tensor:
        asked = self._mlpfusion_input
        if given or named.keys() != {asked}:
            said = ", ".join([*(f"argument {index + 1}" for index in range(len(given))), *named]) or "nothing"
            raise UsageError(f"a swapped module takes one tensor, {asked}, got {said}; restore it to give it more")
        return named[asked]

    def _changed(self) -> str | None:
        """What the backend would leave out of what the module's own forward does by now, or None."""
        found, layers = self._mlpfusion_found, self._mlpfusion_view._modules
        for role, name in found.layers.items():
            if self._modules.get(name) is not layers[_PROJECTIONS[role]]:
                return f"its {name} was replaced by something else than an assignment; restore it, and swap again"
        for name, part in self._mlpfusion_others.items():
            if self._modules.get(name) is not part:
                return f"its {name} was replaced by something else than an assignment; restore it, and swap again"
            reason = left_out(part)
            if reason is not None:
                return f"{name} {reason}"
            if self.training and isinstance(part, _DropoutNd) and part.p > 0:
                return DROPS
        return DROPS if self.training and found.drops else None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Swapped:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._mlpfusion_view._rebind()  # the layers may be elsewhere now, or of another dtype
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        roles = {layer: role for role, layer in self._mlpfusion_found.layers.items()}
        if name in roles:
            super().__setattr__(name, value)
            setattr(self._mlpfusion_view, _PROJECTIONS[roles[name]], value)  # binds again, or refuses at its next call
            return
        known = name in self._modules or name in self._buffers or (name in self.__dict__ and _public(name))
        before = getattr(self, name) if known else None
        super().__setattr__(name, value)
        if known and value is not before:
            self._judge(name, before)

    def _judge(self, name: str, before: Any) -> None:
        """Take back an attribute that was set, unless the module computes what it did."""
        own: nn.Module = object.__new__(self._mlpfusion_own)
        own.__dict__.update(self.__dict__)
        found = probe(own)
        if not isinstance(found, Found) or found._replace(drops=False) != self._mlpfusion_found._replace(drops=False):
            super().__setattr__(name, before)
            raise UsageError(f"{name!r} of a swapped module cannot be replaced: what it computes would change; restore")
        self.__dict__.update({FOUND: found, OTHERS: others(self, found)})

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A class made at run time has no name to pickle it by; copies and pickles are made of what it is made of.
        return _blank, (self._mlpfusion_own,), dict(self.__dict__)


def others(module: nn.Module, found: Found) -> dict[str, nn.Module]:
    """The parts of a gated MLP that are none of its layers, by name."""
    layers = found.layers.values()
    return {name: part for name, part in module._modules.items() if part is not None and name not in layers}


def left_out(part: nn.Module) -> str | None:
    """What no backend runs of a part that is no layer, such as the activation; or None."""
    reason = bypassed(part)
    return None if reason is None else reason.replace("this backend would bypass", "no backend runs")


def _public(name: str) -> bool:
    """Whether an attribute is the module's own, and none that PyTorch or a wrapper keeps on it."""
    return not name.startswith("_") and name not in {"training", "forward"}


# A class lives as long as a module has it.
_MADE: Final[weakref.WeakValueDictionary[tuple[type, str], type[nn.Module]]] = weakref.WeakValueDictionary()


def swapped_class(base: type[nn.Module]) -> type[nn.Module]:
    """The class for swapped modules of class `base`; it keeps the name, by which wrapping policies go."""
    asked = [*inspect.signature(base.forward).parameters][1]
    return _made(base, "swapped", (Swapped, base), {"_mlpfusion_input": asked})


def skipped_class(base: type[nn.Module]) -> type[nn.Module]:
    """The class of a module that returns its input: what is left of a model's time without its MLPs."""
    return _made(base, "skipped", (base,), {"forward": _first})


def _first(_: nn.Module, *given: Tensor, **named: Tensor) -> Tensor:
    return next(iter((*given, *named.values())))


def _made(base: type[nn.Module], purpose: str, bases: tuple[type, ...], members: dict[str, Any]) -> type[nn.Module]:
    found = _MADE.get((base, purpose))
    if found is None:
        names = {"__module__": base.__module__, "__qualname__": base.__qualname__, OWN: base}
        found = _MADE[base, purpose] = type(base.__name__, bases, {**names, **members})
    return found


def _blank(base: type[nn.Module]) -> nn.Module:
    made: nn.Module = object.__new__(swapped_class(base))
    return made
