"""Determines by running a module whether it is a gated MLP, with which layers and which activation.

Nothing is taken from names or configs. A small copy of the module with random weights is run in fp64 and compared with
every gated MLP that its layers could make; only an exact match counts.
"""

from __future__ import annotations

import inspect
import itertools
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from mlpfusion.reference import activate
from mlpfusion.spec import ACTIVATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlpfusion.spec import Activation

# Rounding in fp64 leaves about 1e-15 of a row's size; the two GELUs are 1e-4 apart.
TOLERANCE: Final = 1e-9
# Sizes of x, row by row: small ones distinguish activations, large ones find clamps.
SCALES: Final = (0.1, 1.0, 1.0, 4.0, 30.0, 1e3, 1e5)
SMALL: Final = 24  # intermediate_size of the copy that is run
_HOOKS: Final = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
)


class Found(NamedTuple):
    """A gated MLP: the names of its layers, what it computes, and whether training drops out values in it.

    `layers` has the keys gate, up, down or, where one layer holds gate and up, gate_up, down.
    """

    layers: dict[str, str]
    activation: Activation
    up_first: bool
    drops: bool


class Refused(NamedTuple):
    """A module that looks like an MLP but is none that a backend may replace, and why."""

    reason: str


class _Role(NamedTuple):
    """One way to see the layers of a module as a gated MLP."""

    gate: str
    up: str
    down: str
    up_first: bool = False

    @property
    def layers(self) -> dict[str, str]:
        """Their names by what they are."""
        if self.gate == self.up:
            return {"gate_up": self.gate, "down": self.down}
        return {"gate": self.gate, "up": self.up, "down": self.down}


@torch.inference_mode(False)  # whose tensors have no gradients
def probe(module: nn.Module) -> Found | Refused | None:
    """What `module` itself (not what is inside it) is: a gated MLP, one that must be refused, or None for any other.

    The module is not touched: neither its weights nor its hooks take part, and the random state stays as it was.
    """
    experts = _experts(module)
    if experts:
        return Refused(f"its experts are 3-D parameters ({', '.join(experts)}), not layers")
    sizes = _linears(module)
    roles = list(_roles(sizes))
    if not (roles or _not_gated(sizes)):
        return None
    if isinstance(module, torch.jit.ScriptModule):
        return Refused("it is compiled by TorchScript, which runs no other forward")
    if not _takes_one_tensor(module):
        return None
    copy = run = None
    for plan in (_shrunk(sizes), sizes):  # a module that knows its own sizes runs only with these
        copy = _Copy(module, plan)
        run = copy.run()
        if run is not None:
            break
    if copy is None or run is None:
        return None
    if not roles:
        return Refused(f"it is not gated: {' feeds '.join(sizes)}, without a second factor")
    for role, activation in itertools.product(roles, ACTIVATIONS):
        if copy.agrees(run, role, activation):
            if not copy.agrees_backward(role, activation):
                return Refused(f"it computes a gated MLP ({activation}) with custom gradients")
            return Found(role.layers, activation, role.up_first, drops=copy.drops(run))
    return Refused(_differs(module, set(sizes)))


def _experts(module: nn.Module) -> list[str]:
    """Names of 3-D parameters whose shapes are those of a gated MLP for each of several experts."""
    stacked = {name: tuple(p.shape) for name, p in module._parameters.items() if p is not None and p.dim() == 3}
    if len({shape[0] for shape in stacked.values()}) != 1 or min(map(min, stacked.values())) < 2:
        return []  # one row, or one of many tokens, is no matrix
    inner = [sorted(shape[1:]) for shape in stacked.values()]
    if len(inner) == 3 and inner[0] == inner[1] == inner[2]:
        return list(stacked)
    if len(inner) != 2:
        return []
    (a, b), (c, d) = inner
    packed = any(
        (2 * small, same) in {(a, b), (b, a)} or (2 * small, same) in {(c, d), (d, c)}
        for small, same in ((a, b), (b, a), (c, d), (d, c))
    )
    return list(stacked) if packed else []


def _linears(module: nn.Module) -> dict[str, tuple[int, int]]:
    """(out, in) of each layer that maps one width to another, wrapped, quantised and transposed ones included."""
    found = {}
    for name, child in module._modules.items():
        for out, into in (("out_features", "in_features"), ("nf", "nx")):  # nf, nx: Conv1D of transformers
            rows, columns = getattr(child, out, None), getattr(child, into, None)
            if isinstance(rows, int) and isinstance(columns, int) and rows > 0 and columns > 0:
                found[name] = (rows, columns)
                break
    return found


def _roles(sizes: dict[str, tuple[int, int]]) -> Iterator[_Role]:
    """Every way to see these layers as gate, up and down."""
    if len(sizes) == 3:
        for gate, up, down in itertools.permutations(sizes):
            if sizes[gate] == sizes[up] == sizes[down][::-1]:
                yield _Role(gate, up, down)
    elif len(sizes) == 2:
        for both, down in itertools.permutations(sizes):
            d, h = sizes[down]
            if sizes[both] == (2 * h, d):
                yield _Role(both, both, down)
                yield _Role(both, both, down, up_first=True)


def _not_gated(sizes: dict[str, tuple[int, int]]) -> bool:
    shapes = list(sizes.values())
    return len(shapes) == 2 and shapes[0] == shapes[1][::-1]


def _shrunk(sizes: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """The same layers with small sizes that are equal, double or different where the true ones are."""
    h = min(min(size) for size in sizes.values())
    others = {number for size in sizes.values() for number in size if number != h}
    small = {h: SMALL} | {number: 2 * SMALL if number == 2 * h else 0 for number in others}
    free = itertools.count(SMALL + 17, 13)  # none of these is a multiple of another here
    for number in sorted(others):
        if not small[number]:
            half = small.get(number // 2) if number % 2 == 0 else None
            small[number] = 2 * half if half else next(free)
    return {name: (small[out], small[into]) for name, (out, into) in sizes.items()}


def _takes_one_tensor(module: nn.Module) -> bool:
    try:
        inspect.signature(type(module).forward).bind(module, None)
    except (TypeError, ValueError):
        return False
    return True


class _Copy:
    """A copy of a module in fp64 on the CPU with random weights, its linear layers plain ones of given sizes."""

    def __init__(self, module: nn.Module, sizes: dict[str, tuple[int, int]]) -> None:
        self.random = torch.Generator("cpu").manual_seed(0)
        self.linears = {name: self._linear(out, into) for name, (out, into) in sizes.items()}
        for name, linear in self.linears.items():
            if getattr(module._modules[name], "bias", None) is None:
                linear.register_parameter("bias", None)
        replaced = {id(module._modules[name]): linear for name, linear in self.linears.items()}
        self.module: nn.Module = self._skeleton(module, replaced)
        self.module.__dict__.pop("forward", None)  # one put on the instance is bound to the original
        self.x = self._inputs(sizes)

    def _inputs(self, sizes: dict[str, tuple[int, int]]) -> Tensor:
        """x [1, rows, D]; D is what the module's first layer takes."""
        roles = next(_roles(sizes), None)
        width = sizes[roles.gate if roles else next(iter(sizes))][1]
        scales = torch.tensor(SCALES, dtype=torch.float64, device="cpu")
        return self._normal(1, len(SCALES), width) * scales[:, None]

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.random, dtype=torch.float64, device="cpu")

    def _linear(self, out: int, into: int) -> nn.Linear:
        made = nn.Linear(1, 1, device="meta")
        made.in_features, made.out_features = into, out
        made.weight = nn.Parameter(self._normal(out, into) * into**-0.5, requires_grad=False)
        made.bias = nn.Parameter(self._normal(out), requires_grad=False)
        return made

    def _skeleton(self, module: nn.Module, replaced: dict[int, Any]) -> Any:
        """A copy of the module without hooks and with new tensors; everything else is shared."""
        if id(module) in replaced:
            return replaced[id(module)]
        made = object.__new__(type(module))
        replaced[id(module)] = made
        made.__dict__.update(module.__dict__)
        made.__dict__.update({name: OrderedDict() for name in _HOOKS if name in module.__dict__})
        made.__dict__["_compiled_call_impl"] = None
        if "_hf_hook" in module.__dict__:  # accelerate's, which moves tensors to the original's device
            made.__dict__.pop("forward", None)
        made.__dict__["_parameters"] = {
            name: None if p is None else nn.Parameter(self._normal(*p.shape), requires_grad=False)
            for name, p in module._parameters.items()
        }
        made.__dict__["_buffers"] = {
            name: None if b is None else self._normal(*b.shape) if b.is_meta else _widened(b)
            for name, b in module._buffers.items()
        }
        made.__dict__["_modules"] = {
            name: None if child is None else self._skeleton(child, replaced) for name, child in module._modules.items()
        }
        made.__dict__["training"] = False
        return made

    def run(self) -> Tensor | None:
        """The module's own forward of x, or None if it does not return one tensor like x."""
        try:
            with torch.no_grad(), torch.autocast("cpu", enabled=False), torch.random.fork_rng(devices=[]):
                y = self.module(self.x)
        except Exception:  # any module of a model gets here, and most are no MLP
            return None
        return y if isinstance(y, Tensor) and y.shape == self.x.shape else None

    def agrees_backward(self, role: _Role, activation: Activation) -> bool:
        """Whether the gradient of x is that of this gated MLP too, if the module can be differentiated at all."""
        found = []
        for forward in (self.module, lambda x: self.expected(x, role, activation)):
            try:
                with torch.enable_grad(), torch.autocast("cpu", enabled=False):
                    x = self.x.clone().requires_grad_()
                    found.append(torch.autograd.grad(forward(x).sum(), x)[0])
            except RuntimeError:  # under no_grad, say: nobody trains through it
                return True
        mine, theirs = found
        return _close(mine, theirs)

    def agrees(self, y: Tensor, role: _Role, activation: Activation) -> bool:
        """Whether y is what this gated MLP gives, row by row."""
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            expected = self.expected(self.x, role, activation)
        return y.dtype == expected.dtype and _close(y, expected)

    def expected(self, x: Tensor, role: _Role, activation: Activation) -> Tensor:
        """What the layers give of x as this gated MLP."""
        gate, up = self.linears[role.gate](x), self.linears[role.up](x)
        if role.gate == role.up:
            first, second = gate.chunk(2, dim=-1)
            gate, up = (second, first) if role.up_first else (first, second)
        y: Tensor = self.linears[role.down](activate(gate, activation) * up)
        return y

    def drops(self, y: Tensor) -> bool:
        """Whether the forward gives something else in training."""
        for module in self.module.modules():
            module.__dict__["training"] = True
        trained = self.run()
        return trained is None or not torch.equal(trained, y)


def _close(value: Tensor, expected: Tensor) -> bool:
    size = expected.abs().amax(-1, keepdim=True)
    return bool(((value - expected).abs() <= TOLERANCE * size).all())


def _widened(buffer: Tensor) -> Tensor:
    copy = buffer.detach().to("cpu", copy=True)
    return copy.double() if copy.is_floating_point() else copy


def _differs(module: nn.Module, linears: set[str]) -> str:
    """Why no gated MLP matches: what the module has beyond its layers."""
    extra = [f"a {type(child).__name__} ({name})" for name, child in module.named_children() if name not in linears]
    extra += [f"a parameter {name}" for name, value in module._parameters.items() if value is not None]
    extra += [
        f"{name} = {value}"
        for name, value in vars(module).items()
        if isinstance(value, float) and value not in {0.0, 1.0}
    ]
    said = f"; it has {', '.join(extra)}" if extra else ""
    return f"its forward is not down(act(gate)·up) with any of {', '.join(ACTIVATIONS)}: extra maths{said}"
