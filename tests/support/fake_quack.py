"""Stands in for quack's kernels on the CPU: their layouts and derivatives, in fp32, and the calls that they got."""

from __future__ import annotations

import importlib.machinery
import sys
from importlib import metadata
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from mlpfusion.backends.eager import activation_function
from mlpfusion.backends.quack import ACTIVATIONS

ACT = {theirs: activation_function(ours) for ours, theirs in ACTIVATIONS.items()}
# The operators of PyTorch's own derivatives: autograd itself does not reach into an operator's body.
BACKWARD = {
    "geglu": lambda dy, x: torch.ops.aten.gelu_backward(dy, x, approximate="tanh"),
    "swiglu": torch.ops.aten.silu_backward,
    "reglu": lambda dy, x: torch.ops.aten.threshold_backward(dy, x, 0),
}


class Kernels(ModuleType):
    """What the adapter calls of quack.gemm_interface, in fp32, with the layouts that quack documents."""

    def __init__(self) -> None:
        super().__init__("quack.gemm_interface")
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def gemm_gated(
        self,
        a: Tensor,
        b: Tensor,
        *,
        bias: Tensor | None,
        activation: str,
        store_preact: bool,
        concat_layout: tuple[str, ...],
        tuned: bool,
    ) -> tuple[Tensor | None, Tensor]:
        options = {"bias": bias, "activation": activation, "store_preact": store_preact, "tuned": tuned}
        options["concat_layout"] = concat_layout
        self.calls.append(("gemm_gated", (a, b), options))
        assert concat_layout == ("B", "bias")
        preact = a.float() @ alternate(b.T).float().T
        if bias is not None:
            preact = preact + alternate(bias).float()
        preact = preact.to(a.dtype)
        return preact if store_preact else None, gated(activation, preact.float()).to(a.dtype)

    def gemm_dgated(
        self, a: Tensor, b: Tensor, preact: Tensor, *, activation: str, tuned: bool
    ) -> tuple[Tensor, Tensor]:
        self.calls.append(("gemm_dgated", (a, b, preact), {"activation": activation, "tuned": tuned}))
        gate, up = preact.float()[:, ::2], preact.float()[:, 1::2]
        dproduct = a.float() @ b.float()
        dgate = BACKWARD[activation](dproduct * up, gate)
        dup = dproduct * ACT[activation](gate)
        dpreact = torch.stack((dgate, dup), dim=-1).flatten(-2)
        return dpreact.to(a.dtype), gated(activation, preact.float()).to(a.dtype)

    def gemm(
        self, a: Tensor, b: Tensor, *, concat_layout: tuple[str, ...], dynamic_scheduler: bool, tuned: bool
    ) -> Tensor:
        options = {"concat_layout": concat_layout, "dynamic_scheduler": dynamic_scheduler, "tuned": tuned}
        self.calls.append(("gemm", (a, b), options))
        (what,) = concat_layout
        product = a.float() @ (alternate(b) if what == "B" else b).float()
        return (product if what == "B" else torch.cat((product[::2], product[1::2]))).to(a.dtype)


def alternate(both: Tensor) -> Tensor:
    """[gate; up] along the first dimension as gate 0, up 0, gate 1, up 1 and so on."""
    return torch.stack(both.chunk(2), dim=1).flatten(0, 1)


def gated(activation: str, preact: Tensor) -> Tensor:
    return ACT[activation](preact[..., ::2]) * preact[..., 1::2]


def module(name: str) -> ModuleType:
    made = ModuleType(name)
    made.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    made.__path__ = []
    return made


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> Kernels:
    """Stand-ins for the package and its kernels."""
    version = metadata.version
    package, made = module("quack"), Kernels()
    vars(package)["gemm_interface"] = made
    monkeypatch.setitem(sys.modules, "quack", package)
    monkeypatch.setitem(sys.modules, "quack.gemm_interface", made)
    monkeypatch.setattr(metadata, "version", lambda name: "0.6.5" if name == "quack-kernels" else version(name))
    return made
