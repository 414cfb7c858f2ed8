"""Proves what lies between the layers of a cone by running it: which activation, of which layer, gradients included."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import Node
from torch.utils._python_dispatch import _disable_current_modes

from mlpfusion.errors import first_line
from mlpfusion.inductor.match import name_of, value
from mlpfusion.models.find import TOLERANCE
from mlpfusion.reference import activate
from mlpfusion.spec import ACTIVATIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mlpfusion.inductor.match import Cone
    from mlpfusion.inductor.operands import Operands
    from mlpfusion.spec import Activation

# Sizes of gate and up: small ones distinguish activations, large ones find clamps up to what bfloat16 can hold.
SCALES: Final = (0.3, 1.0, 4.0, 30.0, 1e3, 1e5, 1e20, 1e37)
# In the weights' dtype a rounding at every step of a spelled-out GELU leaves some units in the last place of a row.
ROUNDINGS: Final = 32
_WIDTH: Final = 48  # of gate and up, where no number in the cone is a width
_PRIMES: Final = (2, 3, 5, 7, 11, 13)
_RESHAPING: Final = frozenset(("view", "reshape", "unflatten", "expand", "flatten", "unsqueeze", "squeeze", "size"))


class Proved(NamedTuple):
    """What a cone computes: act(gate)·up, and whether up is the first of its layers or halves."""

    activation: Activation
    up_first: bool


def prove(cone: Cone, operands: Operands, known: dict[str, Proved | str]) -> Proved | str:
    """What the cone computes between its layers, or the reason why that is no gated MLP; `known` keeps the answers.

    Gate and up are made up here, at random; what the layers themselves are needs no proof. It is run in fp64 and in
    the dtype of the products, with gradients, and with infinities and nan.
    """
    run = _Run(cone, operands)
    source = run.source()
    if source not in known:
        known[source] = _proved(run)
        if isinstance(known[source], str) and run.lead != run.real and run.is_small():
            run.lead = run.real  # with the very sizes: they may be parted in a way that smaller ones cannot
            known[source] = _proved(run)
    return known[source]


def _proved(run: _Run) -> Proved | str:
    with (
        unset_fake_temporarily(),
        _disable_current_modes(),
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
        torch.random.fork_rng(devices=[]),
    ):
        try:
            candidates = _candidates(run)
            if len(candidates) == 1 and _holds_in_its_dtype(run, candidates[0]):
                return candidates[0]
        except Exception as error:  # whatever a graph may hold
            return (
                f"what lies between its products cannot be run by itself: {type(error).__name__}: {first_line(error)}"
            )
    does = ", ".join(name_of(node) for node in run.cone.inner)
    if candidates:
        return f"in {run.dtype} it does not compute {candidates[0].activation}(gate)·up: {does}"
    return f"between its products it computes act(gate)·up with none of {', '.join(ACTIVATIONS)}: {does}"


def _candidates(run: _Run) -> list[Proved]:
    """What agrees with the cone in fp64, at every scale; there is at most one."""
    left = [Proved(*each) for each in itertools.product(ACTIVATIONS, (False, True))]
    for scale in (*SCALES, None):
        first, second = run.random(torch.float64, scale)
        cotangent = run.normal(*first.shape)
        mine = _with_gradients(run, first, second, cotangent)
        left = [each for each in left if _agrees(mine, _with_gradients(_formula(each), first, second, cotangent))]
        if not left:
            break
    return left


def _holds_in_its_dtype(run: _Run, proved: Proved) -> bool:
    """Whether it is the same, but for rounding, in the dtype that the products have, beyond what that can hold too."""
    kind = torch.finfo(run.dtype)
    for scale in (1.0, 30.0, float(kind.max) ** 0.5 * 4):
        first, second = run.random(run.dtype, scale)
        mine = run(first, second)
        right = _formula(proved)(first.double(), second.double())
        if mine.dtype != run.dtype or mine.shape != right.shape:
            return False
        overflows = right.abs() > 1.01 * kind.max
        if bool(mine[overflows].isfinite().any()):  # it is clamped
            return False
        fits = right.abs().where(~overflows, 0.0)
        size = fits.amax(-1, keepdim=True)
        off = (mine.double() - right).abs()
        if bool((off > ROUNDINGS * kind.eps * size)[~overflows & mine.isfinite()].any()):
            return False
    return True


def _formula(proved: Proved) -> Callable[[Tensor, Tensor], Tensor]:
    def formula(first: Tensor, second: Tensor) -> Tensor:
        gate, up = (second, first) if proved.up_first else (first, second)
        return activate(gate, proved.activation) * up

    return formula


def _with_gradients(
    function: Callable[[Tensor, Tensor], Tensor], first: Tensor, second: Tensor, cotangent: Tensor
) -> tuple[Tensor, ...]:
    """The value and both gradients; one that does not depend on an operand has gradients of 0."""
    leaves = [each.clone().requires_grad_() for each in (first, second)]
    y = function(*leaves)
    if y.shape != first.shape or y.dtype != first.dtype:
        raise ValueError(f"it gives {list(y.shape)} {y.dtype} of {list(first.shape)} {first.dtype}")
    if not y.requires_grad:
        return (y, *map(torch.zeros_like, leaves))
    found = torch.autograd.grad(y, leaves, cotangent, allow_unused=True)
    return (y.detach(), *(torch.zeros_like(a) if b is None else b for a, b in zip(leaves, found, strict=True)))


def _agrees(mine: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> bool:
    """Whether values and gradients are equal; where the value is nan, a gradient may be anything.

    A clamp at infinity, which is none, passes nan on and gives it a gradient of 0.
    """
    unknown = right[0].isnan()
    value, gradients = (mine[0], right[0]), zip(mine[1:], right[1:], strict=True)
    return _close(*value) and all(
        _close(one.where(~unknown, 0.0), other.where(~unknown, 0.0)) for one, other in gradients
    )


def _close(value: Tensor, expected: Tensor) -> bool:
    """Whether each row is equal but for rounding, and infinite or nan in the same places."""
    finite = expected.isfinite()
    if not torch.equal(finite, value.isfinite()):
        return False
    size = expected.abs().where(finite, 0.0).amax(-1, keepdim=True)
    return bool(((value - expected).abs() <= TOLERANCE * size)[finite].all())


class _Run:
    """The inner nodes of a cone as a function of (gate, up), or of both in one, with small sizes for its tokens."""

    def __init__(self, cone: Cone, operands: Operands) -> None:
        self.cone, self.packed = cone, operands.packed
        self.dtype = operands.dtype
        self.generator = torch.Generator("cpu").manual_seed(0)
        self.real = list(value(cone.pair[0]).shape[:-1])
        self.lead = [1 if str(size) == "1" else prime for size, prime in zip(self.real, _PRIMES, strict=False)]
        h = operands.intermediate_size
        own = {size for node in cone.inner for size in _numbers(node)}
        self.widths = {str(h), str(2 * h)}
        self.width = h if own & self.widths else _WIDTH

    @property
    def sizes(self) -> dict[str, int]:
        """Each product of adjacent leading sizes as it is in the graph, and as it is here."""
        found = dict(_products(self.real, self.lead))
        return {size: here for size, here in found.items() if size not in self.widths}

    def is_small(self) -> bool:
        """Whether the sizes are known, and few enough to run with them."""
        rows = 1
        for size in self.real:
            rows = rows * size
        return isinstance(rows, int) and 0 < rows * self.width <= 1 << 20

    def __call__(self, first: Tensor, second: Tensor) -> Tensor:
        """What the last layer is given [rows..., H], with gate and up, or up and gate, in the order of the layers."""
        rows = first.shape
        given = [torch.cat((first, second), -1)] if self.packed else [first, second]
        values: dict[Node, Any] = {
            layer: one.reshape(*self.lead, -1).clone() for layer, one in zip(self.cone.pair, given, strict=True)
        }
        for node in self.cone.inner:
            values[node] = self._call(node, values)
        y: Tensor = values[self.cone.inner[-1]]
        return y.reshape(rows) if y.shape[-1] == rows[-1] else y

    def _call(self, node: Node, values: dict[Node, Any]) -> Any:
        if _is_no_cast(node):
            return values[node.all_input_nodes[0]]
        resized = name_of(node) in _RESHAPING

        def replaced(each: Any) -> Any:
            if isinstance(each, Node) and each in values:
                return values[each]
            size = value(each) if isinstance(each, Node) else each
            if not (resized and _is_size(size)):
                return self._constant(size)
            return self.sizes.get(str(size), size) if str(size) not in {"0", "1"} else size

        args, kwargs = _mapped((node.args, node.kwargs), replaced)
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        return node.target(*args, **kwargs)  # type: ignore[operator]

    def _constant(self, size: Any) -> Any:
        if isinstance(size, torch.SymInt):
            if str(size) not in self.sizes:
                raise ValueError(f"it is given the size {size}, which no dimension of x has")
            return self.sizes[str(size)]
        return size

    def random(self, dtype: torch.dtype, scale: float | None) -> tuple[Tensor, Tensor]:
        """Gate and up [rows, width], or one after the other; without a scale with infinities and nan among them."""
        rows = 1
        for size in self.lead:
            rows *= size
        first, second = (self.normal(rows, self.width) * (scale or 1.0) for _ in range(2))
        if scale is None:
            for one, place in ((first, 0), (second, 3)):
                one[:, place], one[:, place + 1] = float("inf"), float("nan")
            first[:, 3:5], second[:, 0:2] = 1.0, 1.0
        elif scale > 1e3:  # the large ones meet ordinary ones too: so a clamp of either is found
            first[:, ::3] /= scale
            second[:, 1::3] /= scale
        return first.to(dtype), second.to(dtype)

    def normal(self, *shape: int) -> Tensor:
        """Standard normal numbers in fp64."""
        return torch.randn(shape, generator=self.generator, dtype=torch.float64, device="cpu")

    def source(self) -> str:
        """What the cone is, whatever its nodes are called: equal for the layers of a model."""
        names = {node: f"%{place}" for place, node in enumerate((*self.cone.pair, *self.cone.inner))}

        def named(each: Any) -> Any:
            return names.get(each, f"size {value(each)}") if isinstance(each, Node) else each

        lines = [
            f"{node.op} {node.target} {_mapped((node.args, node.kwargs), named)} {_is_no_cast(node)}"
            for node in self.cone.inner
        ]
        resized = any(name_of(node) in _RESHAPING for node in self.cone.inner)
        lead = sorted(self.sizes.items()) if resized else self.lead
        shape = (self.packed, self.dtype, self.width, lead)
        return "\n".join((*map(str, shape), *lines))


def _mapped(arguments: Any, function: Callable[[Any], Any]) -> Any:
    """Arguments with every node and every size in them replaced."""
    if isinstance(arguments, tuple | list):
        return type(arguments)(_mapped(each, function) for each in arguments)
    if isinstance(arguments, dict):
        return {key: _mapped(each, function) for key, each in arguments.items()}
    if isinstance(arguments, slice):
        return slice(*(_mapped(each, function) for each in (arguments.start, arguments.stop, arguments.step)))
    return function(arguments)


def _products(lead: list[Any], small: list[int]) -> Iterator[tuple[str, int]]:
    """Each product of adjacent leading sizes as it is in the graph, and as it is here."""
    for start in range(len(lead)):
        size, here = 1, 1
        for end in range(start, len(lead)):
            size, here = size * lead[end], here * small[end]
            yield str(size), here


def _numbers(node: Node) -> Iterator[str]:
    """Every number in a node's arguments."""
    found: list[str] = []
    _mapped((node.args, node.kwargs), lambda each: found.append(str(each)) if _is_size(each) else None)
    return iter(found)


def _is_size(each: Any) -> bool:
    return isinstance(each, int | torch.SymInt) and not isinstance(each, bool)


def _is_no_cast(node: Node) -> bool:
    """Whether a node casts to the dtype that its operand has already, which fp64 has not."""
    if name_of(node) not in {"to", "type", "type_as", "float", "half", "bfloat16", "_to_copy"}:
        return False
    before, after = value(node.all_input_nodes[0]), value(node)
    alike = isinstance(before, Tensor) and isinstance(after, Tensor)
    return alike and before.dtype == after.dtype and before.device == after.device
