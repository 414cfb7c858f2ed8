"""`GatedMLP` and `PackedGatedMLP`: gated MLPs with an exchangeable implementation over the same weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import torch
from torch import Tensor, nn

from mlpfusion import backend as registry
from mlpfusion.device import describe
from mlpfusion.errors import BackendUnavailableError, UsageError
from mlpfusion.spec import DTYPES, Activation, MLPSpec, parse_activation

if TYPE_CHECKING:
    from collections.abc import Callable


# What a bound callable refers to: a change of one of these binds again.
_BOUND: Final = frozenset(("gate_proj", "up_proj", "gate_up_proj", "down_proj", "activation"))


class GatedMLP(nn.Module):
    """y = down( act(gate(x)) * up(x) ), run by the backend of choice.

    x is [..., hidden_size] and so is y. Whatever the backend, the parameters are `gate_proj`, `up_proj` and
    `down_proj`, as in Hugging Face models, and the `state_dict` has the same keys.
    """

    _PROJECTIONS: ClassVar[tuple[str, ...]] = ("gate_proj", "up_proj", "down_proj")

    def __init__(
        self,
        spec: MLPSpec,
        *,
        backend: str | registry.Backend = "eager",
        device: torch.device | str | None = None,
    ) -> None:
        """Random weights as `nn.Linear` makes them; `backend` is as of `set_backend`."""
        super().__init__()
        dtype: torch.dtype = getattr(torch, spec.dtype)
        d, h = spec.hidden_size, spec.intermediate_size
        self.hidden_size, self.intermediate_size = d, h
        self.activation = spec.activation
        self.gate_proj = nn.Linear(d, h, bias=spec.bias, device=device, dtype=dtype)
        self.up_proj = nn.Linear(d, h, bias=spec.bias, device=device, dtype=dtype)
        self.down_proj = nn.Linear(h, d, bias=spec.bias, device=device, dtype=dtype)
        self.set_backend(backend)

    @classmethod
    def around(
        cls, *, gate: nn.Linear, up: nn.Linear, down: nn.Linear, activation: Activation, backend: str | registry.Backend
    ) -> GatedMLP:
        """A gated MLP of three layers that exist: gate and up of weight [H, D], down of [D, H].

        The layers themselves become its projections, so whoever owns them sees every change, and it theirs.

        Raises:
            BackendUnavailableError: the backend cannot run these layers where they are.
        """
        return _assembled(cls, {"gate_proj": gate, "up_proj": up, "down_proj": down}, activation, backend)

    @property
    def projections(self) -> dict[str, nn.Module]:
        """The layers that hold the weights, by name."""
        return {name: getattr(self, name) for name in self._PROJECTIONS}

    @property
    def spec(self) -> MLPSpec:
        """What this module computes, read from its live weights (`.half()` changes it, for example)."""
        dtype = str(self._any_parameter().dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise UsageError(f"weights of dtype {dtype!r} are not supported; valid: {', '.join(DTYPES)}")
        return MLPSpec(
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            activation=parse_activation(self.activation),
            dtype=dtype,
            bias=any(getattr(projection, "bias", None) is not None for projection in self.projections.values()),
        )

    @property
    def backend(self) -> str:
        """The name of the backend that runs this module."""
        return self._backend if isinstance(self._backend, str) else self._backend.name

    def set_backend(self, backend: str | registry.Backend) -> GatedMLP:
        """Run this module by another backend from now on; returns the module.

        With "auto:FILE" each call goes to the backend that the file of a choice, which `mlpfusion choose` wrote, names
        for its number of tokens. The file is read now and not again.

        Raises:
            UnknownBackendError: no backend has this name.
            UsageError: there is no such file, or no choice in it.
            BackendUnavailableError: it cannot run this module here. The previous backend then stays.
        """
        check_backend(backend)
        backend = registry.held(backend)
        bound = self._bind(backend)
        # Not through nn.Module.__setattr__: a backend may bind a module, which must not enter the state_dict.
        object.__setattr__(self, "_call", bound)
        object.__setattr__(self, "_backend", backend)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """x [..., hidden_size] -> y [..., hidden_size]."""
        call = self._call
        if call is None:  # moved or copied to where the backend could not be bound: say so now, with the reason
            call = self._bind(self._backend)
            object.__setattr__(self, "_call", call)
        return call(x)

    def extra_repr(self) -> str:
        """The activation and the backend, for `print(module)`."""
        return f"activation={self.activation}, backend={self.backend}"

    def _bind(self, backend: str | registry.Backend) -> Callable[[Tensor], Tensor]:
        for name in self._PROJECTIONS:
            getattr(self, name)  # one that is gone is named here; from a property nn.Module would blame the property
        made = registry.load(backend) if isinstance(backend, str) else backend
        reason = made.unsupported(self.spec, describe(self._any_parameter().device))
        if reason is not None:
            raise BackendUnavailableError(made.name, reason)
        with torch.inference_mode(False):  # a weight that is moved there could not be trained any more
            return made.bind(self)

    def _any_parameter(self) -> Tensor:
        """A parameter of the first projection, which may be a wrapper whose weight has another name."""
        first: nn.Module = getattr(self, self._PROJECTIONS[0])
        return next(first.parameters())

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "down_proj" and isinstance(getattr(value, "in_features", None), int):
            self.hidden_size, self.intermediate_size = value.out_features, value.in_features
        if name in _BOUND and "_call" in self.__dict__:  # an adapter in place of a projection, another activation
            self._rebind()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if name in _BOUND:
            object.__setattr__(self, "_call", None)

    def _rebind(self) -> None:
        try:
            bound = self._bind(self._backend)
        except Exception:  # a third party's backend may raise anything
            bound = None  # `forward` raises it: moving a module to the CPU to save it must not fail
        object.__setattr__(self, "_call", bound)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> GatedMLP:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if "_call" in self.__dict__:
            self._rebind()
        return self

    def __getstate__(self) -> dict[str, Any]:
        # A bound callable belongs to this module alone; copies and pickles bind their own.
        state: dict[str, Any] = super().__getstate__()  # type: ignore[no-untyped-call]
        return {key: value for key, value in state.items() if key != "_call"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._rebind()

    _call: Callable[[Tensor], Tensor] | None
    _backend: str | registry.Backend


class PackedGatedMLP(GatedMLP):
    """A gated MLP whose gate and up weights are the two halves of one layer, `gate_up_proj` of weight [2H, D].

    A backend that can run it has an attribute `takes_packed` that is true, and its `bind` reads `halves`. `up_first`
    says that up is the first half.
    """

    _PROJECTIONS: ClassVar[tuple[str, ...]] = ("gate_up_proj", "down_proj")
    up_first: bool
    gate_up_proj: nn.Linear
    down_proj: nn.Linear

    @classmethod
    def around_packed(
        cls,
        *,
        gate_up: nn.Linear,
        down: nn.Linear,
        activation: Activation,
        up_first: bool,
        backend: str | registry.Backend,
    ) -> PackedGatedMLP:
        """A gated MLP of two layers that exist: gate and up of one weight [2H, D], down of [D, H].

        Raises:
            BackendUnavailableError: the backend cannot run these layers, or wants gate and up in two.
        """
        made = _assembled(
            cls, {"gate_up_proj": gate_up, "down_proj": down}, activation, backend, {"up_first": bool(up_first)}
        )
        assert isinstance(made, PackedGatedMLP)
        return made

    def halves(self, both: Tensor) -> tuple[Tensor, Tensor]:
        """Gate and up [..., H] of what `gate_up_proj` returns, [..., 2H]: views."""
        first, second = both.chunk(2, dim=-1)
        return (second, first) if self.up_first else (first, second)

    def weights(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Gate and up weights [H, D] and their biases [H] or None: differentiable views of the one layer's."""
        first, second = self.gate_up_proj.weight.chunk(2)
        bias, other = (None, None) if self.gate_up_proj.bias is None else self.gate_up_proj.bias.chunk(2)
        return (second, first, other, bias) if self.up_first else (first, second, bias, other)

    def _bind(self, backend: str | registry.Backend) -> Callable[[Tensor], Tensor]:
        made = registry.load(backend) if isinstance(backend, str) else backend
        if not getattr(made, "takes_packed", False):
            reason = "it takes gate and up as two layers, and here one layer holds both"
            raise BackendUnavailableError(made.name, reason)
        return super()._bind(made)


def check_backend(backend: object) -> None:
    """Raise a `UsageError` unless it is a name or a Backend, made: its class has the same attributes."""
    if isinstance(backend, type) or not isinstance(backend, str | registry.Backend):
        raise UsageError(f"backend must be a name or a Backend, got {backend!r}")


def _assembled(
    cls: type[GatedMLP],
    layers: dict[str, nn.Linear],
    activation: Activation,
    backend: str | registry.Backend,
    facts: dict[str, bool] | None = None,
) -> GatedMLP:
    """A module of class `cls` of these layers, without making any."""
    made = cls.__new__(cls)
    nn.Module.__init__(made)
    made.activation = parse_activation(activation)
    for name, value in {**layers, **(facts or {})}.items():
        setattr(made, name, value)
    return made.set_backend(backend)
