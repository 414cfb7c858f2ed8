"""The class of a swapped module: its former class, with a forward that runs a backend."""

from __future__ import annotations

import warnings
import weakref
from typing import TYPE_CHECKING, Any, ClassVar, Final

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from mlpfusion import backend as registry
from mlpfusion.backends import bypass
from mlpfusion.errors import BackendUnavailableError, MlpfusionError, UsageError, first_line
from mlpfusion.models import layers, signature
from mlpfusion.models.find import Examined, Found, examine
from mlpfusion.storage import private

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.models.watched import Watched
    from mlpfusion.module import GatedMLP

# Attributes that a swapped module has besides its own. They are in no registry of nn.Module: no state_dict key, no
# submodule, no parameter twice.
VIEW: Final = "_mlpfusion_view"  # a GatedMLP of this module's own layers
FOUND: Final = "_mlpfusion_found"
WATCHED: Final = "_mlpfusion_watched"  # what its own forward reads
NAME: Final = "_mlpfusion_name"  # in the model that was swapped
BYPASSED: Final = "_mlpfusion_bypassed"  # how many calls went to its own forward
OWN: Final = "_mlpfusion_own"  # of the classes that are made here: the one that the module had
ADDED: Final = (VIEW, FOUND, WATCHED, NAME, BYPASSED)
DROPS: Final = "in training this module drops out values inside, which no backend does"
_PROJECTIONS: Final = {"gate": "gate_proj", "up": "up_proj", "gate_up": "gate_up_proj", "down": "down_proj"}


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # so it is called once, while the caller is compiled
def _warn(where: str, backend: str, why: str) -> None:
    """Say that compiled code runs a module's own forward."""
    said = f"{where}: compiled code runs its own forward and not the backend {backend!r}: it {why}"
    warnings.warn(said, UserWarning, stacklevel=2)


class Swapped(nn.Module):
    """Mixed in before the module's own class, of which everything but the forward stays."""

    if TYPE_CHECKING:  # TorchScript reads annotations, and knows none of these
        _mlpfusion_view: GatedMLP
        _mlpfusion_found: Found
        _mlpfusion_watched: Watched
        _mlpfusion_name: str
        _mlpfusion_bypassed: int
        _mlpfusion_own: ClassVar[type[nn.Module]]  # the class that the module had

    def _mlpfusion_run(self, x: Tensor) -> Tensor:
        """x [..., hidden_size] -> y [..., hidden_size], by the backend.

        Raises:
            BackendUnavailableError: in training, where the module's own forward would drop out values; a part of it was
                changed since in a way that the backend would leave out; or it cannot run the layers as they are now.
            MlpfusionError: the backend of a third party failed.
        """
        view = self._mlpfusion_view
        compiling = torch.compiler.is_compiling()
        if compiling and self._mlpfusion_own_is_compiled(view.backend):
            own: Tensor = self._mlpfusion_own.forward(self, x)
            return own
        if not compiling and torch._C._get_tracing_state() is not None:  # a trace would keep weights as constants
            traced: Tensor = self._mlpfusion_bypass(x)
            return traced
        reason = self._changed(x, compiling=compiling)
        if reason is not None:
            raise BackendUnavailableError(view.backend, f"{self._mlpfusion_where()}: {reason}")
        try:
            return view.forward(x)
        except BackendUnavailableError as error:
            if error.reason.startswith(self._mlpfusion_where()):
                raise
            raise BackendUnavailableError(error.backend, f"{self._mlpfusion_where()}: {error.reason}") from error
        except (MlpfusionError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            if isinstance(view._backend, str) and registry.is_built_in(view._backend):
                raise
            said = f"{type(error).__name__}: {private.text(first_line(error))}"
            raise MlpfusionError(f"backend {view.backend!r} failed in {self._mlpfusion_where()}: {said}") from error

    def _mlpfusion_bypass(self, *given: Any, **named: Any) -> Any:
        """What the module's own forward gives of more than x."""
        if not torch.compiler.is_compiling():  # which would compile anew for each number
            self.__dict__[BYPASSED] += 1
        return self._mlpfusion_own.forward(self, *given, **named)

    def _mlpfusion_where(self) -> str:
        return self._mlpfusion_name or "the model itself"

    def _mlpfusion_own_is_compiled(self, backend: str) -> bool:
        """Whether a compiler gets the module's own forward: it cannot see at each call whether a buffer has changed."""
        unguarded = self._mlpfusion_watched.unguarded
        changed = self._mlpfusion_watched.changed_traced(self)
        if unguarded is not None:
            _warn(self._mlpfusion_where(), backend, f"reads {unguarded}, whose value compiled code cannot watch")
        elif changed is not None:
            _warn(self._mlpfusion_where(), backend, f"reads {changed}, which was changed")
        return unguarded is not None or changed is not None

    def _changed(self, x: Tensor, *, compiling: bool) -> str | None:
        """What the backend would leave out of what the module's own forward does by now, or None."""
        found, inner = self._mlpfusion_found, self._mlpfusion_view._modules
        for role, path in found.layers.items():
            if "." in path:
                layer = layers.at(self, path)
            else:
                layer = self._modules.get(path)
            if layer is not inner[_PROJECTIONS[role]]:
                return f"its {path} was replaced by something else than an assignment; restore it, and swap again"
        if not compiling:
            what = self._mlpfusion_watched.changed(self)
            if what is not None and not self._mlpfusion_rejudged():
                return f"its {what} was changed, and it no longer computes what it did; restore it"
        for part in self._mlpfusion_watched.parts:
            reason = left_out(part)
            if reason is not None:
                return f"{_path(self, part)} {reason}"
            if self.training and isinstance(part, _DropoutNd) and part.p > 0:
                return DROPS
        if found.unlike and _dtype_of(x) in found.unlike:
            return f"in {str(_dtype_of(x)).removeprefix('torch.')} its own forward is another; restore it"
        return DROPS if self.training and found.drops else None

    def _mlpfusion_rejudged(self) -> bool:
        """Whether the module still is the gated MLP that it was; what it reads now is watched from then on."""
        own: nn.Module = object.__new__(self._mlpfusion_own)
        own.__dict__.update(self.__dict__)
        made = examine(own)
        if not isinstance(made, Examined) or not self._mlpfusion_found.same(made.found):
            return False
        made.watched.of(self)
        self.__dict__.update({FOUND: made.found, WATCHED: made.watched})
        return True

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
        before: Any = getattr(self, name) if known else None
        super().__setattr__(name, value)
        if known and value is not before and not self._mlpfusion_rejudged():
            super().__setattr__(name, before)
            raise UsageError(f"{name!r} of a swapped module cannot be replaced: what it computes would change; restore")

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A class made at run time has no name to pickle it by; copies and pickles are made of what it is made of.
        return _blank, (self._mlpfusion_own,), self.__getstate__()  # type: ignore[no-untyped-call]


def left_out(part: nn.Module) -> str | None:
    """What no backend runs of a part that is no layer, such as the activation; or None."""
    reason = bypass.bypassed(part)
    return None if reason is None else reason.replace("this backend would bypass", "no backend runs")


def _path(module: nn.Module, part: nn.Module) -> str:
    return next((path for path, each in module.named_modules() if each is part), "a part of it")


def _dtype_of(x: Tensor) -> torch.dtype:
    """The dtype that products of x have."""
    return bypass.autocast_dtype(x) or x.dtype


def _public(name: str) -> bool:
    """Whether an attribute is the module's own, and none that PyTorch or a wrapper keeps on it."""
    return not name.startswith("_") and name not in {"training", "forward"}


# A class lives as long as a module has it.
_MADE: Final[weakref.WeakValueDictionary[tuple[type, str], type[nn.Module]]] = weakref.WeakValueDictionary()


def swapped_class(base: type[nn.Module]) -> type[nn.Module]:
    """The class for swapped modules of class `base`; it keeps the name, by which wrapping policies go."""
    return _made(base, "swapped", (Swapped, base), lambda: {"forward": signature.like(base.forward)})


def skipped_class(base: type[nn.Module]) -> type[nn.Module]:
    """The class of a module that returns its input: what is left of a model's time without its MLPs."""
    return _made(base, "skipped", (base,), lambda: {"forward": _first})


def _first(_: nn.Module, *given: Tensor, **named: Tensor) -> Tensor:
    return next(iter((*given, *named.values())))


def _made(
    base: type[nn.Module], purpose: str, bases: tuple[type, ...], members: Callable[[], dict[str, Any]]
) -> type[nn.Module]:
    found = _MADE.get((base, purpose))
    if found is None:
        names = {"__module__": base.__module__, "__qualname__": base.__qualname__, OWN: base}
        found = _MADE[base, purpose] = type(base.__name__, bases, {**names, **members()})
    return found


def _blank(base: type[nn.Module]) -> nn.Module:
    made: nn.Module = object.__new__(swapped_class(base))
    return made
