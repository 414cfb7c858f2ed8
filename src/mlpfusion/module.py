"""`GatedMLP`: one gated MLP whose implementation can be exchanged without touching its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from mlpfusion import backend as registry
from mlpfusion.device import describe
from mlpfusion.errors import BackendUnavailableError, UsageError
from mlpfusion.spec import DTYPES, MLPSpec, parse_activation

if TYPE_CHECKING:
    from collections.abc import Callable


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
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        dtype: torch.dtype = getattr(torch, spec.dtype)
        d, h = spec.hidden_size, spec.intermediate_size
        self.activation = spec.activation
        self.gate_proj = nn.Linear(d, h, bias=spec.bias, device=device, dtype=dtype)
        self.up_proj = nn.Linear(d, h, bias=spec.bias, device=device, dtype=dtype)
        self.down_proj = nn.Linear(h, d, bias=spec.bias, device=device, dtype=dtype)
        self.set_backend(backend)

    @property
    def spec(self) -> MLPSpec:
        """What this module computes, read from its live weights (`.half()` changes it, for example)."""
        weight = self.gate_proj.weight
        dtype = str(weight.dtype).removeprefix("torch.")
        if dtype not in DTYPES:
            raise UsageError(f"weights of dtype {dtype!r} are not supported; valid: {', '.join(DTYPES)}")
        return MLPSpec(
            hidden_size=weight.shape[1],
            intermediate_size=weight.shape[0],
            activation=parse_activation(self.activation),
            dtype=dtype,
            bias=self.gate_proj.bias is not None,
        )

    @property
    def backend(self) -> str:
        """The name of the backend that runs this module."""
        return self._backend if isinstance(self._backend, str) else self._backend.name

    def set_backend(self, backend: str | registry.Backend) -> GatedMLP:
        """Run this module by another backend from now on; returns the module.

        Raises:
            UnknownBackendError: no backend has this name.
            BackendUnavailableError: it cannot run this module here. The previous backend then stays.
        """
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
        return call(x)

    def extra_repr(self) -> str:
        """The activation and the backend, for `print(module)`."""
        return f"activation={self.activation}, backend={self.backend}"

    def _bind(self, backend: str | registry.Backend) -> Callable[[Tensor], Tensor]:
        made = registry.load(backend) if isinstance(backend, str) else backend
        reason = made.unsupported(self.spec, describe(self.gate_proj.weight.device))
        if reason is not None:
            raise BackendUnavailableError(made.name, reason)
        return made.bind(self)

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
