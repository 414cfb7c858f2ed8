"""Assigns each kernel of a gated MLP's call its role, from the order of the products and the decoded names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.trace.names import ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.profile import Decoded
    from mlpfusion.records.traffic import Role
    from mlpfusion.trace.calls.call import Work

_MATRIX_ROLES: Final[dict[int, tuple[Role, ...]]] = {
    2: ("gate_up_gemm", "down_gemm"),
    3: ("gate_gemm", "up_gemm", "down_gemm"),
}


def roles(work: Sequence[Work], decoded: Sequence[Decoded]) -> list[Role]:
    """The role of each piece of work of one call, given in launch order.

    Forward kernels only: backward ones are "other", as is everything in a call whose matrix products are not three,
    or two beside a product of gate and up.
    """
    found: list[Role] = [_plain_role(item, name) for item, name in zip(work, decoded, strict=True)]
    groups = _matrix_products(work, decoded)
    names = _MATRIX_ROLES.get(len(groups))
    gated = any(role in ("mul", "act_mul") for role in found) or any(_holds_gate(name) for name in decoded)
    if names is None or (len(groups) == 2 and not gated):
        return [role if role in ("memset", "memcpy") else "other" for role in found]
    for group, role in zip(groups, names, strict=True):
        for index in group:
            found[index] = role
    last = groups[-1][-1]
    return [role if index <= last or role in ("memset", "memcpy") else "other" for index, role in enumerate(found)]


def _holds_gate(name: Decoded) -> bool:
    """Whether a matrix product has the activation and its multiplication in its epilogue."""
    fused = set(name.fused_ops) | set(name.epilogue)
    activates = bool(fused & ops.ACTIVATIONS) and "mul" in fused
    return name.kind == "gemm" and (activates or bool(fused & {"act_mul", "gated_activation"}))


def _matrix_products(work: Sequence[Work], decoded: Sequence[Decoded]) -> list[list[int]]:
    """The forward matrix products, each with its helper kernels, as indices.

    Those are the kernels of the same `aten::mm`, and a split-K reduction, which follows its product also where no
    operator is seen, as in a graph replay.
    """
    groups: list[list[int]] = []
    owner_of: list[object] = []
    for index, (item, name) in enumerate(zip(work, decoded, strict=True)):
        if item.backward or name.kind in ("memset", "memcpy"):
            continue
        owner = _matrix_operator(item)
        if owner is not None and groups and owner == owner_of[-1]:
            groups[-1].append(index)
        elif name.kind == "gemm" or owner is not None:
            groups.append([index])
            owner_of.append(owner)
        elif "splitk_reduce" in name.fused_ops and groups:
            groups[-1].append(index)
    return groups


def _matrix_operator(item: Work) -> object:
    """The start of the matrix operator that launched the work, if its innermost operator is one; None otherwise."""
    if item.event is item.launch or not item.owners:
        return None  # a leaf operator of a CPU run is a product by its own name
    owner = item.owners[0]
    return (owner.tid, owner.start_ns) if owner.name.rpartition("::")[2] in ops.GEMMS else None


def _plain_role(item: Work, name: Decoded) -> Role:
    """The role that follows from the work itself."""
    if name.kind in ("memset", "memcpy"):
        return "memset" if name.kind == "memset" else "memcpy"
    if item.backward or name.kind == "gemm":
        return "other"
    fused = set(name.fused_ops)
    if "act_mul" in fused:
        return "act_mul"
    activates, multiplies = bool(fused & ops.ACTIVATIONS), "mul" in fused
    if activates and multiplies:
        return "act_mul"
    if activates:
        return "activation"
    return "mul" if multiplies else "other"
