"""Assigns each kernel of a gated MLP its role, where the products' order and shapes and the activation say so."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from mlpfusion.trace.analysis.products import products_of
from mlpfusion.trace.names import ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.profile import Decoded
    from mlpfusion.records.traffic import Role
    from mlpfusion.trace.analysis.products import Product
    from mlpfusion.trace.calls.call import Work

# Activations that a GELU written out in small operators has too: alone they do not make a gate.
_PARTS: Final = frozenset({"tanh", "sigmoid", "erf"})


def roles(work: Sequence[Work], decoded: Sequence[Decoded]) -> list[Role]:
    """The role of each piece of work of one call, given in launch order.

    A gated MLP is two products of one input, or one of both, an activation and a multiplication, and a product of what
    these make, in this order on one stream; shapes, where the trace has them, must agree. Three products alone are
    none: attention's q, k and v are three, too. Everything else is "other", as is all of the backward.
    """
    found: list[Role] = [_memory_role(name) or "other" for name in decoded]
    streams: dict[tuple[object, object], list[int]] = defaultdict(list)
    for index, item in enumerate(work):
        if not item.backward:
            streams[item.event.pid, item.event.tid].append(index)
    for places in streams.values():
        products = products_of(work, decoded, places)
        for last in range(1, len(products)):
            _assign(found, decoded, products, last, places)
    return found


def _assign(
    found: list[Role], decoded: Sequence[Decoded], products: Sequence[Product], last: int, places: Sequence[int]
) -> None:
    """Give the kernels of the MLP whose down product is `last` their roles, if there is one."""
    down, before = products[last], products[last - 1]
    if down.batched or before.batched:
        return
    between = _within(places, before, down)
    if before.gated:
        if _fits(before, down, halves=None):
            _give(found, before, "gate_up_gemm")
            _give(found, down, "down_gemm")
        return
    earlier = products[last - 2] if last > 1 and not products[last - 2].batched else None
    gap = _within(places, earlier, before) if earlier else []
    if earlier is not None and _is_pair(earlier, before, down, [decoded[at] for at in gap]):
        steps = _gate(decoded, [*gap, *between])
        if (not steps or max(steps) not in between) and not _unknown(decoded, between, len(products)):
            return
        _give(found, earlier, "gate_gemm")
        _give(found, before, "up_gemm")
    else:
        steps = _gate(decoded, between)
        begin = products[last - 2].places[-1] + 1 if last > 1 else 0
        if not steps or not _fits(before, down, halves=2) or not _is_whole(decoded, steps, before, begin):
            return
        _give(found, before, "gate_up_gemm")
    _give(found, down, "down_gemm")
    for at, role in steps.items():
        found[at] = role


def _within(places: Sequence[int], first: Product, second: Product) -> Sequence[int]:
    """What of a stream's work runs between two products."""
    return places[bisect_right(places, first.places[-1]) : bisect_left(places, second.places[0])]


def _give(found: list[Role], product: Product, role: Role) -> None:
    for at in product.places:
        found[at] = role


def _is_pair(gate: Product, up: Product, down: Product, gap: Sequence[Decoded]) -> bool:
    """Whether two products are of one input: of one shape, with at most the activation of the first between them."""
    if gate.gated or any(_role_of(name) == "other" and not _is_small(name) for name in gap):
        return False
    if gate.shape and up.shape:
        return gate.shape == up.shape and _fits(up, down, halves=1)
    return _fits(up, down, halves=1)


def _fits(product: Product, down: Product, *, halves: int | None) -> bool:
    """Whether the down product takes what the one before it made, by their shapes, if both are known."""
    if product.shape is None or down.shape is None:
        return True
    made, taken = product.shape.n, down.shape.k
    same = made == taken * halves if halves is not None else made in (taken, 2 * taken)
    return same and product.shape.m == down.shape.m


def _is_whole(decoded: Sequence[Decoded], steps: dict[int, Role], product: Product, begin: int) -> bool:
    """Whether an activation and a multiplication are a gate behind one product, which a plain MLP has one of, too.

    `begin` is where the work behind the product before it begins.
    """
    if product.shape is not None or "act_mul" in steps.values():
        return True
    # Where another product runs beside on another stream, that one may have made what the activation is multiplied by.
    beside = set(range(begin, max(steps))).difference(product.places)
    if any(decoded[at].kind == "gemm" for at in beside):
        return False
    return not all(_PARTS.issuperset(set(decoded[at].fused_ops) & ops.ACTIVATIONS) for at in steps)


def _gate(decoded: Sequence[Decoded], places: Sequence[int]) -> dict[int, Role]:
    """The kernels of the activation and its multiplication among these, in this order; none if something bars it."""
    steps: dict[int, Role] = {}
    for at in places:
        role = _role_of(decoded[at])
        if role == "barrier":
            return {}
        if role == "act_mul":
            return {at: "act_mul"}
        if role == "activation" and "activation" not in steps.values():
            steps[at] = "activation"
        elif role == "mul" and "activation" in steps.values():
            return {**steps, at: "mul"}
    return {}


def _unknown(decoded: Sequence[Decoded], places: Sequence[int], products: int) -> bool:
    """Whether what runs between may be an activation and its multiplication by a name that says nothing.

    Only in a call of three products: a whole model has many kernels of unknown names.
    """
    return products == len(("gate", "up", "down")) and any(
        decoded[at].library is None and not decoded[at].fused_ops and decoded[at].kind == "other" for at in places
    )


def _is_small(name: Decoded) -> bool:
    """Work that may stand between the products of a gate and an up: fills, copies, quantisation."""
    return name.kind in ("memset", "memcpy") or set(name.fused_ops) <= {"copy", "quantize", "fill", "_to_copy", "add"}


def _role_of(name: Decoded) -> str:
    """What a kernel may be by itself; "barrier" for what no gated MLP has inside."""
    fused = set(name.fused_ops)
    if name.kind in ("memset", "memcpy"):
        return name.kind
    if name.kind == "attention" or any("softmax" in op for op in fused):
        return "barrier"
    if name.kind == "gemm":
        return "other"
    activates = bool(fused & ops.ACTIVATIONS)
    if "act_mul" in fused or (activates and "mul" in fused):
        return "act_mul"
    if activates:
        return "activation"
    return "mul" if "mul" in fused and name.kind != "reduction" else "other"


def _memory_role(name: Decoded) -> Role | None:
    """Of a fill or a copy; a kernel that computes nothing and keeps the dtype is a copy as well.

    Such kernels bring a replayed graph its inputs, or make a tensor contiguous. A cast's name says no one dtype.
    """
    copies = name.library == "aten" and name.kind == "elementwise" and name.fused_ops == ("copy",)
    if name.kind == "memcpy" or (copies and name.dtype is not None):
        return "memcpy"
    return "memset" if name.kind == "memset" else None
