"""The operator that stands in a compiled graph: a gated MLP on tensors, by a backend for each number of tokens."""

# Operators are called by position.
# ruff: noqa: PLR0917

from __future__ import annotations

import contextlib
import functools
import json
import logging
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from mlpfusion_kernels import Weights
from mlpfusion_kernels.gradients import (
    Wanted,
    by_middle,
    is_nested,
    is_traced,
    joined,
    parted,
    shapes,
    without_autocast,
)
from torch.autograd import forward_ad

from mlpfusion import backend as registry
from mlpfusion.backends import products

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LOG: Final = logging.getLogger("torch._inductor.mlpfusion")  # TORCH_LOGS="inductor" shows it
_NO_FORWARD_MODE: Final = (
    "a gated MLP that mlpfusion.inductor put into a graph has no forward-mode derivative; compile this without it"
)
PRODUCTS: Final = registry.OnTensors(products.forward, products.backward, products.unreadable, products.middle)


class Rule(NamedTuple):
    """A backend and the numbers of tokens that it runs, both ends in it; no `last` means all that are larger."""

    first: int
    last: int | None
    backend: str

    def holds(self, tokens: int) -> bool:
        """Whether it is for this number of tokens; none at all counts as one."""
        return self.first <= max(tokens, 1) and (self.last is None or tokens <= self.last)


def written(rules: Sequence[Rule]) -> str:
    """Rules as the operator takes them: text, so that a compiled graph says all that it depends on."""
    return json.dumps(rules)


@functools.lru_cache(maxsize=256)
def _read(rules: str) -> tuple[Rule, ...]:
    return tuple(Rule(*each) for each in json.loads(rules))


@functools.lru_cache(maxsize=64)
def _of(backend: str) -> registry.OnTensors:
    made: Any = registry.load(backend)
    found: registry.OnTensors = made.on_tensors
    return found


# Why PyTorch's products ran at each call of an operator, or None where a backend did: a list for each that asks.
_NOTED: Final[list[list[str | None]]] = []
UNCHOSEN: Final = "the backend gets another number of tokens"


@contextlib.contextmanager
def noting() -> Iterator[list[str | None]]:
    """For each call of an operator why PyTorch's products ran it, or None where a backend did, for a `with` block."""
    noted: list[str | None] = []
    _NOTED.append(noted)
    try:
        yield noted
    finally:
        _NOTED[:] = [each for each in _NOTED if each is not noted]


def _chosen(rules: str, x: torch.Tensor, weights: Weights) -> registry.OnTensors:
    """What runs these tensors: the backend of the first rule that is for so many rows, else PyTorch's products."""
    tokens = x.numel() // max(x.shape[-1], 1)
    found = PRODUCTS
    reason: str | None = UNCHOSEN
    rule = next((each for each in _read(rules) if each.holds(tokens)), None)
    if rule is not None:
        made = _of(rule.backend)
        reason = made.unreadable(weights, addresses=True)
        if reason is None:
            found = made
        else:
            _warn_once(rule.backend, reason)
    for noted in _NOTED:
        noted.append(reason)
    return found


@functools.lru_cache(maxsize=64)
def _warn_once(backend: str, reason: str) -> None:
    LOG.warning("a gated MLP runs by PyTorch's products and not by %s: %s", backend, reason)


@torch.library.custom_op("mlpfusion::gated_mlp", mutates_args=())
def _forward(
    x: torch.Tensor,
    gate_weight: torch.Tensor,
    up_weight: torch.Tensor,
    down_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    up_bias: torch.Tensor | None,
    down_bias: torch.Tensor | None,
    activation: str,
    keep: bool,
    rules: str,
    digest: str,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(y [..., D], gate and up [M, H]); gate and up are empty unless `keep`: an operator cannot return None."""
    if forward_ad._current_level >= 0 and torch._C._is_fwd_grad_enabled():  # the tangents would be lost without a word
        raise RuntimeError(_NO_FORWARD_MODE)
    weights = Weights(gate_weight, up_weight, down_weight, gate_bias, up_bias, down_bias)
    # The operands have been cast by the graph; a cast of autocast's own would be a second one.
    with without_autocast(x.device.type):
        y, gate, up = _chosen(rules, x, weights).forward(x, weights, activation, keep)
    return y, x.new_empty(0) if gate is None else gate, x.new_empty(0) if up is None else up


@_forward.register_fake
def _(
    x: torch.Tensor, gate_weight: torch.Tensor, up_weight: torch.Tensor, down_weight: torch.Tensor, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    keep = rest[4]
    y = x.new_empty((*x.shape[:-1], down_weight.shape[0]))
    if not keep:
        return y, x.new_empty(0), x.new_empty(0)
    tokens = 1
    for size in x.shape[:-1]:
        tokens = tokens * size
    shape = (tokens, gate_weight.shape[0])
    return y, x.new_empty(shape), x.new_empty(shape)


@torch.library.custom_op("mlpfusion::gated_mlp_backward", mutates_args=())
def _backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    gate_weight: torch.Tensor,
    up_weight: torch.Tensor,
    down_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    up_bias: torch.Tensor | None,
    down_bias: torch.Tensor | None,
    activation: str,
    wanted: list[bool],
    rules: str,
    digest: str,
) -> list[torch.Tensor]:
    """The wanted gradients, joined: an unwanted one is empty."""
    weights = Weights(gate_weight, up_weight, down_weight, gate_bias, up_bias, down_bias)
    with without_autocast(x.device.type):
        chosen = _chosen(rules, x, weights)
        return joined(chosen.backward(dy.to(x.dtype), x, *_kept(gate, up), weights, activation, Wanted(*wanted)), x)


@_backward.register_fake
def _(dy: torch.Tensor, x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, *rest: Any) -> list[torch.Tensor]:
    return [x.new_empty(shape) for shape in shapes((x, *rest[:6]), Wanted(*rest[7]))]


@torch.library.custom_op("mlpfusion::gated_mlp_middle", mutates_args=())
def _middle(
    dy: torch.Tensor,
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    gate_weight: torch.Tensor,
    up_weight: torch.Tensor,
    down_weight: torch.Tensor,
    gate_bias: torch.Tensor | None,
    up_bias: torch.Tensor | None,
    down_bias: torch.Tensor | None,
    activation: str,
    rules: str,
    digest: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dgate beside dup [M, 2H], product [M, H]) of dy [M, D] and x [..., D], by a backend that has a `middle`.

    An ambient autocast may have cast the products of a graph that made dy.
    """
    weights = Weights(gate_weight, up_weight, down_weight, gate_bias, up_bias, down_bias)
    with without_autocast(x.device.type):
        middle: Any = _chosen(rules, x, weights).middle
        found: tuple[torch.Tensor, torch.Tensor] = middle(
            dy.to(x.dtype), x.reshape(-1, x.shape[-1]), *_kept(gate, up), weights, activation
        )
        return found


@_middle.register_fake
def _(
    dy: torch.Tensor, x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, gate_weight: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    m, h = dy.shape[0], gate_weight.shape[0]
    return x.new_empty((m, 2 * h)), x.new_empty((m, h))


def _kept(gate: torch.Tensor, up: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | tuple[None, None]:
    """What the forward kept; where it kept nothing, both came as empty tensors."""
    return (gate, up) if gate.dim() == 2 else (None, None)


def _no_second_derivative(*_: Any) -> Any:
    raise RuntimeError(
        "a gated MLP that mlpfusion.inductor put into a graph has no second derivative; compile this without it"
    )


_backward.register_autograd(_no_second_derivative)
_middle.register_autograd(_no_second_derivative)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor, torch.Tensor]) -> None:
    *tensors, ctx.activation, _, ctx.rules, ctx.digest = inputs
    _, gate, up = output
    ctx.mark_non_differentiable(gate, up)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, gate, up)


def _gradients(ctx: Any, dy: torch.Tensor | None, *_: Any) -> tuple[torch.Tensor | None, ...]:
    if dy is None:
        return (None,) * 11
    wanted = Wanted(*ctx.needs_input_grad[:7])
    x, *weights, gate, up = ctx.saved_tensors
    if is_traced() and all(_of(rule.backend).middle for rule in _read(ctx.rules)):
        # x and not its rows: a compiled backward refuses a second derivative by the inputs that it was given.
        found = by_middle(
            lambda dy, _: _middle(dy, x, gate, up, *weights, ctx.activation, ctx.rules, ctx.digest),
            dy,
            x,
            weights[:2],
            wanted,
            addresses=False,
        )
        return *found, None, None, None, None
    seven: list[torch.Tensor | None] = [None] * 7
    for some in _calls(wanted):
        whole = _backward(dy, x, gate, up, *weights, ctx.activation, list(some), ctx.rules, ctx.digest)
        seven = [one if each is None else each for one, each in zip(seven, parted(whole, some), strict=True)]
    return *seven, None, None, None, None


def _calls(wanted: Wanted) -> list[Wanted]:
    """What each call is to give: in a nested graph up's come from a second, as none may be a half of a result."""
    if not is_nested():
        return [wanted]
    first = wanted._replace(up=False, up_bias=False)
    second = Wanted(*[False] * 7)._replace(up=wanted.up, up_bias=wanted.up_bias)
    return [each for each in (first, second) if any(each)]


_forward.register_autograd(_gradients, setup_context=_save)

# A node of a graph must be an overload: its name is in the keys of caches.
OPERATOR: Final = torch.ops.mlpfusion.gated_mlp.default
