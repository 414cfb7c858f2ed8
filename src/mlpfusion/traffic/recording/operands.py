"""Determines what a PyTorch operator reads, writes and computes, from its schema and a table of exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Sequence

# They hand out memory, or change what a tensor refers to, and move nothing.
_ALLOCATE: Final = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_",
     "resize_as_", "set_", "_resize_output_", "record_stream", "scalar_tensor", "_efficientzerotensor"}
)  # fmt: skip
# In place by their schema, but what was there before is not read.
_OVERWRITE: Final = frozenset(
    {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_", "log_normal_",
     "geometric_", "cauchy_", "eye", "_foreach_copy_", "_foreach_zero_"}
)  # fmt: skip
# Their first argument only says what the result is like.
_LIKE: Final = frozenset(
    {"zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like", "new_zeros", "new_ones",
     "new_full", "copy", "fill", "zero", "uniform", "random", "exponential", "log_normal", "geometric", "cauchy",
     "normal_functional"}
)  # fmt: skip
# They read of their first argument what an index says.
_GATHER: Final = frozenset({"index", "_unsafe_index", "index_select", "gather", "embedding", "take"})
# They write to their first argument where an index says; those of the second set read it there too.
_PUT: Final = frozenset({"index_copy_", "index_put_", "_index_put_impl_", "index_fill_", "scatter_", "put_"})
_ADD: Final = frozenset({"index_add_", "scatter_add_"})
# Elements beyond which those that an index says are not looked up: their offsets take eight bytes each.
_MOST_ELEMENTS: Final = 2**26


class Part(NamedTuple):
    """Some elements of a tensor, by their distances from its first; None where an index cannot be looked up."""

    tensor: Tensor
    offsets: Tensor | None


Operand = Tensor | Part


class Operands(NamedTuple):
    """The tensors, or parts of them, that an operator reads and writes; its fresh results are not among them."""

    reads: list[Operand]
    writes: list[Operand]


def whole(operand: Operand) -> Tensor:
    """The tensor of an operand."""
    return operand.tensor if isinstance(operand, Part) else operand


def allocates(func: Any) -> bool:
    """Whether an operator only hands out memory."""
    return _plain(func) in _ALLOCATE


def of(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Operands:
    """What an operator reads and writes of its arguments."""
    plain = _plain(func)
    reads: list[Operand] = []
    writes: list[Operand] = []
    declared = func._schema.arguments
    named = [*zip(declared, args, strict=False), *((one, kwargs[one.name]) for one in declared if one.name in kwargs)]
    given = {argument.name: value for argument, value in named}
    own = func.namespace == "aten"
    for place, (argument, value) in enumerate(named):
        tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
        if own and place == 0 and (plain in _GATHER or plain in _PUT or plain in _ADD) and tensors:
            part = Part(tensors[0], _offsets(func, tensors[0], args, kwargs))
            if plain in _GATHER or plain in _ADD or given.get("accumulate") or "reduce" in given:
                reads.append(part)
            if plain not in _GATHER:
                writes.append(part)
            continue
        written = argument.alias_info is not None and argument.alias_info.is_write
        if written:
            writes += tensors
        overwritten = written and (argument.is_out or plain in _OVERWRITE)
        if not overwritten and not (own and place == 0 and _ignores_its_first(func, given)):
            reads += tensors
    return Operands(reads, writes)


def copied(func: Any, args: Sequence[Any]) -> str | None:
    """Why the bytes of a matrix product on a CPU are not those of its operands, or None.

    A BLAS wants rows or columns that lie one after the other, each without gaps; PyTorch hands it a copy of any other
    matrix, which no trace of a CPU shows. (On a GPU the trace shows the copy.)
    """
    if func.namespace != "aten" or _plain(func).rstrip("_") not in ("mm", "addmm", "bmm", "baddbmm", "addbmm"):
        return None
    for value in args[-2:]:
        if isinstance(value, Tensor) and value.device.type == "cpu" and value.numel():
            (rows, columns), (down, across) = value.shape[-2:], value.stride()[-2:]
            if not ((across == 1 and down >= columns) or (down == 1 and across >= rows)):
                return "its library gets a copy of an operand whose strides it does not accept"
    return None


def flops(func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> int | None:
    """Floating-point operations of a matrix product, by PyTorch's own formulas or as many; None for anything else."""
    from torch.utils.flop_counter import flop_registry

    plain = _plain(func)
    formula = flop_registry.get(func._overloadpacket)
    if formula is None and func.namespace == "aten" and plain.endswith("_"):  # in place it computes as much
        formula = flop_registry.get(getattr(torch.ops.aten, plain[:-1], None))
    rest = {name: value for name, value in kwargs.items() if name != "out"}
    try:
        if formula is not None:
            return int(formula(*args, **rest, out_val=out))
        shapes = [value.shape for value in args if isinstance(value, Tensor)]
        return _of_product(plain.rstrip("_"), shapes)
    except (TypeError, ValueError, AssertionError, IndexError):  # a formula that does not know this overload
        return None


def _of_product(plain: str, shapes: Sequence[torch.Size]) -> int | None:
    """Operations of the matrix products that PyTorch has no formula for."""
    if plain in ("mv", "dot", "vdot"):
        return 2 * shapes[0].numel()
    if plain == "addmv":
        return 2 * shapes[1].numel()
    if plain == "addr":
        return 2 * shapes[1].numel() * shapes[2].numel()
    if plain == "_int_mm":
        return 2 * shapes[0].numel() * shapes[1][-1]
    if plain in ("addbmm", "_addmm_activation"):
        return 2 * shapes[1].numel() * shapes[2][-1]
    if plain == "_linear_pointwise":
        return 2 * shapes[0].numel() * shapes[1][0]
    return None


def _plain(func: Any) -> str:
    return str(func._schema.name).rpartition("::")[2]


def _ignores_its_first(func: Any, given: dict[str, Any]) -> bool:
    """Whether the first argument only gives a shape, or is what a product adds none of."""
    plain = _plain(func)
    if plain in _LIKE or (plain == "bernoulli" and "p" in given):
        return True
    return "beta" in given and not isinstance(given["beta"], Tensor) and given["beta"] == 0


def _offsets(func: Any, tensor: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor | None:
    """The elements of its first argument that an operator touches, found by having it run on their places.

    None where its index cannot be looked up: in a graph's capture, or of too many elements.
    """
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return None
    plain = _plain(func)
    extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    if not tensor.numel() or max(tensor.numel(), extent) > _MOST_ELEMENTS:
        return None
    device = tensor.device
    places = torch.arange(extent, device=device).as_strided(tensor.shape, tensor.stride())
    if plain in _GATHER:
        without_out = {name: value for name, value in kwargs.items() if name != "out"}
        found: Tensor = _without_out(func)(places, *args[1:], **without_out)
        return found.reshape(-1)
    hit = torch.zeros(tensor.shape, dtype=torch.int64, device=device)
    return places[_marked(func, plain, hit, args, kwargs) != 0]


def _marked(func: Any, plain: str, hit: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> Tensor:
    """Have an operator that writes where an index says write ones to a tensor of zeros."""
    declared = func._schema.arguments
    given = {one.name: value for one, value in zip(declared[1:], args[1:], strict=False)} | kwargs
    ones = {
        name: torch.ones_like(value, dtype=torch.int64) if isinstance(value, Tensor) else 1
        for name, value in given.items()
        if name in ("source", "src", "values", "value")
    }
    changed = {**given, **ones}
    if "reduce" in given:  # what is made of them does not matter
        func, changed = _unreduced(func, changed)
    changed.pop("alpha", None)
    func(hit, **changed)
    return hit


def _unreduced(func: Any, given: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    aten = torch.ops.aten.scatter_
    kept = {name: value for name, value in given.items() if name != "reduce"}
    return (aten.value if "value" in given else aten.src), kept


def _without_out(func: Any) -> Any:
    """The overload of an operator that makes its result itself."""
    packet = func._overloadpacket
    return getattr(packet, "Tensor" if "Tensor" in packet.overloads() else "default")
