"""Finds the linear layers of a module, and every way to see them as gate, up and down of a gated MLP."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

Sizes = dict[str, tuple[int, int]]  # (out, in) of layers by their path in a module, such as "fc1.proj"
_CONTAINERS: Final = (nn.ModuleList, nn.ModuleDict)  # what they hold belongs to the module that holds them
_MOST: Final = 3  # layers of a gated MLP


class Role(NamedTuple):
    """One way to see the layers of a module as a gated MLP: the paths of gate, up and down."""

    gate: str
    up: str
    down: str
    up_first: bool = False

    @property
    def layers(self) -> dict[str, str]:
        """Their paths by what they are."""
        if self.gate == self.up:
            return {"gate_up": self.gate, "down": self.down}
        return {"gate": self.gate, "up": self.up, "down": self.down}


def linears(module: nn.Module) -> Sizes:
    """Each layer that maps one width to another: wrapped by size, quantised and transposed ones included.

    They are those of the module itself or, where these make no gated MLP, also those inside its parts, if they are of
    more than one part: a module around an MLP is none.
    """
    own = {path: size for path, _, size in _walk(module, deep=False)}
    if is_gated(own) or is_plain(own):
        return own
    all_of_them = list(itertools.islice(_walk(module, deep=True), _MOST + 1))
    parts = {id(part) for _, part, _ in all_of_them}
    nested = {path: size for path, _, size in all_of_them}
    return nested if len(parts) > 1 and is_gated(nested) else own


def _walk(module: nn.Module, *, deep: bool, prefix: str = "") -> Iterator[tuple[str, nn.Module, tuple[int, int]]]:
    """Path, direct part and size of each layer; `deep` also of those one level down, containers left out."""
    for name, child in module._modules.items():
        if child is None:
            continue
        path, size = prefix + name, size_of(child)
        if size is not None:
            yield path, child, size
        elif isinstance(child, _CONTAINERS):
            yield from _walk(child, deep=deep, prefix=f"{path}.") if deep else ()
        elif deep:
            yield from ((inner, child, found) for inner, _, found in _inside(child, f"{path}."))


def _inside(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module, tuple[int, int]]]:
    """As `_walk`, of every layer below a part: one with many is no wrapper, which their number tells."""
    for name, child in module._modules.items():
        if child is None:
            continue
        size = size_of(child)
        if size is not None:
            yield prefix + name, child, size
        else:
            yield from _inside(child, f"{prefix}{name}.")


def size_of(layer: nn.Module) -> tuple[int, int] | None:
    """(out, in) of a layer that says so, or None."""
    for out, into in (("out_features", "in_features"), ("nf", "nx")):  # nf, nx: Conv1D of transformers
        rows, columns = getattr(layer, out, None), getattr(layer, into, None)
        if isinstance(rows, int) and isinstance(columns, int) and rows > 0 and columns > 0:
            return rows, columns
    return None


def roles(sizes: Sizes) -> Iterator[Role]:
    """Every way to see these layers as gate, up and down; down may be wider or narrower than what gate takes."""
    if len(sizes) == 3:
        for gate, up, down in itertools.permutations(sizes):
            if sizes[gate] == sizes[up] and sizes[down][1] == sizes[gate][0]:
                yield Role(gate, up, down)
    elif len(sizes) == 2:
        for both, down in itertools.permutations(sizes):
            if sizes[both][0] == 2 * sizes[down][1]:
                yield Role(both, both, down)
                yield Role(both, both, down, up_first=True)


def is_gated(sizes: Sizes) -> bool:
    """Whether these could be the layers of a gated MLP that gives as many features as it takes."""
    return any(square(sizes, role) for role in roles(sizes))


def square(sizes: Sizes, role: Role) -> bool:
    """Whether it gives as many features as it takes."""
    return sizes[role.down][0] == sizes[role.gate][1]


def is_plain(sizes: Sizes) -> bool:
    """Whether these are the two layers of an MLP without a gate."""
    shapes = list(sizes.values())
    return len(shapes) == 2 and shapes[0] == shapes[1][::-1]


def shrunk(sizes: Sizes, small: int) -> Sizes:
    """The same layers with small sizes that are equal, double or different where the true ones are."""
    h = min(min(size) for size in sizes.values())
    others = {number for size in sizes.values() for number in size if number != h}
    new = {h: small} | {number: 2 * small if number == 2 * h else 0 for number in others}
    free = itertools.count(small + 17, 13)  # none of these is a multiple of another here
    for number in sorted(others):
        if not new[number]:
            half = new.get(number // 2) if number % 2 == 0 else None
            new[number] = 2 * half if half else next(free)
    return {name: (new[out], new[into]) for name, (out, into) in sizes.items()}


def at(module: nn.Module, path: str) -> Any:
    """The part of a module at this path, or None where it is gone; attributes of classes do not count."""
    found: Any = module
    for name in path.split("."):
        found = found._modules.get(name) if isinstance(found, nn.Module) else None
    return found


def holder(module: nn.Module, path: str) -> tuple[Any, str]:
    """What holds the part at this path, and its name there."""
    above, _, name = path.rpartition(".")
    return (at(module, above) if above else module), name
