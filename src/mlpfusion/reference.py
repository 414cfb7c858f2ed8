"""Makes the weights and inputs that every backend gets, the fp64 reference, and the errors against it."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from mlpfusion.errors import MeasurementError
from mlpfusion.module import GatedMLP
from mlpfusion.records.profile import Accuracy

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.spec import Activation, Workload

# Rows of x that the oracle handles at once, so that its fp64 intermediates stay small whatever the workload.
ORACLE_ROWS: Final = 1024


class Case(NamedTuple):
    """A module, an input x [batch, seq, hidden_size] and, in training, the gradient of y (else None)."""

    mlp: GatedMLP
    x: Tensor
    dy: Tensor | None


def make_case(workload: Workload, device: torch.device, *, seed: int, tokens: int | None = None) -> Case:
    """Random weights, input and output gradient that depend on the seed, the workload and the kind of device alone.

    x is standard normal and weights are scaled by the root of their fan-in, so that gate and up are about standard
    normal too. Random data, never zeros: a matrix product of zeros runs faster.
    """
    spec = workload.spec
    generator = torch.Generator(device).manual_seed(seed)
    dtype: torch.dtype = getattr(torch, spec.dtype)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, device=device, dtype=torch.float32)

    mlp = GatedMLP(spec, device=device)
    with torch.no_grad():
        for linear in (mlp.gate_proj, mlp.up_proj, mlp.down_proj):
            linear.weight.copy_(normal(*linear.weight.shape) * linear.in_features**-0.5)
            if linear.bias is not None:
                linear.bias.copy_(normal(*linear.bias.shape) * 0.1)
    shape = (workload.batch, workload.seq) if tokens is None else (1, tokens)
    training = workload.mode == "training"
    x = normal(*shape, spec.hidden_size).to(dtype).requires_grad_(training)
    dy = normal(*shape, spec.hidden_size).to(dtype) if training else None
    return Case(mlp.train(training), x, dy)


def step(call: Callable[[Tensor], Tensor], case: Case) -> Callable[[], tuple[Tensor, ...]]:
    """One call as it is measured: the forward or, in training, the forward and the gradients of x and all parameters.

    Returns (y,) or (y, dx, dparameters...).
    """
    x, dy = case.x, case.dy
    if dy is None:

        def forward() -> tuple[Tensor, ...]:
            with torch.no_grad():
                return (call(x),)

        return forward
    inputs = (x, *case.mlp.parameters())

    def forward_backward() -> tuple[Tensor, ...]:
        y = call(x)
        return (y, *torch.autograd.grad(y, inputs, dy))

    return forward_backward


def oracle(case: Case) -> tuple[Tensor, ...]:
    """What `step` should return, computed in fp64 on the same weights, ORACLE_ROWS rows at a time."""
    mlp = case.mlp
    parameters = {name: value.detach().double() for name, value in mlp.named_parameters()}
    for value in parameters.values():
        value.requires_grad_(case.dy is not None)
    rows = case.x.detach().flatten(0, -2)
    outputs, grads_x = [], []
    grads: list[Tensor] | None = None
    for start in range(0, rows.shape[0], ORACLE_ROWS):
        x = rows[start : start + ORACLE_ROWS].double().requires_grad_(case.dy is not None)
        gate = functional.linear(x, parameters["gate_proj.weight"], parameters.get("gate_proj.bias"))
        up = functional.linear(x, parameters["up_proj.weight"], parameters.get("up_proj.bias"))
        y = functional.linear(
            activate(gate, mlp.spec.activation) * up, parameters["down_proj.weight"], parameters.get("down_proj.bias")
        )
        outputs.append(y.detach())
        if case.dy is not None:
            dy = case.dy.flatten(0, -2)[start : start + ORACLE_ROWS].double()
            dx, *dparameters = torch.autograd.grad(y, (x, *parameters.values()), dy)
            grads_x.append(dx)
            grads = dparameters if grads is None else [a + b for a, b in zip(grads, dparameters, strict=True)]
    y = torch.cat(outputs).view(case.x.shape)
    if grads is None:
        return (y,)
    return (y, torch.cat(grads_x).view(case.x.shape), *grads)


class Error(NamedTuple):
    """|y - r| / max(rms(r), |r|): its largest value and its root mean square; None where y is nan or inf."""

    maximum: float | None
    rms: float | None


def error(value: Tensor, reference: Tensor) -> Error:
    """The error of `value` against an fp64 `reference` of the same shape."""
    if value.shape != reference.shape:
        raise ValueError(f"shape {tuple(value.shape)} where the reference has {tuple(reference.shape)}")
    if reference.numel() == 0:
        return Error(0.0, 0.0)
    scale = reference.abs().clamp_min(reference.square().mean().sqrt())
    relative = (value.double() - reference).abs() / scale
    if not bool(torch.isfinite(relative).all()):
        return Error(None, None)
    return Error(relative.max().item(), relative.square().mean().sqrt().item())


def judge(outputs: tuple[Tensor, ...], eager: tuple[Tensor, ...], references: tuple[Tensor, ...]) -> Accuracy:
    """The accuracy of a call relative to eager's own; with several outputs, that of the worst of them."""
    for value, own in zip(outputs, eager, strict=True):
        if not isinstance(value, Tensor):
            raise MeasurementError(f"it returns a {type(value).__name__} where a tensor is expected")
        if (value.shape, value.dtype, value.device) != (own.shape, own.dtype, own.device):
            raise MeasurementError(
                f"it returns {tuple(value.shape)} {value.dtype} on {value.device} where eager returns "
                f"{tuple(own.shape)} {own.dtype} on {own.device}"
            )
    judged = []
    for value, own, reference in zip(outputs, eager, references, strict=True):
        mine, theirs = error(value, reference), error(own, reference)
        if theirs.maximum is None or theirs.rms is None:
            raise MeasurementError("eager itself gives nan or inf on this workload, so it is no reference")
        judged.append(
            Accuracy(
                max_error=mine.maximum,
                rms_error=mine.rms,
                eager_max_error=theirs.maximum,
                eager_rms_error=theirs.rms,
                rows=reference.numel() // reference.shape[-1] if reference.numel() else 0,
                elements=reference.numel(),
            )
        )
    return max(judged, key=lambda accuracy: accuracy.ratio / accuracy.limit)


# ---- the activations, by formulas that neither cancel nor overflow ---------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Sigmoid:
    """g·sigmoid(a·g + b·g³), the form of most activations that rise smoothly."""

    a: float
    b: float = 0.0

    def __call__(self, g: Tensor) -> Tensor:
        """Its values at g, of any shape."""
        return g * torch.sigmoid(self.a * g + self.b * g**3 if self.b else self.a * g)


ROOT: Final = math.sqrt(2 / math.pi)  # of tanh-GELU, 0.5·g·(1 + tanh(ROOT·(g + CUBIC·g³)))
CUBIC: Final = 0.044715

# PyTorch's own functions are what is judged, and no reference: oneDNN's exact GELU is inf for gates above FLT_MAX/2 on
# CPUs with AVX-512, and 0.5·g·(1 + tanh z) loses its digits where tanh z is near -1, in fp64 as well.
FORMULAS: Final[dict[Activation, Callable[[Tensor], Tensor]]] = {
    "gelu_tanh": Sigmoid(2 * ROOT, 2 * ROOT * CUBIC),
    "gelu": lambda g: 0.5 * g * torch.erfc(-g / math.sqrt(2)),
    "silu": Sigmoid(1.0),
    "quick_gelu": Sigmoid(1.702),  # an older and cruder GELU (Hendrycks & Gimpel, arXiv 1606.08415)
    "relu": torch.relu,
    "relu2": lambda g: torch.relu(g).square(),
}


def activate(g: Tensor, activation: Activation) -> Tensor:
    """act(g) of an fp64 tensor of any shape, fp64; differentiable as often as one likes.

    Right to 1e-12 of act(g) for every gate that float32 can hold; below 1e-300 it may be 0. So are its derivatives.

    Raises:
        ValueError: `g` is not fp64.
    """
    if g.dtype is not torch.float64:
        raise ValueError(f"a reference is computed in torch.float64, not in {g.dtype}")
    return FORMULAS[activation](g)
