"""Runs the gated MLPs of a model by a backend, module by module and reversibly."""

from __future__ import annotations

import contextlib
import fnmatch
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from mlpfusion import backend as registry
from mlpfusion.backends.bypass import not_plain, replaced
from mlpfusion.errors import (
    BackendUnavailableError,
    MlpfusionError,
    NothingSwappedError,
    UsageError,
    first_line,
)
from mlpfusion.models import layers as paths
from mlpfusion.models.find import Examined, Found, Refused, examine
from mlpfusion.models.restore import give_back, own_class, set_class
from mlpfusion.models.swapped import (
    BYPASSED,
    FOUND,
    NAME,
    VIEW,
    WATCHED,
    Swapped,
    left_out,
    skipped_class,
    swapped_class,
)
from mlpfusion.module import GatedMLP, PackedGatedMLP, check_backend
from mlpfusion.storage import private

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from mlpfusion.spec import MLPSpec

_SHOWN: Final = 3  # names or refusals that a message spells out


class SwappedModule(NamedTuple):
    """A module that a backend runs: its name in the model, its class, what it computes and from which layers."""

    name: str
    kind: str
    spec: MLPSpec
    layers: dict[str, str]
    backend: str


class RefusedModule(NamedTuple):
    """A module that looks like an MLP and was left as it is: its name in the model, its class and the reason."""

    name: str
    kind: str
    reason: str
    experts: int = 0  # how many routed experts it holds as 3-D parameters


class _Seat(NamedTuple):
    """One swapped module, its name in the model and what runs it."""

    name: str
    module: nn.Module
    view: GatedMLP

    @property
    def taken(self) -> bool:
        """Whether the module is still swapped, and by this swap."""
        return self.module.__dict__.get(VIEW) is self.view


class _Taken(NamedTuple):
    """One module that will be swapped, and where its weights were when its backend was bound."""

    what: SwappedModule
    module: nn.Module
    view: GatedMLP
    examined: Examined
    places: tuple[int, ...]


class Handle:
    """What `swap` did to a model, and the way back; as a context manager it restores at the end."""

    how: Final = "swap"

    def __init__(
        self,
        model: nn.Module,
        seats: list[_Seat],
        swapped: tuple[SwappedModule, ...],
        refused: tuple[RefusedModule, ...],
    ) -> None:
        self.model = model
        self.swapped = swapped
        self.refused = refused
        self._seats = seats

    def restore(self) -> None:
        """Give every module its own forward back, or with an error none; what is restored already is left alone.

        Raises:
            UsageError: a module was wrapped since, by something that still relies on the swapped one.
        """
        give_back([(seat.name, seat.module) for seat in self._taken()])

    @contextlib.contextmanager
    def paused(self) -> Iterator[nn.Module]:
        """The model as it was, for the time of a `with` block."""
        with self._as(lambda own: own):
            yield self.model

    @contextlib.contextmanager
    def skipped(self) -> Iterator[nn.Module]:
        """The model with each swapped module returning its input, for the time of a `with` block.

        What it computes is meaningless; how long it takes bounds what any MLP could give.
        """
        with self._as(skipped_class):
            yield self.model

    @contextlib.contextmanager
    def noting(self) -> Iterator[dict[str, list[None]]]:
        """For each module by name an entry at each call that its backend runs, for the time of a `with` block.

        Of what is compiled too: a compiler does at each call what it sees done to a list. Each module has its own, so
        that one compiled call still serves all of a kind.
        """
        calls = [(seat.name, seat.view, seat.view._call) for seat in self._taken()]
        ran: dict[str, list[None]] = {name: [] for name, _, _ in calls}
        try:
            for name, view, call in calls:
                if call is not None:
                    object.__setattr__(view, "_call", _noting(call, ran[name]))
            yield ran
        finally:
            for _, view, call in calls:
                object.__setattr__(view, "_call", call)

    def unrun(self, call: Callable[[], object], called: Collection[str]) -> list[str]:
        """What the backend does not run in this call of the model, which calls these of `parts`: a line for each."""
        with self.noting() as ran:
            call()
        if not called:
            return ["the model calls none of the swapped modules for these inputs"]
        own = [name or "the model itself" for name in called if not ran[name]]
        more = f" and {len(own) - _SHOWN} more" if len(own) > _SHOWN else ""
        return [f"{', '.join(own[:_SHOWN])}{more}: its own forward ran, and not the backend"] if own else []

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *error: object) -> None:
        self.restore()

    def __repr__(self) -> str:
        return f"<{len(self.swapped)} modules swapped, {len(self.refused)} refused>"

    def __str__(self) -> str:
        return self.summary

    @property
    def summary(self) -> str:
        """One line: how many MLPs were swapped, of them the shared experts, and how many routed experts were not."""
        routed = [each for each in self.refused if each.experts]
        around = {path for each in routed for path in (each.name, each.name.rpartition(".")[0])} - {""}
        blocks = tuple(f"{path}." for path in around)
        others: list[SwappedModule | RefusedModule] = [
            *self.swapped,
            *(each for each in self.refused if not each.experts),
        ]
        shared = [each for each in others if each.name.startswith(blocks)]
        said = []
        for kind, all_of_them in (
            ("MLPs", [each for each in others if each not in shared]),
            ("shared experts", shared),
        ):
            swapped = sum(isinstance(each, SwappedModule) for each in all_of_them)
            said += [f"{swapped} of {len(all_of_them)} {kind} swapped"] if all_of_them else []
        if routed:
            number = sum(each.experts for each in routed)
            said.append(f"{number} routed experts are one grouped operator, not a gated MLP")
        return "; ".join(said)

    @property
    def bypassed(self) -> int:
        """How many calls gave a swapped module more than x, which then ran its own forward; of modules still swapped.

        Calls that a compiler has compiled are not counted.
        """
        return sum(module.__dict__[BYPASSED] for module in self.modules)

    @property
    def backend(self) -> str | registry.Backend:
        """What runs the modules that are still swapped: a name, or the backend that was given as it is."""
        view: Any = self._taken()[0].module._mlpfusion_view
        backend: str | registry.Backend = view._backend
        return backend

    @property
    def parts(self) -> dict[str, nn.Module]:
        """The modules that are still swapped, by name."""
        return {seat.name: seat.module for seat in self._taken()}

    def call(self, module: nn.Module) -> nn.Module:
        """What runs the model, or one of its modules by itself: the swap is in them."""
        return module

    @property
    def modules(self) -> list[nn.Module]:
        """The modules that are still swapped, in the order of `swapped`; none once restored."""
        return [seat.module for seat in self._taken()]

    @contextlib.contextmanager
    def _as(self, other: Callable[[type[nn.Module]], type[nn.Module]]) -> Iterator[None]:
        """Each module in a class derived from its own, until it is swapped again unless restored meanwhile."""
        before = [(seat, type(seat.module), own_class(seat.name, seat.module)) for seat in self._taken()]
        try:
            for seat, _, own in before:
                set_class(seat.module, other(own))
            yield
        finally:
            for seat, was, _ in before:
                if seat.taken:
                    set_class(seat.module, was)

    def _taken(self) -> list[_Seat]:
        return [seat for seat in self._seats if seat.taken]


def _noting(call: Callable[[Tensor], Tensor], ran: list[None]) -> Callable[[Tensor], Tensor]:
    def noted(x: Tensor) -> Tensor:
        ran.append(None)
        return call(x)

    return noted


def swap(
    model: nn.Module,
    backend: str | registry.Backend,
    *,
    where: str | Callable[[str, nn.Module], bool] | None = None,
) -> Handle:
    """Run every gated MLP of `model` by `backend`, in place; each is judged for itself, by what its forward computes.

    Modules, parameters, their names, hooks, devices and dtypes stay what they are; only the forward changes. `where`
    limits it to some modules: a pattern for names (`model.layers.1?.*`), or a function of name and module. With
    "auto:FILE" each call goes to the backend that the choice in this file names for its number of tokens.

    Returns:
        A handle that tells what was swapped, what was refused and why, and restores.

    Raises:
        UnknownBackendError: no backend has this name.
        UsageError: a bad argument, or a choice that cannot be read.
        NothingSwappedError: no module was swapped; the message gives the reasons.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"model must be a torch.nn.Module, got a {type(model).__name__}")
    check_backend(backend)
    if not (where is None or isinstance(where, str) or callable(where)):
        raise UsageError(f"where must be a pattern or a function of name and module, got {where!r}")
    backend = registry.held(backend)
    made = registry.load(backend) if isinstance(backend, str) else backend
    taken: list[_Taken] = []
    refused: list[RefusedModule] = []
    for name, module, found in candidates(model, where):
        kind = type(module).__name__
        try:
            view = _view(module, found, backend, made.name)
        except _RefusalError as refusal:
            experts = found.experts if isinstance(found, Refused) else 0
            refused.append(RefusedModule(name, kind, str(refusal), experts))
            continue
        assert isinstance(found, Examined)
        what = SwappedModule(name, kind, view.spec, found.found.layers, made.name)
        taken.append(_Taken(what, module, view, found, _places(view)))
    parted = [one for one in taken if one.places != _places(one.view)]
    taken = [one for one in taken if one.places == _places(one.view)]
    refused += [RefusedModule(one.what.name, one.what.kind, _shared(one, taken)) for one in parted]
    if not taken:
        raise NothingSwappedError(_nothing(model, where, refused), tuple(refused))
    seats = [_Seat(one.what.name, one.module, one.view) for one in taken]
    for what, module, view, (found, watched), _ in taken:  # all views are bound by now: nothing below fails half-way
        module.__dict__.update({VIEW: view, FOUND: found, WATCHED: watched, NAME: what.name, BYPASSED: 0})
        set_class(module, swapped_class(type(module)))
    return Handle(model, seats, tuple(one.what for one in taken), tuple(refused))


class _RefusalError(MlpfusionError):
    """Why one module is left as it is."""


def candidates(
    model: nn.Module, where: str | Callable[[str, nn.Module], bool] | None = None
) -> Iterator[tuple[str, nn.Module, Any]]:
    """Name, module and probing result of each module that is an MLP of some kind: `Examined`, or `Refused`.

    Of one that is swapped already the result is None. Weights may be on the meta device. `where` is as of `swap`.
    """
    inside: tuple[str, ...] = ()
    around: list[tuple[str, nn.Module, Any]] = []  # refused ones whose layers are inside their parts
    for name, module in model.named_modules():
        if inside and name.startswith(inside):
            continue
        asked = where is None or (fnmatch.fnmatch(name, where) if isinstance(where, str) else where(name, module))
        if not asked:
            continue
        found = _examined(module)
        if found is None and not isinstance(module, Swapped):
            continue
        prefix = f"{name}." if name else ""
        if isinstance(found, Refused) and found.nested:
            around.append((name, module, found))
            continue
        if not (isinstance(found, Refused) and found.experts):
            inside = (*inside, prefix)
        around = [each for each in around if not name.startswith(f"{each[0]}." if each[0] else "")]
        yield name, module, found
    yield from around


def _examined(module: nn.Module) -> Examined | Refused | None:
    if isinstance(module, GatedMLP):
        return Refused("it is a GatedMLP of mlpfusion, whose set_backend does this")
    return None if isinstance(module, Swapped) else examine(module)


def _view(module: nn.Module, examined: Any, backend: str | registry.Backend, called: str) -> GatedMLP:
    """A bound GatedMLP of the module's own layers.

    Raises:
        _RefusalError: the module is none that may be swapped, or the backend refuses it.
    """
    if isinstance(module, Swapped):
        raise _RefusalError(f"it is swapped already, to {module._mlpfusion_view.backend!r}; restore that first")
    if not isinstance(examined, Examined):
        raise _RefusalError(examined.reason)
    found = examined.found
    reason = _state(module, examined)
    if reason is not None:
        raise _RefusalError(reason)
    layers: dict[str, Any] = {role: paths.at(module, path) for role, path in found.layers.items()}
    try:
        if "gate_up" in layers:
            return PackedGatedMLP.around_packed(
                **layers, activation=found.activation, up_first=found.up_first, backend=backend
            )
        return GatedMLP.around(**layers, activation=found.activation, backend=backend)
    except BackendUnavailableError as error:
        raise _RefusalError(f"backend {error.backend!r}: {_renamed(error.reason, found)}") from error
    except UsageError as error:
        raise _RefusalError(str(error)) from error
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a third party's backend may raise anything
        said = f"{type(error).__name__}: {private.text(first_line(error))}"
        raise _RefusalError(f"backend {called!r} failed: {said}") from error


def _places(view: GatedMLP) -> tuple[int, ...]:
    return tuple(weight.data_ptr() for weight in view.parameters())


def _shared(one: _Taken, taken: list[_Taken]) -> str:
    """Why a module cannot be taken whose weights have moved: the backend was bound to another one with them."""
    mine = {id(weight) for weight in one.view.parameters()}
    names = [other.what.name for other in taken if any(id(weight) in mine for weight in other.view.parameters())]
    return f"it shares a weight with {', '.join(map(repr, names))}, for which the backend has moved it"


def _state(module: nn.Module, examined: Examined) -> str | None:
    """What a module that computes a gated MLP is in no state for, whatever the backend; or None."""
    found, watched = examined
    if replaced(module):
        return "its forward is replaced on the module itself (by offloading or another library's kernel?)"
    if found.drops and module.training:
        return "in training it drops out values inside, which no backend does; eval() it or set its dropout to 0"
    weights = {}
    for name in found.layers.values():
        layer: Any = paths.at(module, name)
        reason = not_plain(layer)
        if reason is not None:
            return f"{name} {reason}"
        weights[name] = layer.weight
    inside = {id(part): name for name, part in module.named_modules()}
    for part in watched.parts:
        reason = left_out(part)
        if reason is not None:
            return f"{inside[id(part)]} {reason}"
    first, leading = next(iter(weights.items()))
    for name, weight in weights.items():
        if not isinstance(weight, nn.Parameter):
            return f"{name} has a weight that is no Parameter (flattened or sharded by a wrapper?)"
        if weight.is_meta:
            return f"{name} has no storage: it is on the meta device (offloaded, or not loaded yet)"
        if weight.dtype != leading.dtype:
            return f"its dtypes are mixed: {name} is {_short(weight.dtype)} where {first} is {_short(leading.dtype)}"
        if weight.device != leading.device:
            return f"its layers are on two devices: {name} is on {weight.device} where {first} is on {leading.device}"
    return None


def _short(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _renamed(reason: str, found: Found) -> str:
    """A backend's reason with the module's own names for its layers."""
    for role, name in found.layers.items():
        reason = reason.replace(f"{role}_proj ", f"{name} ")
    return reason


def _nothing(model: nn.Module, where: object, refused: list[RefusedModule]) -> str:
    """One line on why no module was swapped."""
    if not refused:
        among = "" if where is None else f" among those that where={where!r} leaves"
        return f"nothing was swapped: {type(model).__name__} has no gated MLP{among}"
    shown = "; ".join(f"{each.name or 'the model itself'} ({each.kind}): {each.reason}" for each in refused[:_SHOWN])
    more = f"; and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
    return f"nothing was swapped, {len(refused)} refused: {shown}{more}"
