"""Runs a small copy of a module with random weights: its own forward, and the gated MLPs that its layers could make."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from mlpfusion.backends.eager import activation_function
from mlpfusion.errors import first_line
from mlpfusion.models import layers
from mlpfusion.reference import activate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mlpfusion.models.layers import Role, Sizes
    from mlpfusion.models.reads import Recorder
    from mlpfusion.spec import Activation

# Rounding in fp64 leaves about 1e-15 of a row's size; the two GELUs are 1e-4 apart.
TOLERANCE: Final = 1e-9
# Sizes of x, row by row: small ones distinguish activations, large ones find clamps, beyond what any other dtype holds.
SCALES: Final = (1e-3, 0.1, 1.0, 1.0, 4.0, 30.0, 1e3, 1e5, 1e20, 1e60)
SMALL: Final = 24  # intermediate_size of the copy that is run
# Shapes of x without its width. A forward may take some of them only, and branch on the number of tokens: one is what a
# model generates, and 4,098 is more than most such branches ask for.
SHAPES: Final = ((1, len(SCALES)), (2 * len(SCALES) + 1,), (2, 1), (1, 2, len(SCALES)), (3, 1366))
_LARGEST: Final = 2**16  # elements of a layer for which so many tokens are cheap
NARROW: Final = (torch.float32, torch.bfloat16, torch.float16)
_NEAR: Final = (0.7, 1.4)  # shares of a dtype's largest value between which rounding decides whether it overflows
_HOOKS: Final = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_always_called",
)


class Gave(NamedTuple):
    """What a forward gave of one x: one tensor, or the reason why it gave none."""

    x: Tensor
    y: Tensor | None
    reason: str = ""


class Copy:
    """A copy of a module on the CPU in one dtype with random weights, its linear layers plain ones of given sizes.

    Buffers keep their values. A `recorder` notes what the forward reads of the original.
    """

    def __init__(
        self, module: nn.Module, sizes: Sizes, dtype: torch.dtype = torch.float64, recorder: Recorder | None = None
    ) -> None:
        self.random = torch.Generator("cpu").manual_seed(0)
        self.dtype, self.sizes, self.recorder = dtype, sizes, recorder
        self._buffers: list[tuple[str, Tensor]] = []
        self.linears = {path: self._linear(layers.at(module, path), *size) for path, size in sizes.items()}
        made: dict[int, Any] = {id(layers.at(module, path)): linear for path, linear in self.linears.items()}
        self.module: nn.Module = self._skeleton(module, made, ())
        self._modules = list(made.values())
        self.module.__dict__.pop("forward", None)  # one put on the instance is bound to the original

    def inputs(self) -> Iterator[Tensor]:
        """x of several shapes whose rows are of several sizes; their width is what the first layer takes."""
        role = next(layers.roles(self.sizes), None)
        width = self.sizes[role.gate if role else next(iter(self.sizes))][1]
        small = max(out * into for out, into in self.sizes.values()) <= _LARGEST
        wide = self.dtype == torch.float64
        scales = SCALES if wide else _scales(self.dtype)
        for shape in SHAPES[:2] if not wide else SHAPES if small else SHAPES[:-1]:
            rows = self._normal(*shape, width)
            each = torch.tensor(scales, dtype=torch.float64, device="cpu").repeat(
                rows.numel() // width // len(scales) + 1
            )
            x = rows.flatten(0, -2) * each[: rows.numel() // width, None]
            largest = torch.finfo(self.dtype).max
            yield x.clamp(-largest, largest).to(self.dtype).view(*shape, width)

    def run(self, x: Tensor, *, training: bool = False) -> Gave:
        """The module's own forward of x."""
        for module in self._modules:
            module.__dict__["training"] = training
        given = x.clone()
        try:
            with (
                torch.no_grad(),
                torch.autocast("cpu", enabled=False),
                torch.random.fork_rng(devices=[]),
                warnings.catch_warnings(),
            ):
                warnings.simplefilter("ignore")
                y: Any = self.module(given)
        except Exception as error:  # any module of a model gets here, and most are no MLP
            return Gave(x, None, f"{type(error).__name__}: {first_line(error)}")
        if given._version:
            return Gave(x, None, "it changes x in place")
        if not isinstance(y, Tensor):
            return Gave(x, None, f"it returns a {type(y).__name__}, not one tensor")
        if y.shape[:-1] != x.shape[:-1]:
            return Gave(x, None, f"of x {list(x.shape)} it returns a tensor {list(y.shape)}")
        return Gave(x, y)

    def expected(self, x: Tensor, role: Role, activation: Activation) -> Tensor:
        """What the layers give of x as this gated MLP."""
        return self._stages(x, role, activation)[-1]

    def _stages(self, x: Tensor, role: Role, activation: Activation) -> tuple[Tensor, ...]:
        """Gate, up, their product and y."""
        wide = self.dtype == torch.float64  # the reference is for nothing else
        gate, up = self.linears[role.gate](x), self.linears[role.up](x)
        if role.gate == role.up:
            first, second = gate.chunk(2, dim=-1)
            gate, up = (second, first) if role.up_first else (first, second)
        inner = (activate(gate, activation) if wide else activation_function(activation)(gate)) * up
        return gate, up, inner, self.linears[role.down](inner)

    def agrees(self, gave: Gave, role: Role, activation: Activation, tolerance: float = TOLERANCE) -> bool:
        """Whether y is what this gated MLP gives, row by row."""
        assert gave.y is not None
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            expected = self.expected(gave.x, role, activation)
        return gave.y.dtype == expected.dtype and close(gave.y, expected, tolerance)

    def agrees_narrow(self, gave: Gave, role: Role, activation: Activation, exact: Copy) -> bool:
        """As `agrees` in a dtype of fewer bits: within its rounding, and beyond its largest value as well.

        `exact` has the same weights in fp64. Where a value is near the largest of the dtype, rounding decides.
        """
        assert gave.y is not None
        y = gave.y.double()
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            expected = self.expected(gave.x, role, activation).double()
            stages = exact._stages(gave.x.double(), role, activation)
        info = torch.finfo(self.dtype)
        near = torch.zeros(y.shape[:-1], dtype=torch.bool)
        for value in stages:
            size = value.abs() / info.max
            near |= ((size > _NEAR[0]) & (size < _NEAR[1])).any(-1)
        finite = expected.isfinite()
        if not ((finite == y.isfinite()).all(-1) | near).all():
            return False
        both = finite & y.isfinite()
        size = torch.where(both, expected, 0.0).abs().amax(-1, keepdim=True).clamp_min(info.tiny)
        off = torch.where(both, y - expected, 0.0).abs() > 16 * info.eps * size
        return gave.y.dtype == self.dtype and bool((~off.any(-1) | near).all())

    def agrees_backward(self, x: Tensor, role: Role, activation: Activation) -> bool:
        """Whether the gradient of x is that of this gated MLP too, if the module can be differentiated at all."""
        found = []
        mine: Callable[[Tensor], Tensor] = self.module
        for forward in (mine, lambda x: self.expected(x, role, activation)):
            try:
                with torch.enable_grad(), torch.autocast("cpu", enabled=False):
                    leaf = x.clone().requires_grad_()
                    found.append(torch.autograd.grad(forward(leaf).sum(), leaf)[0])
            except RuntimeError:  # under no_grad, say: nobody trains through it
                return True
        mine_of_x, expected = found
        return close(mine_of_x, expected)

    def modest(self, gave: Gave) -> Gave:
        """The rows of the first x that are of a size at which nothing overflows or is clamped as a rule."""
        assert gave.y is not None
        rows = [
            index for index, scale in enumerate(SCALES) if 0.1 <= scale <= 30 and index < gave.y.flatten(0, -2).shape[0]
        ]
        return Gave(gave.x.flatten(0, -2)[rows], gave.y.flatten(0, -2)[rows])

    def same(self, dtype: torch.dtype) -> Copy:
        """A copy of this copy in another dtype, with the same values as far as that holds them."""
        made: Copy = object.__new__(Copy)
        made.__dict__.update(self.__dict__, dtype=dtype, _buffers=self._buffers)
        replaced: dict[int, Any] = {}
        made.linears, made._modules = {}, []
        for path, linear in self.linears.items():
            made.linears[path] = replaced[id(linear)] = _cast(linear, dtype)
        made.module = made._skeleton(self.module, replaced, ())
        made._modules = list(replaced.values())
        return made

    def changed(self) -> str | None:
        """The name of a buffer that the runs changed in place, or None."""
        return next((name for name, buffer in self._buffers if buffer._version), None)

    def mixes(self, gave: Gave) -> bool:
        """Whether a token's y depends on other tokens."""
        x = gave.x.clone().flatten(0, -2)
        x[1:] *= 0.5
        other = self.run(x.view(gave.x.shape))
        if other.y is None or gave.y is None or len(x) < 2:
            return False
        return not torch.equal(other.y.flatten(0, -2)[0], gave.y.flatten(0, -2)[0])

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self.random, dtype=torch.float64, device="cpu")

    def _linear(self, original: nn.Module, out: int, into: int) -> nn.Linear:
        weight, bias = self._normal(out, into) * into**-0.5, self._normal(out)
        return _layer(weight, None if getattr(original, "bias", None) is None else bias, self.dtype)

    def _skeleton(self, module: nn.Module, made: dict[int, Any], steps: tuple[str, ...]) -> Any:
        """A copy of the module without hooks and with new tensors; everything else is shared."""
        if id(module) in made:
            return made[id(module)]
        new = object.__new__(type(module))
        made[id(module)] = new
        state, own = new.__dict__, module.__dict__
        state.update(own)
        state.update({name: OrderedDict() for name in _HOOKS if name in own})
        state["_compiled_call_impl"] = None
        if "_hf_hook" in own:  # accelerate's, which moves tensors to the original's device
            state.pop("forward", None)
        state["_parameters"] = {
            name: None if p is None else nn.Parameter(self._normal(*p.shape).to(self.dtype), requires_grad=False)
            for name, p in own["_parameters"].items()
        }
        state["_buffers"] = {
            name: None if b is None else self._normal(*b.shape).to(self.dtype) if b.is_meta else self._like(b)
            for name, b in own["_buffers"].items()
        }
        state["_modules"] = {
            name: None if child is None else self._skeleton(child, made, (*steps, name))
            for name, child in own["_modules"].items()
        }
        state["training"] = False
        self._buffers += [
            (".".join((*steps, name)), buffer) for name, buffer in state["_buffers"].items() if buffer is not None
        ]
        if self.recorder is not None:
            self.recorder.watch(new, module, steps)
        return new

    def _like(self, buffer: Tensor) -> Tensor:
        dtype = self.dtype if buffer.is_floating_point() else buffer.dtype
        return buffer.detach().to("cpu", dtype, copy=True)


def close(value: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> bool:
    """Whether each value is within the tolerance of the largest in its row."""
    size = expected.abs().amax(-1, keepdim=True)
    return bool(((value - expected).abs() <= tolerance * size).all())


def _scales(dtype: torch.dtype) -> tuple[float, ...]:
    """Sizes of rows up to where products, and then gate and up themselves, overflow."""
    largest = torch.finfo(dtype).max
    found = (0.1, 1.0, 1.0, 4.0, 30.0, *(largest**power for power in (0.25, 0.34, 0.45, 0.55, 0.8)), largest / 4)
    return tuple(sorted(found))


def _cast(linear: nn.Linear, dtype: torch.dtype) -> nn.Linear:
    return _layer(linear.weight.detach(), None if linear.bias is None else linear.bias.detach(), dtype)


def _layer(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> nn.Linear:
    """A layer of this weight [out, in]; without the initial values that its own `__init__` would compute."""
    made = nn.Linear.__new__(nn.Linear)
    nn.Module.__init__(made)
    made.out_features, made.in_features = weight.shape
    made.weight = nn.Parameter(weight.to(dtype), requires_grad=False)
    made.register_parameter("bias", None if bias is None else nn.Parameter(bias.to(dtype), requires_grad=False))
    return made
