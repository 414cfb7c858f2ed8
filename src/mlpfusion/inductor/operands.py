"""Reads from the tensors of a cone what it computes: sizes, dtype, layers, tokens; or why no operator takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from mlpfusion.inductor.match import bias, value, weight

if TYPE_CHECKING:
    from torch.fx import Node

    from mlpfusion.inductor.match import Cone

_PLAIN = (Tensor, torch.nn.Parameter, FakeTensor)


class Operands(NamedTuple):
    """What the operator of a cone would be given, as nodes; `first` and `second` are halves if the layer is packed.

    `dtype` is that of the products, to which autocast may have cast. `tokens` is a number, or a symbol.
    """

    x: Node
    weights: tuple[Node, ...]
    biases: tuple[Node | None, ...]
    down_weight: Node
    down_bias: Node | None
    hidden_size: int
    intermediate_size: int
    dtype: torch.dtype
    device: torch.device
    tokens: Any

    @property
    def packed(self) -> bool:
        """Whether gate and up are one layer."""
        return len(self.weights) == 1


def operands(cone: Cone) -> Operands | str:
    """The operands of a cone, or the reason why they are none."""
    linears = cone.pair
    layers = (*linears, cone.down)
    read = [cone.x, *(weight(each) for each in layers), *(each for each in map(bias, layers) if each is not None)]
    reason = _strange(read) or _strange(layers)
    if reason is not None:
        return reason
    dtypes = {value(each).dtype for each in layers}
    if len(dtypes) != 1:
        return f"its products are of several dtypes: {', '.join(sorted(map(_short, dtypes)))}"
    devices = {value(each).device for each in (*read, *layers)}
    if len(devices) != 1:
        return f"it is on several devices: {', '.join(sorted(map(str, devices)))}"
    biases = tuple(bias(each) for each in linears)
    if len({each is None for each in biases}) != 1:
        return "only one of gate and up has a bias"
    shapes = [tuple(value(weight(each)).shape) for each in layers]
    if not all(type(size) is int for shape in shapes for size in shape):
        return "the sizes of its weights are symbols (mark_dynamic, or weights that are inputs?)"
    d, h = shapes[-1]
    expected = (h, d) if len(linears) == 2 else (2 * h, d)
    for each, shape in zip(linears, shapes, strict=False):
        if shape != expected:
            return f"{each.name} has a weight of {list(shape)} where {cone.down.name} has {[d, h]}"
    tokens = 1
    for size in value(cone.x).shape[:-1]:
        tokens = tokens * size
    return Operands(
        x=cone.x,
        weights=tuple(weight(each) for each in linears),
        biases=biases,
        down_weight=weight(cone.down),
        down_bias=bias(cone.down),
        hidden_size=d,
        intermediate_size=h,
        dtype=dtypes.pop(),
        device=devices.pop(),
        tokens=tokens,
    )


def _strange(nodes: Any) -> str | None:
    """The first of these that is no plain tensor."""
    for node in nodes:
        known = value(node)
        if not isinstance(known, Tensor):
            return f"{node} is no tensor that is known"
        if type(known) not in _PLAIN:
            return f"{node} is a {type(known).__name__}, a tensor subclass (quantised or sharded?)"
        if known.layout != torch.strided:
            return f"{node} has the layout {known.layout}"
        if known.device.type == "meta":
            return f"{node} has no storage (meta device)"
    return None


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
