"""The class that a swapped module gets: the one it had, with a forward that runs a backend."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

from torch import Tensor, nn

from mlpfusion.errors import BackendUnavailableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.models.find import Found
    from mlpfusion.module import GatedMLP

# Attributes that a swapped module has besides its own. They are in no registry of nn.Module: no state_dict key, no
# submodule, no parameter twice.
VIEW: Final = "_mlpfusion_view"  # a GatedMLP of this module's own layers
FOUND: Final = "_mlpfusion_found"
DROPS: Final = "_mlpfusion_drops"
_PROJECTIONS: Final = {"gate": "gate_proj", "up": "up_proj", "gate_up": "gate_up_proj", "down": "down_proj"}


class Swapped(nn.Module):
    """Mixed in before the module's own class, of which everything but the forward stays."""

    _mlpfusion_view: GatedMLP
    _mlpfusion_found: Found
    _mlpfusion_drops: bool

    def forward(self, x: Tensor) -> Tensor:
        """x [..., hidden_size] -> y [..., hidden_size], by the backend.

        Raises:
            BackendUnavailableError: in training, where the module's own forward would drop out values; or the backend
                cannot run the layers as they are now.
        """
        if self._mlpfusion_drops and self.training:
            raise BackendUnavailableError(
                self._mlpfusion_view.backend, "in training this module drops out values inside, which no backend does"
            )
        return self._mlpfusion_view.forward(x)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Swapped:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._mlpfusion_view._rebind()  # the layers may be elsewhere now, or of another dtype
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        roles = {layer: role for role, layer in self._mlpfusion_found.layers.items()}
        if name in self._modules and name not in roles and value is not self._modules[name]:
            raise UsageError(f"{name!r} of a swapped module cannot be replaced: what it computes would change; restore")
        super().__setattr__(name, value)
        if name in roles:  # an adapter, say: the view binds anew or refuses at its next call
            setattr(self._mlpfusion_view, _PROJECTIONS[roles[name]], value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A class made at run time has no name to pickle it by; copies and pickles are made of what it is made of.
        return _blank, (type(self).__mro__[2],), dict(self.__dict__)


# A class lives as long as a module has it.
_MADE: Final[weakref.WeakValueDictionary[tuple[type, str], type[nn.Module]]] = weakref.WeakValueDictionary()


def swapped_class(base: type[nn.Module]) -> type[nn.Module]:
    """The class for swapped modules of class `base`; it keeps the name, by which wrapping policies go."""
    return _made(base, "swapped", (Swapped, base), {})


def skipped_class(base: type[nn.Module]) -> type[nn.Module]:
    """The class of a module that returns its input: what is left of a model's time without its MLPs."""
    return _made(base, "skipped", (base,), {"forward": lambda self, x: x})


def _made(base: type[nn.Module], purpose: str, bases: tuple[type, ...], members: dict[str, Any]) -> type[nn.Module]:
    found = _MADE.get((base, purpose))
    if found is None:
        names = {"__module__": base.__module__, "__qualname__": base.__qualname__}
        found = _MADE[base, purpose] = type(base.__name__, bases, {**names, **members})
    return found


def _blank(base: type[nn.Module]) -> nn.Module:
    made: nn.Module = object.__new__(swapped_class(base))
    return made
