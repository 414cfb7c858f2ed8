"""Runs functions as torch.compile captures them, with our pass over each graph but without Inductor's code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from mlpfusion.inductor.ledger import LEDGER
from mlpfusion.inductor.passes import Pass
from mlpfusion.inductor.settings import settle

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.inductor.ledger import Report


class Ran(NamedTuple):
    """What a function gave: values and gradients by name, what the pass met, and the graphs as it left them."""

    values: dict[str, Tensor]
    report: Report
    graphs: list[fx.Graph]


def backend(passed: Pass, graphs: list[fx.Graph], then: str = "eager") -> Callable[..., Any]:
    """A backend of torch.compile: the pass over subgraphs first, as Inductor does, then what `then` makes of it."""

    def compile_graph(gm: fx.GraphModule, examples: list[Any]) -> Any:
        for part in reversed([each for each in gm.modules() if isinstance(each, fx.GraphModule)]):
            passed(part.graph)
            part.graph.lint()
            part.recompile()
            graphs.append(part.graph)
        return gm if then == "eager" else torch._dynamo.lookup_backend(then)(gm, examples)

    return compile_graph


def passed(
    function: Any, *inputs: Tensor, using: str = "eager", min_tokens: int = 0, then: str = "eager", **options: Any
) -> Ran:
    """`function` captured and run on copies of the inputs, with our pass for the backend `using`."""
    torch._dynamo.reset()
    LEDGER.clear()
    graphs: list[fx.Graph] = []
    made = Pass(settle(using, min_tokens))
    call = torch.compile(function, backend=backend(made, graphs, then), **options)
    values = outcome(call, function, *inputs)
    return Ran(values, LEDGER.report(), graphs)


def outcome(call: Any, function: Any, *inputs: Tensor) -> dict[str, Tensor]:
    """What a call gives of copies of inputs, and the gradients of all that can have some."""
    given = [each.detach().clone().requires_grad_(each.requires_grad) for each in inputs]
    parameters = dict(function.named_parameters()) if isinstance(function, nn.Module) else {}
    y = call(*given)
    found = {"y": y.detach()}
    wanted = {**parameters, **{f"input {i}": each for i, each in enumerate(given)}}
    wanted = {name: each for name, each in wanted.items() if each.requires_grad}
    if y.requires_grad and wanted:
        ramp = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)
        gradients = torch.autograd.grad(y, list(wanted.values()), ramp, allow_unused=True)
        found |= {name: each for name, each in zip(wanted, gradients, strict=True) if each is not None}
    return found


def assert_same(mine: dict[str, Tensor], right: dict[str, Tensor], rel: float = 1e-4) -> None:
    """Equal values and gradients, of the same things, but for rounding."""
    assert mine.keys() == right.keys()
    for name, expected in right.items():
        size = expected.abs().max().clamp_min(1e-30)
        assert mine[name].dtype == expected.dtype, name
        assert mine[name].shape == expected.shape, name
        assert ((mine[name] - expected).abs().max() / size).item() <= rel, name


class Gated(nn.Module):
    """down(between(gate(x), up(x))), its layers of names that say nothing."""

    def __init__(self, between: Callable[[Tensor, Tensor], Tensor], d: int = 32, h: int = 48, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        options = {"bias": False, **options}
        self.one, self.two = nn.Linear(d, h, **options), nn.Linear(d, h, **options)
        self.three = nn.Linear(h, d, **options)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.three(self.between(self.one(x), self.two(x)))
        return y


class Packed(nn.Module):
    """The same with gate and up in one layer."""

    def __init__(self, between: Callable[[Tensor], Tensor], d: int = 32, h: int = 48, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        options = {"bias": False, **options}
        self.both, self.three = nn.Linear(d, 2 * h, **options), nn.Linear(h, d, **options)
        self.between = between

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.three(self.between(self.both(x)))
        return y


def an_input(*shape: int, grad: bool = True, **options: Any) -> Tensor:
    """A random x [*shape, 32]."""
    made = torch.randn(*(shape or (2, 5)), 32, generator=torch.Generator().manual_seed(1), **options)
    return made.requires_grad_(grad)


def operators(ran: Ran) -> list[fx.Node]:
    """The nodes of our operator in what the pass left."""
    return [node for graph in ran.graphs for node in graph.nodes if "mlpfusion.gated_mlp" in str(node.target)]
