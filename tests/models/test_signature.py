"""The signature of a swapped module's forward: its own, for people, fx, torch.export and TorchScript."""

from __future__ import annotations

import inspect
import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from support.plain_mlp import Plain
from torch import Tensor, fx, nn

from mlpfusion.models.swap import swap

if TYPE_CHECKING:
    from collections.abc import Callable

X = torch.randn(3, 32, generator=torch.Generator().manual_seed(0))


class Optional(Plain):
    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        y = super().forward(x)
        return y if residual is None else y + residual


class Keyword(Plain):
    def forward(self, hidden_states: Tensor, /, scale: float = 1.0, *, add: Any = 0.0) -> Tensor:
        return super().forward(hidden_states) * scale + add


class Starred(Plain):
    def forward(self, *args: Tensor, **named: float) -> Tensor:
        return super().forward(args[0]) * named.get("scale", 1.0)


class Ignoring(Plain):
    def forward(self, x: Tensor, *args: Any, **named: Any) -> Tensor:
        return super().forward(x) + sum(args)


CALLS: list[tuple[type[nn.Module], Callable[[nn.Module], Tensor], int]] = [
    (Optional, lambda model: model(X), 0),
    (Optional, lambda model: model(x=X, residual=None), 0),
    (Optional, lambda model: model(X, X), 1),
    (Optional, lambda model: model(X, residual=X), 1),
    (Keyword, lambda model: model(X), 0),
    (Keyword, lambda model: model(X, 2.0, add=X), 1),
    (Keyword, lambda model: model(X, add=1.0), 1),
    (Starred, lambda model: model(X), 0),
    (Starred, lambda model: model(X, scale=2.0), 1),
    (Ignoring, lambda model: model(X), 0),
    (Ignoring, lambda model: model(X, 1.0), 1),
    (Ignoring, lambda model: model(X, anything=1.0), 1),
]


@pytest.mark.parametrize(("kind", "call", "bypassed"), CALLS)
def test_more_than_x_goes_to_its_own_forward_and_is_counted(
    kind: type[nn.Module], call: Callable[[nn.Module], Tensor], bypassed: int
) -> None:
    model = kind()
    before, own = call(model), inspect.signature(model.forward)
    with swap(model, "eager") as handle:
        assert inspect.signature(model.forward) == own
        torch.testing.assert_close(call(model), before)
        assert handle.bypassed == bypassed


@pytest.mark.parametrize("kind", [Plain, Optional])
def test_torch_export_takes_dynamic_shapes(kind: type[nn.Module]) -> None:
    model = kind()
    with swap(model, "eager"):
        shapes = {"x": {0: torch.export.Dim("tokens", min=2, max=64)}}
        exported = torch.export.export(model, (X,), dynamic_shapes=shapes, strict=False)
        torch.testing.assert_close(exported.module()(torch.cat((X, X))), model(torch.cat((X, X))))


def test_fx_and_torchscript_take_what_they_took_before() -> None:
    model = Plain()
    before = model(X)
    with swap(model, "eager"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(fx.symbolic_trace(model)(X), before)
        torch.testing.assert_close(torch.jit.script(model)(X), before)


@pytest.mark.parametrize("backend", ["eager", "packed", "fused"])
def test_a_torchscript_trace_is_of_its_own_forward_and_keeps_its_weights(backend: str) -> None:
    model = Plain()
    before = model(X)
    with swap(model, backend) as handle, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(model, X)
        assert handle.bypassed > 0
        torch.testing.assert_close(traced(torch.cat((X, X))), torch.cat((before, before)))
        with torch.no_grad():
            model.a.weight.zero_()
        torch.testing.assert_close(traced(X), model(X))
