"""The worker's probes of what changes between calls: operands, weights, and gradients that add up."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from mlpfusion.errors import first_line
from mlpfusion.stages.validate import own_errors
from mlpfusion.stages.validate.worker import guard
from mlpfusion.stages.validate.worker.probes import in_mode
from mlpfusion.stages.validate.worker.results import plain, same_bits
from mlpfusion.stages.validate.worker.targets.loader import OPERANDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.worker.probes import Probe, Run
    from mlpfusion.stages.validate.worker.targets.loader import Bound

    Update = Callable[[nn.Module | None, list[Tensor], list[Tensor]], None]


def accumulated(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """Gradients by autograd.grad (d:NAME), and `.grad` after one (e:NAME) and two (f:NAME) calls of backward().

    Facts: the operands whose `.grad` was "written" by autograd.grad, which returns gradients instead.
    """
    names = OPERANDS[run.target.kind]
    bound = run.target.bind(run.operands(given, options, grad=True))
    dy = guard.place(given["dy"], run.device)
    passed = bound.leaves[: len(bound.arguments)]
    copies = [leaf.detach().clone() for leaf in passed]

    def again() -> Tensor:
        """A call on the same values, whatever a backward wrote over them, which is for another check to say."""
        for leaf, value in zip(passed, copies, strict=True):
            leaf.data = value.clone()
        return bound()

    with guard.watch("nan"):
        first = torch.autograd.grad(bound(), bound.leaves, dy.clone(), allow_unused=True)
        results = _gradients("d", names, first)
        written = [name for name, leaf in zip(names, bound.leaves, strict=True) if leaf.grad is not None]
        for leaf in bound.leaves:
            leaf.grad = None
        for prefix in ("e", "f"):
            torch.autograd.backward(again(), dy.clone())
            results |= _gradients(prefix, names, tuple(leaf.grad for leaf in bound.leaves))
    run.synchronize()
    return results, {"written": written}


def _gradients(prefix: str, names: tuple[str, ...], grads: tuple[Tensor | None, ...]) -> Tensors:
    pairs = zip(names, grads, strict=True)
    return {f"{prefix}:{name}": grad.detach().clone() for name, grad in pairs if grad is not None}


def held(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """Calls, `count` of them with operands of their own as the layers of a model, and all backwards in reverse order.

    Facts: the operands of which a gradient was "overwritten" by a later backward.
    """
    names = OPERANDS[run.target.kind]
    dy = guard.place(given["dy"], run.device)
    layers = [run.target.bind(run.operands(given, options, grad=True)) for _ in range(options["count"])]
    with guard.watch("nan"):
        results = [plain(bound()) for bound in layers]
        made = []
        for number, (bound, y) in enumerate(zip(reversed(layers), reversed(results), strict=True), 1):
            grads = torch.autograd.grad(y, bound.leaves, dy * number, allow_unused=True)  # to each its own
            run.synchronize()
            made += [(name, grad, grad.clone()) for name, grad in zip(names, grads, strict=True) if grad is not None]
    changed = {name for name, grad, before in made if not same_bits(grad, before)}
    return {}, {"overwritten": [name for name in names if name in changed]}


def modified(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """d:NAME where `which`, an operand or y, is changed in place between forward and backward; or it is "refused"."""
    names = OPERANDS[run.target.kind]
    bound = run.target.bind(run.operands(given, options, grad=True))
    dy = guard.place(given["dy"], run.device)
    with guard.watch("nan"):
        y = bound()
        which = y if options["which"] == "y" else bound.leaves[names.index(options["which"])]
        try:
            with torch.no_grad():
                which.mul_(-1.5)
            grads = torch.autograd.grad(y, bound.leaves, dy, allow_unused=True)
        except Exception as error:  # a loud refusal is what autograd itself gives
            if own_errors.is_own(error):
                raise
            return {}, {"refused": f"{type(error).__name__}: {error}"}
    run.synchronize()
    return _gradients("d", names, grads), {}


def updated(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """y after the weights (of an act·mul the operands) were updated in one `way`, as `other:NAME` says.

    It was called before in each way in which it is called then. y is without gradients, t:y with, a:y under autocast
    without, e:y in eval mode and f:y one row of that; with `in_eval` it is in eval mode from before the first call on,
    and that is s:y alone. With `alone`, the name of one of them, the others stay; with `brief` there is y alone, after
    one call before. w:NAME are the operands with whose values it should compute. Facts: "skipped" where the way is not
    one for this target, and whether y needs gradients under no_grad (`attached`); or alone what its calls have "saved",
    names of its state_dict() that come, go or have another shape, or why it is "uncopyable" after a call that trains,
    where it was not before; or the weights that state_dict() has "outdated" once they are updated.
    """
    bound = run.target.bind(run.operands(given, options, grad=True))
    names, first = OPERANDS[run.target.kind], 0 if run.target.kind == "act_mul" else 1
    way, in_eval, alone = options["way"], options["in_eval"], options.get("alone")
    how = {"in_eval": in_eval, "brief": options.get("brief", False)}
    update = UPDATES[way]
    if bound.module is None and (update in OF_MODULES or in_eval):
        return {}, {"skipped": True}
    if update is _layers_replaced and not _is_made_of_layers(bound):
        return {}, {"skipped": True}
    if in_eval and bound.module is not None:
        bound.module.eval()
    uncalled = _copied(bound) if way in {COPIED, BUILT_EMPTY} else None
    if uncalled is None and way in {COPIED, BUILT_EMPTY}:
        return {}, {"skipped": True}
    state = _state(bound)
    if not how["brief"]:
        _called(run, bound, **how)
    left = _left(bound, state, trains=way == COPIED)
    if left:
        return {}, left
    with in_mode(bound, None):
        bound()  # the last call before is as the first after: a target may keep what it was called with last
    old = list(bound.leaves[first:])
    new = [guard.place(given[f"other:{name}"], run.device) for name in names[first:]]
    if way == COPIED:
        then = [leaf.detach().clone() for leaf in bound.leaves]
        made = _copied(bound)
        if made is None:
            return {}, {"skipped": True}
        update(bound.module, old, new)
        bound = made
    else:
        _update(update, bound.module, old, new, None if alone is None else names.index(alone) - first)
        if bound.module is None:
            leaves = (*bound.leaves[:first], *old)
            bound = bound._replace(arguments=leaves[: len(bound.arguments)], leaves=leaves)
        then = [leaf.detach().clone() for leaf in (*bound.leaves[:first], *old)]
    outdated = _outdated(bound)
    if outdated:
        return {}, {"outdated": outdated}
    if way == BUILT_EMPTY and uncalled is not None:
        bound = _emptied(uncalled, bound, run)
    results, facts = _called(run, bound, **how)
    run.synchronize()
    return results | {f"w:{name}": leaf for name, leaf in zip(names, then, strict=True)}, facts


def _update(update: Update, module: nn.Module | None, old: list[Tensor], new: list[Tensor], only: int | None) -> None:
    """Give the weights in `old` new values, or that at one place alone; `old` has those of the module afterwards."""
    part = slice(only, None if only is None else only + 1)
    changed = old[part]
    update(module, changed, new[part])
    old[part] = changed


def _copied(bound: Bound) -> Bound | None:
    """The target by a deepcopy of its module; None where another function calls that, or it can't be copied."""
    if bound.function is not bound.module or bound.module is None:
        return None
    try:
        made = copy.deepcopy(bound.module)
    except Exception:  # a loud refusal
        return None
    return bound._replace(function=made, module=made)


def _left(bound: Bound, state: dict[str, tuple[int, ...]], *, trains: bool) -> Facts:
    """What calls have left in a module by which it can't be saved and loaded or, with `trains`, copied any more."""
    now = _state(bound)
    saved = sorted(name for name in state.keys() | now.keys() if state.get(name) != now.get(name))
    if saved:
        return {"saved": saved}
    if trains:
        bound()  # a deepcopy of what holds a graph raises
        try:
            copy.deepcopy(bound.module)
        except Exception as error:
            return {"uncopyable": f"{type(error).__name__}: {first_line(error)}"}
    return {}


def _state(bound: Bound) -> dict[str, tuple[int, ...]]:
    """The names and shapes of what a checkpoint of it has; none where another function calls the module."""
    if bound.function is not bound.module or bound.module is None:
        return {}
    return {name: tuple(getattr(value, "shape", ())) for name, value in bound.module.state_dict().items()}


def _outdated(bound: Bound) -> list[str]:
    """The parameters whose values in state_dict() are not those that they have."""
    if bound.function is not bound.module or bound.module is None:
        return []
    own, saved = dict(bound.module.named_parameters()), bound.module.state_dict()
    pairs = ((name, each, saved.get(name)) for name, each in own.items())
    return [name for name, each, value in pairs if isinstance(value, Tensor) and not _is_alike(each.detach(), value)]


def _is_alike(one: Tensor, other: Tensor) -> bool:
    return one.shape != other.shape or same_bits(one, other.to(one.device, one.dtype))


def _emptied(made: Bound, bound: Bound, run: Run) -> Bound:
    """A module that was never called, as one is that is built on the meta device: it has what the checkpoint has.

    The rest of its parameters and buffers is what is in the memory that they get.
    """
    module: Any = made.module
    module.to("meta").to_empty(device=run.device)
    with torch.no_grad():
        for each in (*module.parameters(), *module.buffers()):
            each.fill_(float("nan") if each.is_floating_point() else 1)
    module.load_state_dict(bound.module.state_dict() if bound.module is not None else {})
    return made


def _called(run: Run, bound: Bound, *, in_eval: bool, brief: bool = False) -> tuple[Tensors, Facts]:
    """The results of each way to call it, by the names that `updated` gives them, and whether one is attached."""
    with in_mode(bound, None):
        bound()
        y = plain(bound())
    facts = {"attached": y.requires_grad}
    if in_eval or brief:
        return {"s:y" if in_eval else "y": y.detach().clone()}, facts
    having = bound.arguments if len(bound.arguments) == 2 else bound.arguments[:1]  # which operands have rows
    rows = [each.reshape(-1, each.shape[-1])[:1] for each in having]
    with in_mode(bound, "eval"):
        evaluated, one = plain(bound()), plain(bound.function(*rows, *bound.arguments[len(rows) :]))
    results = {"y": y, "e:y": evaluated, "f:y": one, "t:y": plain(bound())}
    # Not in bfloat16, which Triton's interpreter multiplies wrongly.
    with in_mode(bound, None), torch.autocast(run.device.type, dtype=torch.float16):
        try:
            results["a:y"] = plain(bound())
        except Exception as error:  # a refusal, which is for another check to say
            if "CUDA error" in str(error):
                raise
    return {name: each.detach().clone() for name, each in results.items()}, facts


def _in_place(module: nn.Module | None, old: list[Tensor], new: list[Tensor]) -> None:
    del module
    with torch.no_grad():
        for leaf, value in zip(old, new, strict=True):
            leaf.copy_(value)


def _loaded(module: nn.Module | None, old: list[Tensor], new: list[Tensor]) -> None:
    if module is not None:
        state = module.state_dict()
        pairs = list(zip(old, new, strict=True))
        for name, parameter in module.named_parameters():
            for leaf, value in pairs:
                if leaf is parameter:
                    state[name] = value
        module.load_state_dict(state)


def _assigned(module: nn.Module | None, old: list[Tensor], new: list[Tensor]) -> None:
    """load_state_dict(assign=True), by which the module has other Parameters, in other memory."""
    if module is None:
        return
    state, names = module.state_dict(), {}
    for name, parameter in module.named_parameters():
        for place, leaf in enumerate(old):
            if leaf is parameter:
                names[place] = name
                state[name] = nn.Parameter(new[place].clone(), requires_grad=leaf.requires_grad)
    module.load_state_dict(state, assign=True)
    made = dict(module.named_parameters())
    for place, name in names.items():
        old[place] = made[name]


def _data_replaced(module: nn.Module | None, old: list[Tensor], new: list[Tensor]) -> None:
    del module
    for leaf, value in zip(old, new, strict=True):
        leaf.data = value.clone()


def _stepped(module: nn.Module | None, old: list[Tensor], new: list[Tensor]) -> None:
    del module
    for leaf, value in zip(old, new, strict=True):
        leaf.grad = leaf.detach() - value
    torch.optim.SGD(old, lr=1.0).step()


def _at_old_addresses(module: nn.Module | None, old: list[Tensor], new: list[Tensor]) -> None:
    """New tensors in the memory of the old ones, as an allocator gives it again."""
    for place, (leaf, value) in enumerate(zip(list(old), new, strict=True)):
        leaf.data.copy_(value)
        memory = torch.empty(0, dtype=leaf.dtype, device=leaf.device)
        memory.set_(leaf.untyped_storage(), leaf.storage_offset(), leaf.shape, leaf.stride())
        made: Any = nn.Parameter(memory, requires_grad=leaf.requires_grad) if module else memory
        old[place] = made if module else made.requires_grad_(leaf.requires_grad)
        for owner in module.modules() if module else ():
            for name, parameter in list(owner.named_parameters(recurse=False)):
                if parameter is leaf:
                    setattr(owner, name, made)


def _layers_replaced(module: nn.Module | None, old: list[Tensor], new: list[Tensor]) -> None:
    """Another nn.Linear in the place of each, as a quantiser or an adapter puts one of its own there."""
    empty: Any = nn.utils.skip_init  # nn.Linear() would draw weights
    for place, (leaf, value) in enumerate(zip(list(old), new, strict=True)):
        for owner in list(module.modules()) if module else ():
            for name, layer in list(owner.named_children()):
                if isinstance(layer, nn.Linear) and layer.weight is leaf:
                    made = empty(nn.Linear, *reversed(leaf.shape), bias=False, device=leaf.device)
                    made.weight = nn.Parameter(value.clone(), requires_grad=leaf.requires_grad)
                    setattr(owner, name, made.train(layer.training))
                    old[place] = made.weight


def _is_made_of_layers(bound: Bound) -> bool:
    """Whether it is a module with its weights in layers; a function that is bound to some may hold these."""
    if bound.module is None or bound.function is not bound.module:
        return False
    own = [layer.weight for layer in bound.module.modules() if isinstance(layer, nn.Linear)]
    return all(any(leaf is weight for weight in own) for leaf in bound.leaves[1:])


BUILT_EMPTY: Final = "to_empty() from the meta device and load_state_dict"
COPIED: Final = "a deepcopy and an update of the original"
UPDATES: Final[dict[str, Update]] = {
    "an update in place": _in_place,
    "load_state_dict": _loaded,
    "load_state_dict(assign=True)": _assigned,
    COPIED: _in_place,
    "an optimiser step": _stepped,
    ".data = another tensor": _data_replaced,
    "new tensors at the old addresses": _at_old_addresses,
    "other layers in the places of its own": _layers_replaced,
    BUILT_EMPTY: _loaded,
}
OF_MODULES: Final = (
    _loaded,
    _assigned,
    _stepped,
    _data_replaced,
    _layers_replaced,
)  # functions get their operands in each call
PROBES: Final[dict[str, Probe]] = {"accumulated": accumulated, "held": held, "modified": modified, "updated": updated}
