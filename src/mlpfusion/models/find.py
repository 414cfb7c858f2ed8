"""Determines by running a module whether it is a gated MLP, with which layers and which activation.

Nothing is taken from names or configs. A small copy of the module with random weights is run in fp64 and compared with
every gated MLP that its layers could make; only an exact match counts. It is then run in fp32, bf16 and fp16 too, up to
where values overflow.
"""

from __future__ import annotations

import inspect
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from mlpfusion.models import layers
from mlpfusion.models.copies import NARROW, SMALL, TOLERANCE, Copy, Gave
from mlpfusion.models.reads import Recorder
from mlpfusion.models.watched import Watched
from mlpfusion.spec import ACTIVATIONS

if TYPE_CHECKING:
    from mlpfusion.models.layers import Role, Sizes
    from mlpfusion.spec import Activation

__all__ = ["TOLERANCE", "Found", "Refused", "examine", "probe"]
_CAST: float = 1e-5  # of a row's size: what rounding to fp32 inside leaves of fp64


class Found(NamedTuple):
    """A gated MLP: the paths of its layers, what it computes, and whether training drops out values in it.

    `layers` has the keys gate, up, down or, where one layer holds gate and up, gate_up, down. In the dtypes `unlike` it
    computes something else.
    """

    layers: dict[str, str]
    activation: Activation
    up_first: bool
    drops: bool
    unlike: tuple[torch.dtype, ...] = ()

    def same(self, other: object) -> bool:
        """Whether another one computes the same outside of training."""
        return isinstance(other, Found) and self._replace(drops=False) == other._replace(drops=False)


class Refused(NamedTuple):
    """A module that looks like an MLP and is none that a backend may replace, and why.

    What is inside experts is looked at as well; `experts` is their number. One whose layers are inside its parts is
    none if a part turns out to be one (`nested`).
    """

    reason: str
    experts: int = 0
    nested: bool = False


class Examined(NamedTuple):
    """A gated MLP, and what is to be watched from now on."""

    found: Found
    watched: Watched


def probe(module: nn.Module) -> Found | Refused | None:
    """What `module` itself (not what is inside it) is: a gated MLP, one that must be refused, or None for any other.

    The module is not touched: neither its weights nor its hooks take part, and the random state stays as it was.
    """
    found = examine(module)
    return found.found if isinstance(found, Examined) else found


@torch.inference_mode(False)  # whose tensors have no gradients
def examine(module: nn.Module) -> Examined | Refused | None:
    """As `probe`; of a gated MLP also what is to be watched."""
    if torch.get_default_device().type == "cpu":
        return _judged(module)
    with torch.device("cpu"):  # forwards may make tensors, and so do comparisons
        return _judged(module)


def _judged(module: nn.Module) -> Examined | Refused | None:
    stacked = _experts(module)
    if stacked:
        number = module._parameters[stacked[0]].shape[0]  # type: ignore[union-attr]
        names = ", ".join(stacked)
        return Refused(f"its {number} experts are 3-D parameters ({names}), one grouped operator, no gated MLP", number)
    sizes = layers.linears(module)
    roles = list(layers.roles(sizes))
    nested = any("." in path for path in sizes)
    if not roles and not layers.is_plain(sizes):
        return None
    if "attention" in type(module).__name__.lower() or "attn" in type(module).__name__.lower():
        return None  # three layers of one width look like an MLP's
    if getattr(type(module), "forward", None) is nn.Module.forward:  # of a scripted class it cannot be read
        return None  # a list of layers, which nothing calls
    if isinstance(module, torch.jit.ScriptModule):
        return Refused("it is compiled by TorchScript, which runs no other forward")
    lacking = _more_than_one(module)
    if lacking:
        return Refused(f"its forward needs more than one tensor: {lacking}", nested=nested) if roles else None
    found = _examined(module, sizes, roles)
    return found._replace(nested=nested) if isinstance(found, Refused) else found


def _examined(module: nn.Module, sizes: Sizes, roles: list[Role]) -> Examined | Refused | None:
    for plan in (layers.shrunk(sizes, SMALL), sizes):  # a module that knows its own sizes runs only with these
        recorder = Recorder()
        copy = Copy(module, plan, recorder=recorder)
        gave = [copy.run(x) for x in copy.inputs()]
        ran = [each for each in gave if each.y is not None]
        if ran:
            break
    if not roles:
        return Refused(f"it is not gated: {' feeds '.join(sizes)}, without a second factor") if ran else None
    if not ran:
        return Refused(f"its forward cannot be run on one tensor of float64, by which it is judged: {gave[0].reason}")
    match = _match(copy, ran[0], roles)
    if match is None or not all(copy.agrees(each, *match) for each in ran):
        return _unmatched(module, copy, ran, roles, set(sizes))
    role, activation = match
    if not layers.square(sizes, role):
        into, out = sizes[role.gate][1], sizes[role.down][0]
        return Refused(f"it computes a gated MLP ({activation}) of {into} features to {out}; backends return {into}")
    if not copy.agrees_backward(ran[0].x, role, activation):
        return Refused(f"it computes a gated MLP ({activation}) with custom gradients")
    unlike = tuple(dtype for dtype in NARROW if not _alike(copy.same(dtype), role, activation))
    own: Any = layers.at(module, role.gate)
    dtype = getattr(getattr(own, "weight", None), "dtype", None)
    if dtype in unlike:
        return Refused(f"in {str(dtype).removeprefix('torch.')} its forward is another than in float64 (a clamp?)")
    drops = _drops(copy, ran[0])
    if recorder.sets:
        return Refused(f"its forward sets {recorder.sets[0]}, which no backend does")
    if copy.changed():
        return Refused(f"its forward changes {copy.changed()} in place, which no backend does")
    inner = {id(layers.at(module, path)) for path in sizes}
    reads = recorder.reads(inner)
    reason = recorder.unseen(reads)
    if reason is not None:
        return Refused(reason)
    found = Found(role.layers, activation, role.up_first, drops, unlike)
    return Examined(found, Watched(module, reads, parts(module, found)))


def parts(module: nn.Module, found: Found) -> list[nn.Module]:
    """The modules inside a gated MLP that are none of its layers, nor inside one."""
    layered = {id(each) for path in found.layers.values() for each in layers.at(module, path).modules()}
    return [each for each in module.modules() if each is not module and id(each) not in layered]


def _match(copy: Copy, gave: Gave, roles: list[Role]) -> tuple[Role, Activation] | None:
    for role, activation in itertools.product(roles, ACTIVATIONS):
        if copy.agrees(gave, role, activation):
            return role, activation
    return None


def _alike(narrow: Copy, role: Role, activation: Activation) -> bool:
    """Whether the module computes the same in a dtype of fewer bits; what cannot be run in it computes nothing else."""
    exact = narrow.same(torch.float64)
    gave = [narrow.run(x) for x in narrow.inputs()]
    return all(each.y is None or narrow.agrees_narrow(each, role, activation, exact) for each in gave)


def _drops(copy: Copy, gave: Gave) -> bool:
    """Whether the forward gives something else in training."""
    trained = copy.run(gave.x, training=True)
    return trained.y is None or gave.y is None or not torch.equal(trained.y, gave.y)


def _more_than_one(module: nn.Module) -> str | None:
    """What a forward must be given, if that is more than one argument; or None."""
    try:
        signature = inspect.signature(type(module).forward)
        signature.bind(module, None)
    except ValueError:
        return None
    except TypeError:
        needed = [name for name, each in signature.parameters.items() if each.default is each.empty]
        return ", ".join(needed[1:]) or "nothing"
    return None


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


def _unmatched(module: nn.Module, copy: Copy, ran: list[Gave], roles: list[Role], linears: set[str]) -> Refused | None:
    """Why no gated MLP matches for every x."""
    if not any(layers.square(copy.sizes, role) for role in roles):
        return None  # it only has widths in common with one
    if copy.mixes(ran[0]):
        return Refused("its forward mixes tokens, which no MLP does")
    matches = [_match(copy, each, roles) for each in ran]
    if matches[0] is not None:
        other = next(each.x for each, match in zip(ran, matches, strict=True) if match != matches[0])
        return Refused(f"its forward depends on the shape of x: for {list(other.shape[:-1])} tokens it is another")
    modest = copy.modest(ran[0])
    if _match(copy, modest, roles) is not None:
        return Refused("extra maths: for very large or small values its forward is another (a clamp?)")
    for role, activation in itertools.product(roles, ACTIVATIONS):
        if copy.agrees(modest, role, activation, _CAST):
            return Refused(f"it computes a gated MLP ({activation}) and rounds inside, to float32 say")
    return Refused(_differs(module, linears))


def _differs(module: nn.Module, linears: set[str]) -> str:
    """What a module has beyond its layers."""
    tops = {path.partition(".")[0] for path in linears}
    extra = [f"a {type(child).__name__} ({name})" for name, child in module.named_children() if name not in tops]
    extra += [f"a parameter {name}" for name, value in module._parameters.items() if value is not None]
    extra += [
        f"{name} = {value}"
        for name, value in vars(module).items()
        if isinstance(value, float) and value not in {0.0, 1.0}
    ]
    said = f"; it has {', '.join(extra)}" if extra else ""
    return f"its forward is not down(act(gate)·up) with any of {', '.join(ACTIVATIONS)}: extra maths{said}"
