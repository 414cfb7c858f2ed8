"""`GatedMLP`: one gated MLP whose implementation can be exchanged without touching its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from mlpfusion import backend as registry
from mlpfusion.device import describe
from mlpfusion.errors import BackendUnavailableError, UsageError
from mlpfusion.spec import DTYPES, MLPSpec, parse_activation

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from mlpfusion.choices import Choice


# What a bound callable holds on to: a change of one of these binds anew.
_BOUND: Final = frozenset(("gate_proj", "up_proj", "down_proj", "activation"))


class GatedMLP(nn.Module):
    """y = down( act(gate(x)) * up(x) ), run by the backend of choice.

    x is [..., hidden_size] and so is y. Whatever the backend, the parameters are `gate_proj`, `up_proj` and
    `down_proj`, as in Hugging Face models, and the `state_dict` has the same keys.
    """

    def __init__(
        self,
        spec: MLPSpec,
        *,
        backend: str | registry.Backend = "eager",
        choice: Choice | str | os.PathLike[str] | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        """Random weights as `nn.Linear` makes them; `backend` and `choice` are as of `set_backend`."""
        super().__init__()
        dtype: torch.dtype = getattr(torch, spec.dtype)
        d, h = spec.hidden_size, spec.intermediate_size
        self.hidden_size, self.intermediate_size = d, h
        self.activation = spec.activation
        self.gate_proj = nn.Linear(d, h, bias=spec.bias, device=device, dtype=dtype)
        self.up_proj = nn.Linear(d, h, bias=spec.bias, device=device, dtype=dtype)
        self.down_proj = nn.Linear(h, d, bias=spec.bias, device=device, dtype=dtype)
        self.set_backend(backend, choice=choice)

    @property
    def spec(self) -> MLPSpec:
        """What this module computes, read from its live weights (`.half()` changes it, for example)."""
        dtype = str(self._any_parameter().dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise UsageError(f"weights of dtype {dtype!r} are not supported; valid: {', '.join(DTYPES)}")
        projections = (self.gate_proj, self.up_proj, self.down_proj)
        return MLPSpec(
            hidden_size=self.hidden_size,
            intermediate_size=self.intermediate_size,
            activation=parse_activation(self.activation),
            dtype=dtype,
            bias=any(getattr(projection, "bias", None) is not None for projection in projections),
        )

    @property
    def backend(self) -> str:
        """The name of the backend that runs this module."""
        return self._backend if isinstance(self._backend, str) else self._backend.name

    def set_backend(
        self, backend: str | registry.Backend, *, choice: Choice | str | os.PathLike[str] | None = None
    ) -> GatedMLP:
        """Run this module by another backend from now on; returns the module.

        With "auto" each call goes to the backend that `choice` names for its number of tokens: a choice, or the file
        that `mlpfusion choose` wrote.

        Raises:
            UnknownBackendError: no backend has this name.
            UsageError: "auto" without a choice, or a choice that cannot be read.
            BackendUnavailableError: it cannot run this module here. The previous backend then stays.
        """
        if choice is not None or backend == "auto":
            from mlpfusion import auto

            backend = auto.of(backend, choice)
        if not isinstance(backend, str | registry.Backend):
            raise UsageError(f"backend must be a name or a Backend, got {backend!r}")
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
        for projection in ("gate_proj", "up_proj", "down_proj"):
            getattr(
                self, projection
            )  # one that is gone is named here; from a property nn.Module would blame the property
        made = registry.load(backend) if isinstance(backend, str) else backend
        reason = made.unsupported(self.spec, describe(self._any_parameter().device))
        if reason is not None:
            raise BackendUnavailableError(made.name, reason)
        return made.bind(self)

    def _any_parameter(self) -> Tensor:
        """A parameter of the gate projection, which may be a wrapper whose weight has another name."""
        return next(self.gate_proj.parameters())

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in _BOUND and "_call" in self.__dict__:  # an adapter in place of a projection, another activation
            self._rebind()

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        if name in _BOUND:
            object.__setattr__(self, "_call", None)

    def _rebind(self) -> None:
        try:
            bound = self._bind(self._backend)
        except (BackendUnavailableError, UsageError):
            bound = None  # `forward` raises it: moving a module to the CPU to save it must not fail
        object.__setattr__(self, "_call", bound)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> GatedMLP:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if "_call" in self.__dict__:
            self._rebind()
        return self

    def __getstate__(self) -> dict[str, Any]:
        # A bound callable belongs to this module alone; copies and pickles bind their own.
        return {key: value for key, value in self.__dict__.items() if key != "_call"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._rebind()

    _call: Callable[[Tensor], Tensor] | None
    _backend: str | registry.Backend
