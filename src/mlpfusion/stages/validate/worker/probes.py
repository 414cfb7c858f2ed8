"""The worker's probes: run a target in some way and return raw results and facts, without judging."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor, nn

from mlpfusion.errors import first_line
from mlpfusion.stages.validate import own_errors
from mlpfusion.stages.validate.layouts import LAYOUTS, PACKINGS, in_one_buffer
from mlpfusion.stages.validate.worker import emulation, guard, settings
from mlpfusion.stages.validate.worker.results import named, plain, same_bits
from mlpfusion.stages.validate.worker.targets.loader import OPERANDS
from mlpfusion.storage import private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.worker.targets.autotuners import Pins
    from mlpfusion.stages.validate.worker.targets.loader import Bound, Target

    Probe = Callable[["Run", Tensors, Facts], "tuple[Tensors, Facts]"]

MEMORY: Final = (MemoryError, torch.OutOfMemoryError)


class Run(NamedTuple):
    """A target on a device, with its autotuners."""

    target: Target
    device: torch.device
    pins: Pins

    def operands(self, given: Tensors, options: Facts, *, grad: bool = False) -> tuple[Tensor, ...]:
        """The operands on the device, in the layouts that `options["layouts"]` names.

        With `options["packed"]`, gate and up are one tensor in that way; with `options["buffer"]` they, or the weights
        of an MLP, are parts of one memory.
        """
        made = [self.operand(name, given, options) for name in OPERANDS[self.target.kind]]
        if "packed" in options:
            made = list(PACKINGS[options["packed"]](*made))
        if "buffer" in options:
            first = self.target.kind == "mlp"
            made[first:] = in_one_buffer(made[first:], options["buffer"])
        return tuple(tensor.detach().requires_grad_(grad) for tensor in made)

    def operand(self, name: str, given: Tensors, options: Facts) -> Tensor:
        """One operand, or dy, on the device and in its layout; `options["around"]` has the patterns around each.

        With `options["bare"]` it is alone in its memory, as most operands are.
        """
        if options.get("bare"):
            return given[name].to(self.device, copy=True)
        before, behind = options.get("around", {}).get(name, ("nan", "nan"))
        tensor = guard.place(given[name], self.device, (before, behind))
        layouts: dict[str, str] = options.get("layouts", {})
        return LAYOUTS[layouts[name]](tensor) if name in layouts else tensor

    def synchronize(self) -> None:
        """Wait for the device, so that its errors belong to this probe."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()


@contextlib.contextmanager
def default_dtype(name: str | None) -> Iterator[None]:
    """Calls under another default dtype, if one is named."""
    before = torch.get_default_dtype()
    if name is not None:
        torch.set_default_dtype(getattr(torch, name))
    try:
        yield
    finally:
        if name is not None:
            torch.set_default_dtype(before)


@contextlib.contextmanager
def in_mode(bound: Bound, mode: str | None) -> Iterator[None]:
    """Calls that train nothing: under no_grad, or as `mode` says, "inference", "eval" or "gradients on".

    "default DTYPE" is under no_grad where that is the default dtype.
    """
    holder: Any = bound.module if bound.module is not None else bound.function
    is_in_eval = mode == "eval" and isinstance(holder, nn.Module)
    was_training = is_in_eval and holder.training
    if is_in_eval:
        holder.eval()
    try:
        default = default_dtype((mode or "").partition("default ")[2] or None)
        with torch.inference_mode(mode == "inference"), torch.set_grad_enabled(mode == "gradients on"), default:
            set_here = settings.read(("grad mode", "inference mode"))
            try:
                yield
            finally:  # what a call leaves, or one that raises: the mode is put back before anybody else sees it
                settings.LEFT_WITHIN.update(settings.changed(set_here))
    finally:
        if is_in_eval:
            holder.train(was_training)


def forward(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """y of one call without gradients, under allocations filled with `pattern`; `times` calls are compared by bits.

    With `operators` what operators make has margins as well; with `rows` an MLP is called with so many rows at a time;
    with `unnamed` nobody but the call holds its operands, which are views of tensors that live on.
    Facts: which operands changed, or something `beside` them, elements written before and behind an allocation, y's
    strides, whether all calls agree, and whether y is an "inference" tensor.
    """
    leaves = run.operands(given, options)
    pattern = options.get("pattern", "nan")
    bound = run.target.bind(leaves)
    before = _Kept(bound.leaves)
    beside = _Beside(run, leaves, options)
    watching = guard.watch(pattern, operators=options.get("operators", False))
    with in_mode(bound, options.get("mode")), watching as watched:
        guard.spoil(leaves[0], pattern)
        if "rows" in options:
            y = plain(_in_parts(bound, options["rows"]))
        else:
            y = plain(_unnamed(bound) if options.get("unnamed") else bound())
        run.synchronize()
        agree = all(same_bits(y, plain(bound())) for _ in range(options.get("times", 1) - 1))
        run.synchronize()
    facts = {
        "changed": before.changed(run),
        "beside": beside.names(),
        "strides": list(y.stride()),
        "agree": agree,
        "inference": y.is_inference(),
        "tf32": _tf32(),
        **watched.overwritten(),
    }
    return {"y": y}, facts


def _unnamed(bound: Bound) -> Tensor:
    """A call whose operands have no other reference, as in f(h[..., :n], h[..., n:]): a list of them would be one."""
    function, given = bound.function, bound.arguments
    if len(given) == 1:
        return function(given[0][...])
    if len(given) == 2:
        return function(given[0][...], given[1][...])
    return function(given[0][...], given[1][...], given[2][...], given[3][...])


def _in_parts(bound: Bound, rows: int) -> Tensor:
    x, *weights = bound.arguments
    return torch.cat([plain(bound.function(part, *weights)) for part in torch.split(x, rows)])


def backward(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """y and the gradients of all operands for dy, where `default` is the default dtype, if it is given.

    Facts: "detached" where y has no gradient, "raised" (the exception's name and text) where the backward raises; which
    operands changed by the forward and by the backward (dy too), or something `beside` them, and by how much their
    versions rose, and which weights of a module are "frozen" when it is built.
    """
    leaves = run.operands(given, options, grad=True)
    bound = run.target.bind(leaves)
    before = _Kept(bound.leaves)
    dy = run.operand("dy", given, options)
    beside = _Beside(run, (*leaves, dy), options)
    watching = guard.watch(options.get("pattern", "nan"), operators=options.get("operators", False))
    with watching as watched, default_dtype(options.get("default")):
        y = plain(bound())
        run.synchronize()
        changed = before.changed(run)
        if not y.requires_grad:
            return {"y": y}, {"detached": True, "changed": changed}
        later = _Kept((*bound.leaves, dy))
        versions = [leaf._version for leaf in bound.leaves]
        try:
            grads = torch.autograd.grad(y, bound.leaves, dy, allow_unused=True)
        except Exception as error:  # a third-party backward may refuse by any exception
            # These say something of the machine, whichever pass they come from.
            if "CUDA error" in str(error) or isinstance(error, MEMORY) or emulation.is_limit(error):
                raise
            if own_errors.is_own(error):
                raise
            raised = [type(error).__name__, private.text(first_line(error))]
            return {"y": y}, {"raised": raised, "changed": changed, **watched.overwritten()}
        run.synchronize()
    names = OPERANDS[run.target.kind]
    facts = {
        "changed": changed,
        "frozen": list(bound.frozen),
        "beside": beside.names(),
        "changed_by_backward": [(*names, "dy")[index] for index in later.indices(run)],
        "version_raised": [leaf._version for leaf in bound.leaves] != versions,
        "missing": [name for name, grad in zip(names, grads, strict=True) if grad is None],
        **watched.overwritten(),
    }
    return {"y": y, **named(names, grads)}, facts


def partial(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """The gradients of some operands, `of`, where no other needs one: d:NAME.

    With `earlier` a call and its backward come before in which those needed gradients and no other. Facts: which
    operands were "changed", and "changed_by_backward".
    """
    names = OPERANDS[run.target.kind]
    leaves = dict(zip(names, run.operands(given, options), strict=True))
    for name in options["of"]:
        leaves[name].requires_grad_()
    bound = run.target.bind(tuple(leaves.values()))
    before = _Kept(bound.leaves)
    dy = guard.place(given["dy"], run.device)
    grads: tuple[Tensor | None, ...] = ()
    changed: list[str] = []
    with guard.watch("nan"):
        for needed in filter(None, (options.get("earlier"), options["of"])):
            before.restore()  # what a backward wrote over operands is for another check to say
            for name, leaf in zip(names, bound.leaves, strict=True):  # a module's weights are frozen by themselves
                leaf.requires_grad_(name in needed)
            wanted = tuple(dict(zip(names, bound.leaves, strict=True))[name] for name in needed)
            y = bound()
            changed = changed or before.changed(run)
            grads = torch.autograd.grad(y, wanted, dy, allow_unused=True)
        run.synchronize()
    return named(tuple(options["of"]), grads), {"changed": changed, "changed_by_backward": before.changed(run)}


def apart(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """A call, `others` on what `other:NAME` holds, then a backward of the first two: d:NAME, e:NAME.

    after:NAME are the first call's gradients once more, after the second one's backward. Facts: whether the first
    result "stayed".
    """
    names = OPERANDS[run.target.kind]
    bound = run.target.bind(run.operands(given, options, grad=True))
    count = len(bound.arguments)
    others = run.operands({name: given.get(f"other:{name}", given[name]) for name in names}, options, grad=True)
    with guard.watch("nan"):
        first = plain(bound())
        before = first.detach().clone()
        held = [plain(bound.function(*others[:count])) for _ in range(options["others"])]
        run.synchronize()
        stayed, second = same_bits(first.detach(), before), held[0]
        grads = torch.autograd.grad(first, bound.leaves, guard.place(given["dy"], run.device))
        kept = {name: tensor.clone() for name, tensor in named(names, grads).items()}
        leaves = (*others[:count], *bound.leaves[count:])
        later = torch.autograd.grad(second, leaves, guard.place(given["other:dy"], run.device))
        run.synchronize()
    return {**kept, **named(names, later, "e"), **named(names, grads, "after")}, {"stayed": stayed}


def second(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """The gradients of two backwards through one graph: d:NAME and e:NAME."""
    bound = run.target.bind(run.operands(given, options, grad=True))
    dy = given["dy"].to(run.device)
    names = OPERANDS[run.target.kind]
    with guard.watch("nan"):
        y = bound()
        first = torch.autograd.grad(y, bound.leaves, dy.clone(), retain_graph=True, allow_unused=True)
        kept = {name: tensor.clone() for name, tensor in named(names, first).items()}
        try:
            again = torch.autograd.grad(y, bound.leaves, dy.clone(), allow_unused=True)
        except Exception as error:  # a loud refusal is what is hoped for
            if own_errors.is_own(error):
                raise
            return kept, {"refused": f"{type(error).__name__}: {error}"}
        run.synchronize()
    return {**kept, **named(names, again, "e")}, {}


def double(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """Gradients for all operands and dy of Σ(w:NAME·d:NAME) of all operands + Σ(w:FIRST·FIRST): h:NAME."""
    bound = run.target.bind(run.operands(given, options, grad=True))
    dy = given["dy"].to(run.device).requires_grad_()
    names = OPERANDS[run.target.kind]
    weights = [given[f"w:{name}"].to(run.device) for name in names]
    try:
        firsts = torch.autograd.grad(bound(), bound.leaves, dy, create_graph=True, allow_unused=True)
        if any(each is None for each in firsts):
            return {}, {"refused": "a gradient is missing"}
        total = (weights[0] * bound.leaves[0]).sum()
        for weight, each in zip(weights, firsts, strict=True):
            total = total + (weight * each).sum()
        # What is @once_differentiable raises here; `grad` follows no path without its inputs, and loses terms.
        torch.autograd.backward(total, retain_graph=True)
        grads = torch.autograd.grad(total, (*bound.leaves, dy), allow_unused=True)
    except Exception as error:  # a loud refusal is what is hoped for
        if own_errors.is_own(error):
            raise
        return {}, {"refused": f"{type(error).__name__}: {error}"}
    run.synchronize()
    return named((*names, "dy"), grads, "h"), {}


def reuse(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """y of a first call (`before`), of one on `other:NAME` (`second`), and of those where one operand is `almost:NAME`.

    Facts: `at`, the number of the later call, of `others`, that changed the first result; 0 where none did.
    """
    names = OPERANDS[run.target.kind]
    leaves = run.operands(given, options)
    others = run.operands({name: given[f"other:{name}"] for name in names}, options)
    bound = run.target.bind(leaves)
    function = bound.function
    with in_mode(bound, options.get("mode")), guard.watch("nan"):
        first = plain(function(*bound.arguments))
        run.synchronize()
        before = first.clone()
        results, at = {"before": before}, 0
        # A result is not freed before the last call, or its memory would be that of the next.
        held = []
        for number in range(1, options["others"] + 1):
            held.append(plain(function(*others[: len(bound.arguments)])))
            run.synchronize()
            if number == 1:
                results["second"] = held[0].clone()
            if not at and not same_bits(first, before):
                at = number
        for index, name in enumerate(names[: len(bound.arguments)]):
            if f"almost:{name}" not in given:
                continue
            almost = guard.place(given[f"almost:{name}"], run.device)
            held.append(plain(function(*bound.arguments)))
            arguments = (*bound.arguments[:index], almost, *bound.arguments[index + 1 :])
            results[f"almost:{name}"] = plain(function(*arguments)).clone()
        run.synchronize()
    return results, {"at": at}


def aliased(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """y and d:gate where one tensor is both operands of an act·mul."""
    x = guard.place(given["gate"], run.device).requires_grad_(options["grad"])
    with guard.watch("nan"):
        y = plain(run.target.bind((x, x))())
        results = {"y": y.detach().clone()}
        if y.requires_grad:
            (grad,) = torch.autograd.grad(y, (x,), guard.place(given["dy"], run.device))
            results["d:gate"] = grad
        run.synchronize()
    return results, {}


PROBES: Final[dict[str, Probe]] = {
    "forward": forward,
    "backward": backward,
    "partial": partial,
    "apart": apart,
    "second": second,
    "double": double,
    "reuse": reuse,
    "aliased": aliased,
}


class _Kept:
    """Copies of tensors, which reveal a change of values whatever the version counters are."""

    def __init__(self, tensors: tuple[Tensor, ...]) -> None:
        self._tensors = tensors
        self._copies = [tensor.detach().clone() for tensor in tensors]

    def indices(self, run: Run) -> list[int]:
        """Which tensors changed."""
        run.synchronize()
        pairs = zip(self._tensors, self._copies, strict=True)
        return [index for index, (tensor, copy) in enumerate(pairs) if not same_bits(tensor, copy)]

    def restore(self) -> None:
        """Give them the values that they had, in their memory."""
        for tensor, copy in zip(self._tensors, self._copies, strict=True):
            tensor.data.copy_(copy)

    def changed(self, run: Run) -> list[str]:
        """The names of the operands that changed."""
        return [OPERANDS[run.target.kind][index] for index in self.indices(run)]


class _Beside:
    """The memory beside operands and dy, where a call lays them out in some way or poisons what is around them."""

    def __init__(self, run: Run, tensors: tuple[Tensor, ...], options: Facts) -> None:
        self._run = run
        self._names = (*OPERANDS[run.target.kind], "dy")
        is_asked = bool({"around", "layouts", "packed", "buffer"} & options.keys())
        self._kept = guard.Surroundings(tensors if is_asked else ())

    def names(self) -> list[str]:
        """Those beside which something was written."""
        self._run.synchronize()
        return [self._names[index] for index in self._kept.changed()]


def _tf32() -> bool:
    return torch.get_float32_matmul_precision() != "highest" or bool(torch.backends.cuda.matmul.allow_tf32)


def bind_once(run: Run, given: Tensors) -> Bound:
    """The target with its operands, for a probe that calls it many times."""
    return run.target.bind(run.operands(given, {}))
