"""The baselines that bench/fused.py times, each as a call on one module's weights."""

from __future__ import annotations

import time
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, cast

import fused_rows as rows
import torch
from torch.nn import functional

from mlpfusion import backend
from mlpfusion.backends.adjacent_weights import Pair
from mlpfusion.backends.eager import activation_function, forward_of
from mlpfusion.errors import BackendUnavailableError, first_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from mlpfusion.device import Device
    from mlpfusion.module import GatedMLP
    from mlpfusion.reference import Case

TRIALS = 10  # of each way to do a group of products, before the faster one is taken for the products alone


def settle(mlp: GatedMLP) -> None:
    """Make gate and up adjacent before any baseline records an address: some would move them later."""
    Pair(rows.PRODUCTS, mlp.gate_proj.weight, mlp.up_proj.weight)


def bind(name: str, case: Case, here: Device) -> Callable[[Tensor], Tensor]:
    """A baseline's forward: x [..., hidden_size] -> y [..., hidden_size].

    Raises:
        MlpfusionError: it cannot run here, with the reason.
    """
    if name == rows.FREEZING:
        return _frozen(case)
    if name == rows.LIGER_MLP:
        return _liger_mlp(case.mlp)
    if name == rows.OWN_DOWN:
        return _quack_alone(case.mlp, here)
    made = backend.load(name)
    reason = made.unsupported(case.mlp.spec, here)
    if reason is not None:
        raise BackendUnavailableError(name, reason)
    return made.bind(case.mlp)


def _frozen(case: Case) -> Callable[[Tensor], Tensor]:
    """max-autotune with the weights as constants, which Inductor may lay out anew."""
    forward = forward_of(case.mlp)
    # Dynamo keeps what it compiled by code object: its own keeps this apart from the other compiled baselines.
    own = FunctionType(forward.__code__.replace(), forward.__globals__, closure=forward.__closure__)
    compiled: Callable[[Tensor], Tensor] = torch.compile(own, fullgraph=True, mode="max-autotune-no-cudagraphs")
    with torch._inductor.config.patch(freezing=True), torch.no_grad():
        compiled(case.x)
    return compiled


def _liger_mlp(mlp: GatedMLP) -> Callable[[Tensor], Tensor]:
    """Liger's MLP with SwiGLU in the epilogue of its own gate/up product."""
    if mlp.spec.activation != "silu":
        raise BackendUnavailableError(rows.LIGER_MLP, "Liger's fused MLP is SwiGLU alone")
    try:
        from liger_kernel.transformers.mlp import LigerMLP
    except ImportError as error:
        raise BackendUnavailableError(rows.LIGER_MLP, first_line(error)) from error
    return cast("Callable[[Tensor], Tensor]", MethodType(LigerMLP.forward, mlp))


def _quack_alone(mlp: GatedMLP, here: Device) -> Callable[[Tensor], Tensor]:
    """As the backend `quack`, with quack's own product for down too."""
    from mlpfusion.backends.quack import ACTIVATIONS, Quack

    reason = Quack().unsupported(mlp.spec, here)
    if reason is not None:
        raise BackendUnavailableError(rows.OWN_DOWN, reason)
    from quack.gemm_interface import gemm, gemm_gated

    weights = Pair(rows.OWN_DOWN, mlp.gate_proj.weight, mlp.up_proj.weight)
    both = weights.joined(mlp.gate_proj.weight, mlp.up_proj.weight)
    activation, down = ACTIVATIONS[mlp.spec.activation], mlp.down_proj.weight

    def call(x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        product = gemm_gated(flat, both.T, activation=activation, store_preact=False, concat_layout=("B",))[1]
        return cast("Tensor", gemm(product, down.T)).view(x.shape)

    return call


def products_alone(case: Case) -> Callable[[], object]:
    """The same matrix products by cuBLAS with no activation: two in inference, nine in training, six of them packed.

    In training each packed product and the two that it stands for are tried, and the faster are taken.
    """
    mlp = case.mlp
    pair = Pair(rows.PRODUCTS, mlp.gate_proj.weight, mlp.up_proj.weight)
    both = pair.joined(mlp.gate_proj.weight, mlp.up_proj.weight)
    x, down = case.x.detach(), mlp.down_proj.weight.detach()
    with torch.no_grad():
        gate, up = functional.linear(x, both).chunk(2, dim=-1)
        product = activation_function(mlp.spec.activation)(gate) * up

    def forward() -> object:
        with torch.no_grad():
            return functional.linear(x, both), functional.linear(product, down)

    return forward if case.dy is None else _training_products(x, both, down, product, case.dy)


def _training_products(x: Tensor, both: Tensor, down: Tensor, product: Tensor, dy: Tensor) -> Callable[[], object]:
    x, product, dy = (tensor.flatten(0, -2) for tensor in (x, product, dy))
    dboth = torch.randn(x.shape[0], both.shape[0], device=x.device, dtype=x.dtype)
    gate, up = both.chunk(2)
    dgate, dup = (half.contiguous() for half in dboth.chunk(2, dim=-1))
    with torch.no_grad():
        gate_up = _faster(lambda: x @ both.T, lambda: (x @ gate.T, x @ up.T))
        dx = _faster(lambda: dboth @ both, lambda: torch.addmm(dgate @ gate, dup, up))
        dweights = _faster(lambda: dboth.T @ x, lambda: (dgate.T @ x, dup.T @ x))

    def step() -> object:
        with torch.no_grad():
            return gate_up(), product @ down.T, dy @ down, dy.T @ product, dx(), dweights()

    return step


def _faster(one: Callable[[], object], other: Callable[[], object]) -> Callable[[], object]:
    """The one of two calls whose least time is less."""
    return min((one, other), key=_least_time)


def _least_time(call: Callable[[], object]) -> float:
    def synchronize() -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    times: list[float] = []
    call()
    for _ in range(TRIALS):
        synchronize()
        start = time.perf_counter()
        held: Any = call()
        synchronize()
        times.append(time.perf_counter() - start)
        del held
    return min(times)
