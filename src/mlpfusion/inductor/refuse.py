"""Says why a cone of a graph may not be replaced, from the graph alone: what crosses it, what leaks, what it reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.fx import Node

from mlpfusion.inductor.match import EXPORTED, is_dead, name_of, operand, path_of, same, writes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch.fx import Graph

    from mlpfusion.inductor.match import Cone

_SWITCH: Final = re.compile(r"^_*(enter|exit|set|push|pop)_|_nesting$|_saved_tensors_hooks|_mode$")
_FUNCTORCH: Final = re.compile(r"_(increment|decrement)_nesting$|^_(add|remove)_batch_dim$|_wrap_for_grad$")
_FORWARD_MODE: Final = re.compile(r"^_?(make_dual|enter_dual_level)$")
# Functions of these only compute; what else a graph may call may do anything.
_KNOWN: Final = ("torch", "_operator", "math", "builtins")


def foreign(graph: Graph) -> str | None:
    """What a whole graph is that no cone of it may be replaced in, or None."""
    for node in graph.nodes:
        if node.op == "call_function" and _FUNCTORCH.search(name_of(node)):
            return f"the graph is inside a transform of torch.func ({name_of(node)})"
        if node.op == "call_function" and _FORWARD_MODE.search(name_of(node)):
            return f"the graph differentiates in forward mode ({name_of(node)})"
        if node.op == "call_function" and node.target in EXPORTED:
            return "the graph comes from torch.export (aten.linear.default), which this pass does not change"
    return None


def refusal(cone: Cone) -> str | None:
    """Why a cone may not be replaced, or None as far as the graph says."""
    return _unlike(cone) or _leaks(cone) or _crossed(cone)


def _unlike(cone: Cone) -> str | None:
    """Products or tensors that no gated MLP has."""
    further = [each for each in cone.linears if each not in cone.pair]
    if further:
        others = [each.name for each in further if not same(operand(each), cone.x)]
        read = f", {'which reads' if len(others) == 1 else 'which read'} another x" if others else ""
        return f"{_names(further)} {_is(further)} a further product before {cone.down.name}{read} (an adapter?)"
    if cone.outside:
        return f"between its products it also reads {_names(cone.outside)}"
    return None


def _leaks(cone: Cone) -> str | None:
    """A value inside that something else needs as well."""
    own = cone.own
    for node in (*cone.linears, *cone.inner):
        for user in node.users:
            if user not in own and not is_dead(user):
                return f"{node.name} is used elsewhere too, by {'the output' if user.op == 'output' else user.name}"
    return None


def _crossed(cone: Cone) -> str | None:
    """What changes a mode or a tensor between the cone's first node and its last: the operator runs at the last.

    Where each layer has a view, or a copy, of x for itself, these are the first.
    """
    own, inside, node = cone.own, set[Node](), cone.linears[0]
    path = path_of(cone.pair[0], cone.pair[-1])
    if path:
        node = next(each for each in node.graph.nodes if each in path or each in own)
    while True:
        reason = _changes(node, inside if node in own else set())
        if reason is not None or node is cone.down:
            return reason
        if node in own:
            inside.add(node)
        node = node.next


def _changes(node: Node, mine: set[Node]) -> str | None:
    """What a node does besides computing a value, or None; it may write to nodes of the cone itself."""
    if node.op in {"placeholder", "get_attr", "output"}:
        return None
    if node.op == "call_module":
        return f"{node.name}, a module, runs between its first product and its last"
    name = name_of(node)
    if node.op == "call_function" and _SWITCH.search(name):
        return f"{name} switches a mode between its first product and its last"
    if writes(node):
        written = next(iter(node.all_input_nodes), None)
        if written in mine and "out" not in node.kwargs:
            return None
        of = f" {written.name}" if written is not None else ""
        return f"{name} changes{of} in place between its first product and its last"
    if node.op == "call_function" and not _is_known(node.target):
        return f"{name} runs between its first product and its last and may change anything"
    return None


def _is_known(target: Any) -> bool:
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return True
    if isinstance(target, torch._ops.HigherOrderOperator):
        return False
    home = getattr(target, "__module__", None) or type(target).__module__
    return home.split(".")[0] in _KNOWN


def _names(nodes: Iterable[Node]) -> str:
    return ", ".join(node.name for node in nodes)


def _is(nodes: list[Node]) -> str:
    return "is" if len(nodes) == 1 else "are each"
