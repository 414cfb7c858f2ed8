"""Finds the gated MLPs' kernels of a call, in the forward and the backward, and the part of the call that they take."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.records.breakdown import MLPShare
from mlpfusion.trace.analysis.categories import category_of
from mlpfusion.trace.analysis.products import Shape, products_of
from mlpfusion.trace.names import ops

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records.profile import Decoded, Kernel
    from mlpfusion.trace.analysis.products import Product
    from mlpfusion.trace.calls.call import Work

# Gate, up and down, or one product for gate and up.
_APART: Final = 3
_PACKED: Final = 2
# The backward of one product is two: of its input and of its weight.
_PAIR: Final = 2
_AROUND: Final = 16  # products before and behind an activation's backward that may be its MLP's
_NODE: Final = "autograd::engine::evaluate_function: "
_ACCUMULATES: Final = "AccumulateGrad"
_REGION: Final = re.compile(r"CompiledFunction|CompiledFxGraph|Torch-Compiled Region")  # of more than an MLP
_BESIDE: Final = frozenset({"elementwise", "copies", "reduction"})
# The products behind a fused backward's kernel, in halves: the gradients of x, of gate's and up's weights, of down's.
_HALVES: Final = {"x": 2, "gate_up": 2, "down": 1}
# How our operators are compiled, for products whose shapes are not known.
_USUAL: Final = (("x", 1), ("x", 1), ("gate_up", 2), ("down", 1))
_ROLES: Final = frozenset({"gate_gemm", "up_gemm", "gate_up_gemm", "activation", "mul", "act_mul", "down_gemm"})


class _Unit(NamedTuple):
    """Products of the backward, in launch order, and the places of their first and last kernels.

    They are the backward of one product of the forward: those of one node of autograd, or two where a node has more.
    """

    first: int
    last: int
    products: list[Product]


def mlp_share(work: Sequence[Work], kernels: Sequence[Kernel], *, kernel_us: float, call_us: float) -> MLPShare | None:
    """The share of the gated MLPs that have roles, given a call's work and its kernels in launch order; None without.

    A backward is an MLP's where the activation's backward stands between the products that belong to it: of down
    before, of gate and up around or behind it, by the nodes of autograd or in pairs, in shapes that fit the forward's.
    Where it is in a product's kernel, all is the MLP's that one node or operator launched with it. Where that is no
    other product, as in compiled code, so are those behind it that fit: one or two for x, one or two for gate and up,
    and one for down.
    """
    forward = _with_fills(work, [at for at, kernel in enumerate(kernels) if kernel.role in _ROLES], kernels)
    if not forward or kernel_us <= 0 or call_us <= 0:
        return None
    engine = [at for at, item in enumerate(work) if item.backward]
    backward, layers = _backward(work, kernels, engine)
    times = [sum(kernels[at].time_us or 0.0 for at in places) for places in (forward, backward)]
    return MLPShare(
        layers=_layers(kernels),
        backward_layers=layers if engine else None,
        forward_us=times[0],
        backward_us=times[1] if engine else None,
        kernel_share=sum(times) / kernel_us,
        call_share=min(1.0, sum(times) / call_us),
    )


def _layers(kernels: Sequence[Kernel]) -> int:
    """How many MLPs there are: each ends with its down product, which may be several kernels."""
    mlp = [kernel.role for kernel in kernels if kernel.role in _ROLES]
    return sum(role == "down_gemm" and before != role for before, role in zip(["", *mlp], mlp, strict=False))


def _with_fills(work: Sequence[Work], places: list[int], kernels: Sequence[Kernel]) -> list[int]:
    """The places, and those of the fills and copies that their operators launch as well."""
    owners = {_key(work[at].owners[0]) for at in places if work[at].owners}
    beside = [
        at
        for at, kernel in enumerate(kernels)
        if kernel.decoded.kind in ("memset", "memcpy") and work[at].owners and _key(work[at].owners[0]) in owners
    ]
    return sorted({*places, *beside})


def _key(event: object) -> tuple[object, ...]:
    return (event.tid, event.start_ns, event.name)  # type: ignore[attr-defined]


# ---- the backward ----------------------------------------------------------------------------------------------------


def _backward(work: Sequence[Work], kernels: Sequence[Kernel], engine: list[int]) -> tuple[list[int], int]:
    """The places of the MLPs' backward, and of how many MLPs it was told."""
    decoded = [kernel.decoded for kernel in kernels]
    products = products_of(work, decoded, engine)
    nodes = {at: _node(work[at]) for at in engine}
    shapes = _shapes(work, kernels)
    roles = {kernel.role for kernel in kernels}  # one product for gate and up may be that of fused MLPs beside others
    total = _PACKED if "gate_up_gemm" in roles and "gate_gemm" not in roles else _APART
    fused = _fused_backward(work, kernels, engine, products)
    found = {at for each in fused for at in each}
    layers = len(fused)
    products = [product for product in products if product.places[0] not in found]
    ends = [product.places[-1] for product in products]
    for number, anchor in enumerate(engine):
        if not _is_backward_of_activation(decoded[anchor]):
            continue
        middle = bisect_left(ends, anchor)
        units = _units(nodes, products[max(0, middle - _AROUND) : middle + _AROUND], anchor)
        before = _before(decoded, engine[:number], units, anchor)
        mine = _around(units, anchor, before, total - before) if before else []
        if mine and all(one.shape is None or one.shape in shapes for unit in mine for one in unit.products):
            layers += 1
            found.update(_members(work, decoded, nodes, mine))
    return sorted(found), layers


def _fused_backward(
    work: Sequence[Work], kernels: Sequence[Kernel], engine: Sequence[int], products: Sequence[Product]
) -> list[list[int]]:
    """The places of each backward whose activation is in a product's kernel."""
    decoded = [kernel.decoded for kernel in kernels]
    anchors = [at for at in engine if decoded[at].kind == "gemm" and "act_mul_backward" in decoded[at].fused_ops]
    own = set(anchors)
    plain = [one for one in products if not (one.gated or one.batched) and one.places[0] not in own]
    sizes = _sizes(work, kernels, "down_gemm") if anchors else set()
    taken: set[int] = set()
    found: list[list[int]] = []
    for anchor, made in _launched_with(work, engine, anchors):
        if any(one.places[0] in made for one in plain):
            found.append([*made])
            continue
        until = next((at for at in anchors if at > anchor), len(work))
        behind = [one for one in plain if one.places[0] > anchor and one.places[0] not in taken][:_AROUND]
        mine = max((_that_fit(behind, size, until) for size in sizes or (None,)), key=len)
        if mine:
            places = [at for one in mine for at in one.places]
            taken.update(places)
            found.append([*made, *_with_fills(work, [*places, *_sum_of(decoded, engine, mine)], kernels)])
    return found


def _that_fit(behind: Sequence[Product], down: Shape | None, until: int) -> list[Product]:
    """The first products that may be a fused backward's, of an MLP whose down product in the forward has this shape.

    One whose shape is not known is taken for the next that is missing, up to the place of the next fused kernel.
    """
    parts: list[tuple[Shape, str, int]] = []
    if down is not None:
        m, h, d = down
        parts = [(Shape(m, n * h, d), "x", n) for n in (1, 2)]
        parts += [(Shape(n * h, m, d), "gate_up", n) for n in (1, 2)]
        parts.append((Shape(d, m, h), "down", 1))
    left = dict(_HALVES)
    found: list[Product] = []
    for one in behind:
        if one.shape is None and one.places[0] > until:
            break
        fits = _USUAL if one.shape is None else [each[1:] for each in parts if each[0] == one.shape]
        for part, halves in fits:
            if halves <= left[part]:
                left[part] -= halves
                found.append(one)
                break
    return found


def _sum_of(decoded: Sequence[Decoded], engine: Sequence[int], products: Sequence[Product]) -> list[int]:
    """The place of the first kernel that only adds, of those between these products and the one directly behind them.

    It adds the two gradients of x, unless the compiler did that together with what follows.
    """
    first, last = products[0].places[0], products[-1].places[-1]
    within = engine[bisect_left(engine, first) : bisect_left(engine, last) + 2]
    return [at for at in within if _only_adds(decoded[at])][:1]


def _only_adds(name: Decoded) -> bool:
    return set(name.fused_ops) - ops.VIEWS == {"add"}


def _launched_with(
    work: Sequence[Work], engine: Sequence[int], anchors: Sequence[int]
) -> Iterable[tuple[int, Sequence[int]]]:
    """Places, and the work of their outermost operators that made no other MLP's and are no compiled region, if any."""
    by_owner: dict[tuple[object, ...], list[int]] = {}
    for at in engine if anchors else ():
        for owner in work[at].owners:
            by_owner.setdefault(_key(owner), []).append(at)
    users = Counter(_key(owner) for anchor in anchors for owner in work[anchor].owners)
    for anchor in anchors:
        owners = [_key(owner) for owner in work[anchor].owners if not _REGION.search(owner.name)]
        own = [owner for owner in owners if users[owner] == 1]
        if own:
            yield anchor, by_owner[own[-1]]


def _is_backward_of_activation(name: Decoded) -> bool:
    return name.kind != "gemm" and any(
        op == "act_mul_backward" or (op.endswith("_backward") and op.removesuffix("_backward") in ops.ACTIVATIONS)
        for op in name.fused_ops
    )


def _shapes(work: Sequence[Work], kernels: Sequence[Kernel]) -> set[Shape]:
    """The shapes that the backward's products may have, of those of the forward."""
    found: set[Shape] = set()
    for m, k, n in _sizes(work, kernels, "_gemm"):
        found.update(Shape(*lengths) for lengths in ((m, n, k), (n, m, k), (k, m, n)))
    return found


def _sizes(work: Sequence[Work], kernels: Sequence[Kernel], role: str) -> set[Shape]:
    """The shapes that are known of the forward's products whose role ends so."""
    decoded = [kernel.decoded for kernel in kernels]
    made = products_of(work, decoded, [at for at, kernel in enumerate(kernels) if kernel.role.endswith(role)])
    return {one.shape for one in made if one.shape is not None}


def _node(item: Work) -> object:
    """The node of autograd that launched the work, if it is seen."""
    return next((_key(owner) for owner in item.owners if owner.name.startswith(_NODE)), None)


def _units(nodes: dict[int, object], products: Sequence[Product], anchor: int) -> list[_Unit]:
    """The products by node of autograd; by twos where a node makes the anchor as well, or none is seen.

    The twos are counted from the anchor outwards: how many products there are before its MLP's is not known, as the
    last layer of a model may have one that is added to nothing.
    """
    before = [product for product in products if product.places[-1] < anchor]
    behind = [product for product in products if product.places[0] > anchor]
    left = _grouped(nodes, before[::-1], nodes[anchor])
    groups = [*(group[::-1] for group in reversed(left)), *_grouped(nodes, behind, nodes[anchor])]
    return [_Unit(group[0].places[0], group[-1].places[-1], group) for group in groups]


def _grouped(nodes: dict[int, object], products: Sequence[Product], shared: object) -> list[list[Product]]:
    """Products in a row that one node makes; by twos where that is the `shared` one or not seen."""
    found: list[list[Product]] = []
    for product in products:
        node = nodes[product.places[0]]
        joins = bool(found) and nodes[found[-1][0].places[0]] == node
        if joins and (node not in (None, shared) or len(found[-1]) < _PAIR):
            found[-1].append(product)
        else:
            found.append([product])
    return found


def _before(decoded: Sequence[Decoded], earlier: Sequence[int], units: Sequence[_Unit], anchor: int) -> int:
    """How many units of its MLP are before the activation's backward; 0 where that is not known.

    That is down, behind which the backward of the multiplication follows, and also up where its forward is between the
    activation and the multiplication.
    """
    if {"mul", "act_mul_backward"} & set(decoded[anchor].fused_ops):
        return 1
    for at in reversed(earlier):
        passed = sum(at < unit.first and unit.last < anchor for unit in units)
        if passed > 1:
            break
        if decoded[at].kind == "elementwise" and "mul" in decoded[at].fused_ops:
            return 1 + passed
    return 0


def _around(units: Sequence[_Unit], anchor: int, before: int, after: int) -> list[_Unit]:
    """So many units before and behind a place; none if there are fewer."""
    left = [unit for unit in units if unit.last < anchor]
    right = [unit for unit in units if unit.first > anchor]
    if len(left) < before or len(right) < after:
        return []
    return [*left[len(left) - before :], *right[:after]]


def _members(
    work: Sequence[Work], decoded: Sequence[Decoded], nodes: dict[int, object], units: Sequence[_Unit]
) -> Iterable[int]:
    """The kernels of the units, what runs between them or for their nodes, and the sum of the input's gradients.

    The accumulation of weights' gradients is not the MLPs'.
    """
    products = {at for unit in units for one in unit.products for at in one.places}
    own = {nodes[at] for at in products} - {None}
    if len(own) < len(units):
        own = set()  # one node makes it all, and other layers
    engine = list(nodes)
    for at in engine[bisect_left(engine, units[0].first) :]:
        if at in products:
            yield at
        elif any(_ACCUMULATES in owner.name for owner in work[at].owners):
            continue
        elif at < units[-1].last:
            if nodes[at] in own or category_of(decoded[at]) in _BESIDE:
                yield at
        else:
            if nodes[at] in own or (_only_adds(decoded[at]) and len(units) == _APART):
                yield at
            if nodes[at] not in own:
                return
