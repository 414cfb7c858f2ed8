"""Puts the operator in place of a proved cone, or leaves it, by the number of its tokens."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from mlpfusion.inductor.match import value
from mlpfusion.inductor.operator import OPERATOR, Rule, written

if TYPE_CHECKING:
    from torch.fx import Graph, Node

    from mlpfusion.inductor.match import Cone
    from mlpfusion.inductor.operands import Operands
    from mlpfusion.inductor.prove import Proved


def decided(rules: tuple[Rule, ...], tokens: Any) -> tuple[Rule, ...]:
    """The rules that this number of tokens needs: one, without bounds, where it is known which; none where none holds.

    Of a symbol nothing is asked that would put a guard on it: what is not known of it, the operator decides as it runs.
    """
    if not isinstance(tokens, torch.SymInt):
        return tuple(Rule(0, None, rule.backend) for rule in rules if rule.holds(tokens))[:1]
    left: list[Rule] = []
    for rule in rules:
        below, above = tokens < rule.first, False if rule.last is None else tokens > rule.last
        if statically_known_true(below) or statically_known_true(above):
            continue
        starts = rule.first <= 1 or statically_known_true(tokens >= rule.first)
        if starts and (rule.last is None or statically_known_true(tokens <= rule.last)):
            return (*left, Rule(0, None, rule.backend))
        left.append(rule)
    return tuple(left)


def fits(cone: Cone) -> str | None:
    """Why what the last layer gives cannot be made of what the operator gives, which has the shape of x; or None."""
    before, after = value(cone.x).shape[:-1], value(cone.down).shape[:-1]
    if _are_same(before, after) or len(after) == 1 or _known(after):
        return None
    return f"its rows are reshaped from {_shown(before)} to {_shown(after)}"


def replace(
    graph: Graph, cone: Cone, operands: Operands, proved: Proved, *, rules: tuple[Rule, ...], digest: str
) -> None:
    """Put the operator where the cone's last node is, and erase the cone."""
    down = cone.down
    with graph.inserting_before(down):
        x = _cast(graph, operands, operands.x)
        down_weight, down_bias = (_cast(graph, operands, each) for each in (operands.down_weight, operands.down_bias))
        gate, up, gate_bias, up_bias = _parted(graph, operands, proved)
        tensors = (x, gate, up, down_weight, gate_bias, up_bias, down_bias)
        keep = bool(value(down).requires_grad)
        call = graph.call_function(OPERATOR, (*tensors, proved.activation, keep, written(rules), digest))
        y = graph.call_function(operator.getitem, (call, 0))
        before, after = value(cone.x).shape[:-1], value(down).shape
        if not _are_same(before, after[:-1]):
            y = graph.call_method("reshape", (y, (-1, *after[1:])))
    for node in (call, y):
        node.meta.update({key: each for key, each in down.meta.items() if key not in {"example_value", "val"}})
    y.meta.update({key: down.meta[key] for key in ("example_value", "val") if key in down.meta})
    down.replace_all_uses_with(y)
    graph.erase_node(down)
    for node in (*reversed(cone.inner), *cone.linears):
        for dead in list(node.users):
            graph.erase_node(dead)
        graph.erase_node(node)


def _parted(graph: Graph, operands: Operands, proved: Proved) -> tuple[Any, Any, Any, Any]:
    """Gate and up weights and biases, of a packed layer its halves: views that gradients go through."""
    weights, biases = ([_cast(graph, operands, each) for each in some] for some in (operands.weights, operands.biases))
    if operands.packed:
        weights, biases = (_halves(graph, each) for each in (weights[0], biases[0]))
    if proved.up_first:
        weights.reverse()
        biases.reverse()
    return (*weights, *biases)


def _halves(graph: Graph, whole: Node | None) -> list[Node | None]:
    """Both of one `chunk`, so that the gradient is what both put together and not a sum of two with zeros."""
    if whole is None:
        return [None, None]
    both = graph.call_function(torch.chunk, (whole, 2))
    return [graph.call_function(operator.getitem, (both, place)) for place in (0, 1)]


def _cast(graph: Graph, operands: Operands, node: Any) -> Any:
    """The node in the dtype of the products, to which autocast has cast what the layers got."""
    if node is None:
        return None
    return node if value(node).dtype == operands.dtype else graph.call_method("to", (node, operands.dtype))


def _are_same(before: Any, after: Any) -> bool:
    """Whether two shapes are equal, also where one size is written in two ways, as s and (s**2)//s, without a guard."""
    return len(before) == len(after) and all(
        str(one) == str(other) or statically_known_true(one == other) for one, other in zip(before, after, strict=True)
    )


def _known(shape: Any) -> bool:
    return all(type(size) is int for size in shape)


def _shown(shape: Any) -> str:
    return f"[{', '.join(map(str, shape))}]"
