"""The worker's probe of one call in a situation that has many sides: what came before, and what it is within."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from mlpfusion.stages.validate.worker import guard
from mlpfusion.stages.validate.worker.probes import default_dtype
from mlpfusion.stages.validate.worker.results import named, plain
from mlpfusion.stages.validate.worker.targets.loader import OPERANDS
from mlpfusion.stages.validate.worker.transforms.alone import Operands
from mlpfusion.stages.validate.worker.transforms.modes import back, moved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.worker.probes import Probe, Run
    from mlpfusion.stages.validate.worker.targets.loader import Bound

REPEATED: Final = 3  # calls that come before one


class _Call:
    """A bound target whose operands of the names in `needs` need gradients, and what else it may be called on."""

    def __init__(self, run: Run, given: Tensors, options: Facts) -> None:
        self.names = OPERANDS[run.target.kind]
        self.needs = tuple(options["needs"])
        operands = self._needing(run.operands(given, options))
        self.bound = run.target.bind(operands)
        self._needing(self.bound.leaves)
        self._run, self._given = run, given

    def _needing(self, leaves: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        for name, leaf in zip(self.names, leaves, strict=True):
            leaf.requires_grad_(name in self.needs)
        return leaves

    def on(self, prefix: str) -> tuple[Tensor, ...]:
        """Other arguments, PREFIX:NAME, where there are some."""
        count = len(self.bound.arguments)
        made = [
            guard.place(self._given[f"{prefix}:{name}"], self._run.device).requires_grad_(name in self.needs)
            for name in self.names[:count]
        ]
        return tuple(made)

    def trained(self, arguments: tuple[Tensor, ...]) -> None:
        """A call with its backward, of which nothing is kept."""
        y = plain(self.bound.function(*arguments))
        if y.requires_grad:
            leaves = (*arguments, *self.bound.leaves[len(arguments) :])
            wanted = [leaf for leaf in leaves if leaf.requires_grad]
            torch.autograd.grad(y, wanted, torch.ones_like(y), allow_unused=True)


def _same(call: _Call) -> object:
    return call.bound()


def _other_values(call: _Call) -> object:
    return call.bound.function(*call.on("other"))


def _another_shape(call: _Call) -> object:
    return call.bound.function(*call.on("more"))


def _trained(call: _Call) -> object:
    with torch.enable_grad():
        call.trained(call.on("other"))
    return None


def _dropped(call: _Call) -> object:
    with torch.enable_grad():
        call.bound.function(*call.on("more"))
    return None


def _inferred(call: _Call) -> object:
    with torch.inference_mode():
        call.bound.function(*(each.detach() for each in call.on("other")))
    return None


def _repeated(call: _Call) -> object:
    return [call.bound.function(*call.on("other")) for _ in range(REPEATED)]


# What comes before a call, or between it and its backward; what is returned is kept until the end.
OTHERS: Final[dict[str, Callable[[_Call], object]]] = {
    "nothing": lambda call: None,
    "the same call": _same,
    "a call on other values": _other_values,
    "a call of another shape": _another_shape,
    "a call that trains": _trained,
    "a call that is not trained": _dropped,
    "a call in inference mode": _inferred,
    "three calls": _repeated,
}


@contextlib.contextmanager
def _within(mode: str, call: _Call) -> Iterator[None]:
    """Calls in a mode; gradients are on where an operand needs one, or the mode says so."""
    module = call.bound.module
    evaluates = mode == "in eval mode" and isinstance(module, nn.Module)
    was_training = module.training if evaluates and module is not None else False
    if evaluates and module is not None:
        module.eval()
    infers = mode == "in inference mode" and not call.needs
    hooks = torch.autograd.graph.saved_tensors_hooks(moved, back)
    try:
        with (
            torch.inference_mode(infers),
            torch.set_grad_enabled(bool(call.needs) or mode == "with gradients on"),
            default_dtype(mode.partition("default dtype ")[2] or None),
            hooks if mode == "with saved tensors elsewhere" else contextlib.nullcontext(),
        ):
            yield
    finally:
        if evaluates and module is not None:
            module.train(was_training)


def _made(mode: str, call: _Call) -> Tensor:
    """The call itself."""
    bound: Bound = call.bound
    if mode == "with checkpointing" and call.needs:
        return plain(checkpoint(bound.function, *bound.arguments, use_reentrant=False))
    if mode != "in another thread":
        return plain(bound())
    found: list[Tensor] = []
    raised: list[BaseException] = []

    def work(grad: bool = torch.is_grad_enabled()) -> None:
        try:
            with torch.set_grad_enabled(grad):  # which each thread has for itself
                found.append(plain(bound()))
        except BaseException as error:  # it is the caller's
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
    return found[0]


def crossed(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """y and d:NAME of the operands in `needs`, of one call within `mode`, after what came `before` and with `between`.

    y is that after all of it. other:NAME are arguments of this shape and more:NAME of another. Facts: the operands that
    the call "changed".
    """
    call = _Call(run, given, options)
    mode = options["mode"]
    dy = run.operand("dy", given, options)
    with guard.watch("nan"):
        with torch.set_grad_enabled(bool(call.needs)):
            kept = [OTHERS[options["before"]](call)]
        operands = Operands(run, call.bound)
        with _within(mode, call):
            y = _made(mode, call)
        changed = operands.changed()
        results: Tensors = {}
        with torch.set_grad_enabled(bool(call.needs)):
            kept.append(OTHERS[options["between"]](call))
        if y.requires_grad:
            wanted = [leaf for name, leaf in zip(call.names, call.bound.leaves, strict=True) if name in call.needs]
            grads = torch.autograd.grad(y, wanted, dy, allow_unused=True)
            results = {name: each.clone() for name, each in named(call.needs, grads).items()}
        run.synchronize()
    del kept
    return results | {"y": y.detach().clone()}, {"changed": changed}


CROSSED_PROBES: Final[dict[str, Probe]] = {"crossed": crossed}
