"""Finds what may be a gated MLP in a graph before autograd: a linear layer, and all that lies between it and others."""

from __future__ import annotations

import inspect
import operator
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.fx import Node

if TYPE_CHECKING:
    from torch.fx import Graph

# What Dynamo leaves of every linear layer, and what `torch.export` does.
LINEAR: Final = torch.nn.functional.linear
EXPORTED: Final = (torch.ops.aten.linear, torch.ops.aten.linear.default)
# More nodes than any activation and packing is spelled out with (the longest seen has 14).
LONGEST: Final = 48
# What mixes tokens or features, as no gated MLP does between its layers: an attention or a convolution.
MIXING: Final = (
    "attention",
    "attn",
    "matmul",
    "bmm",
    "einsum",
    "softmax",
    "conv",
    "cumsum",
    "embedding",
    "rnn",
    "lstm",
)
_MUL: Final = frozenset(("mul", "mul_", "imul", "multiply", "multiply_"))
_IN_PLACE: Final = frozenset(
    ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "iand", "ior", "ixor", "setitem")
)
_VIEWS: Final = frozenset(
    ("view", "reshape", "flatten", "unflatten", "unsqueeze", "squeeze", "contiguous", "expand", "view_as", "to", "type")
)


class Cone(NamedTuple):
    """A linear layer and what lies between it and the linear layers that it grows from, in the graph's order.

    `outside` are the tensors that it reads besides; `pair` are the layers, or the parts of one, whose product it takes.
    """

    down: Node
    linears: tuple[Node, ...]
    inner: tuple[Node, ...]
    outside: tuple[Node, ...]
    pair: tuple[Node, ...]

    @property
    def x(self) -> Node:
        """What its first layers read."""
        found: Node = operand(self.pair[0])
        return found

    @property
    def own(self) -> frozenset[Node]:
        """All that is gone once it is replaced."""
        return frozenset((*self.linears, *self.inner, self.down))


def cones(graph: Graph) -> list[Cone]:
    """Everything in a graph that is like a gated MLP: two linear layers of one x, or two halves of one, whose product
    reaches another linear layer.
    """
    places = {node: place for place, node in enumerate(graph.nodes)}
    found = (_climb(node, places) for node in places if is_linear(node))
    return [each for each in found if each is not None]


def is_linear(node: Node) -> bool:
    """Whether a node is a linear layer, as Dynamo or as an export writes it."""
    return node.op == "call_function" and (node.target is LINEAR or node.target in EXPORTED)


def operand(linear: Node) -> Any:
    """What a linear layer is given: x [..., in]."""
    return argument(linear, 0, "input")


def weight(linear: Node) -> Any:
    """The weight [out, in] of a linear layer."""
    return argument(linear, 1, "weight")


def bias(linear: Node) -> Any:
    """The bias [out] of a linear layer, or None."""
    return argument(linear, 2, "bias")


def argument(node: Node, place: int, name: str) -> Any:
    """An argument of a call, given by its place or by its name; None if it is not given."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name)


def value(node: Any) -> Any:
    """What the compiler knows of a node's value: a tensor without data, a symbol, or a constant."""
    if not isinstance(node, Node):
        return node
    return node.meta.get("example_value", node.meta.get("val"))


def name_of(node: Node) -> str:
    """What a node calls, by its last name: `gelu`, `mul`, `chunk`."""
    if node.op == "call_method":
        return str(node.target)
    target: Any = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(target, "__name__", target)).rpartition(".")[2]


def writes(node: Node) -> bool:
    """Whether a call changes what it is given first, or as `out`."""
    name = name_of(node)
    if re.search(r"(?<!_)_$", name) or node.kwargs.get("out") is not None:
        return True
    if node.op == "call_method":
        return name in {"set_", "__setitem__"}
    if isinstance(node.target, torch._ops.OpOverload):
        return bool(node.target._schema.is_mutable)
    if getattr(node.target, "__module__", None) in {"_operator", "operator"}:
        return name in _IN_PLACE
    return bool(_given(node, "inplace"))


def _given(node: Node, name: str) -> Any:
    """An argument of a Python function by its name, wherever it stands in the call."""
    if name in node.kwargs:
        return node.kwargs[name]
    try:
        return inspect.signature(node.target).bind(*node.args, **node.kwargs).arguments.get(name)  # type: ignore[arg-type]
    except (TypeError, ValueError):  # a builtin, which has no such argument
        return None


def same(a: Any, b: Any, depth: int = 4) -> bool:
    """Whether two nodes are one tensor: the same node, what changed it in place, or the same views of one."""
    a, b = _origin(a), _origin(b)
    if a is b:
        return True
    if not (isinstance(a, Node) and isinstance(b, Node)) or depth == 0:
        return False
    alike = a.op == b.op and a.op in {"call_function", "call_method"} and a.target == b.target
    if not alike or name_of(a) not in _VIEWS or len(a.args) != len(b.args) or a.kwargs.keys() != b.kwargs.keys():
        return False
    pairs = [*zip(a.args, b.args, strict=True), *((a.kwargs[key], b.kwargs[key]) for key in a.kwargs)]
    return all(
        same(one, other, depth - 1) if isinstance(one, Node) or isinstance(other, Node) else one == other
        for one, other in pairs
    )


def is_dead(node: Node) -> bool:
    """Whether a node is a part of something that nothing uses, such as Dynamo leaves of a tuple."""
    return node.target is operator.getitem and not node.users


def _origin(node: Any) -> Any:
    """The tensor that a node gives back, changed or not."""
    while isinstance(node, Node) and _returns_first(node):
        node = node.args[0]
    return node


def _returns_first(node: Node) -> bool:
    """Whether a call changes its first argument and gives that back, as methods and functions in place do."""
    called = node.op in {"call_function", "call_method"} and not isinstance(node.target, torch._ops.OpOverload)
    return called and bool(node.args) and node.kwargs.get("out") is None and writes(node)


def path_of(linear: Node, other: Node) -> set[Node]:
    """What two layers' x is made by where each has it from nodes of its own; empty if they read one node."""
    found, todo = set[Node](), [operand(linear), operand(other)]
    if todo[0] is todo[1]:
        return found
    while todo:
        node = todo.pop()
        if isinstance(node, Node) and node.args and (_returns_first(node) or name_of(node) in _VIEWS):
            found.add(node)
            todo.append(node.args[0])
    return found


def _climb(down: Node, places: dict[Node, int]) -> Cone | None:
    todo, seen = [operand(down)], set[Node]()
    linears, inner, outside = list[Node](), list[Node](), list[Node]()
    while todo:
        node = todo.pop()
        if not isinstance(node, Node) or node in seen or not _holds_tensors(node):
            continue
        seen.add(node)
        if len(seen) > LONGEST:
            return None
        if is_linear(node):
            linears.append(node)
        elif node.op not in {"call_function", "call_method"}:
            outside.append(node)
        elif any(part in name_of(node) for part in MIXING):
            return None
        else:
            inner.append(node)
            todo += node.all_input_nodes
    ordered = (sorted(found, key=places.__getitem__) for found in (linears, inner, outside))
    linears, inner, outside = ordered
    pair = _pair(down, inner, linears)
    return Cone(down, tuple(linears), tuple(inner), tuple(outside), pair) if pair else None


def _holds_tensors(node: Node) -> bool:
    """Whether a node is a tensor or some of them: sizes are none."""
    known = value(node)
    if isinstance(known, tuple | list):
        return any(isinstance(each, Tensor) for each in known)
    return known is None or isinstance(known, Tensor)


def _pair(down: Node, inner: list[Node], linears: list[Node]) -> tuple[Node, ...]:
    """The two layers of one x, or the one that is twice as wide as `down` takes, of which a product is taken; or ()."""
    sources: dict[Node, frozenset[tuple[Node, str]]] = {each: frozenset({(each, "")}) for each in linears}
    for node in inner:
        came = [sources.get(each, frozenset()) for each in node.all_input_nodes]
        if name_of(node) in _MUL and len(came) == 2:
            for one, part in came[0]:
                for other, other_part in came[1]:
                    if one is not other and same(operand(one), operand(other)):
                        return one, other
                    if one is other and part != other_part and _is_packed(one, down):
                        return (one,)
        found = frozenset[tuple[Node, str]]().union(*came)
        if node.target is operator.getitem:  # a half of what was parted, or a slice
            found = frozenset((each, f"{part}{node.args[1]}") for each, part in found)
        sources[node] = found
    return ()


def _is_packed(linear: Node, down: Node) -> bool:
    both, out = value(weight(linear)), value(weight(down))
    shapes: list[Any] = [getattr(each, "shape", ()) for each in (both, out)]
    return all(len(shape) == 2 for shape in shapes) and str(shapes[0][0]) == str(2 * shapes[1][1])
