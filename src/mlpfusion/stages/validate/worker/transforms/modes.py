"""The worker's probes of calls under autocast, checkpointing, hooks of saved tensors and vmap."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from mlpfusion.stages.validate import own_errors
from mlpfusion.stages.validate.worker import guard
from mlpfusion.stages.validate.worker.results import named, plain
from mlpfusion.stages.validate.worker.targets.loader import OPERANDS
from mlpfusion.stages.validate.worker.transforms.alone import Operands, own

if TYPE_CHECKING:
    from torch import Tensor

    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.worker.probes import Probe, Run


def autocast(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """y under autocast and the gradients of a backward outside it; p:y under no_grad, and i:y in inference mode.

    Facts: the operands that these calls "changed", by the names of their results, and whether p:y is an "inference"
    tensor.
    """
    dtypes: list[str] = options["dtypes"]
    names = OPERANDS[run.target.kind]
    cast = {name: given[name].to(getattr(torch, dtype)) for name, dtype in zip(names, dtypes, strict=True)}
    bound = run.target.bind(run.operands(cast, options, grad=options["grad"]))
    operands, to = Operands(run, bound), getattr(torch, options["to"])
    with torch.autocast(run.device.type, dtype=to), guard.watch("nan"):
        y = plain(bound())
    results, changed = {"y": y}, {"y": operands.changed()}
    if y.requires_grad:
        grads = torch.autograd.grad(y, bound.leaves, given["dy"].to(run.device, y.dtype), allow_unused=True)
        results |= own(named(names, grads))
    operands.changed()  # what a backward writes is for another check to say
    for name in ("p:y", "i:y"):
        mode = torch.inference_mode() if name == "i:y" else torch.no_grad()
        with mode, torch.autocast(run.device.type, dtype=to), guard.watch("nan"):
            results[name] = plain(bound())
        changed[name] = operands.changed()
    return results, {"changed": changed, "inference": results["p:y"].is_inference()}


def evaluated(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """y of a module in eval mode, and its gradients: d:NAME of all operands, and e:x where x alone needs one.

    Those that are missing are left out. Facts: "skipped" where the target is no module.
    """
    names = OPERANDS[run.target.kind]
    bound = run.target.bind(run.operands(given, options, grad=True))
    if not isinstance(bound.module, nn.Module):
        return {}, {"skipped": True}
    results: Tensors = {}
    was_training, dy = bound.module.training, guard.place(given["dy"], run.device)
    bound.module.eval()
    try:
        with guard.watch("nan"):
            for prefix, count in (("d", len(names)), ("e", 1)):
                for place, leaf in enumerate(bound.leaves):
                    leaf.requires_grad_(place < count)
                y = results.setdefault("y", plain(bound()))
                y = y if prefix == "d" else plain(bound())
                if y.requires_grad:
                    grads = torch.autograd.grad(y, bound.leaves[:count], dy, allow_unused=True)
                    results |= named(names[:count], grads, prefix)
    finally:
        bound.module.train(was_training)
    run.synchronize()
    return results, {}


def checkpointed(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """Gradients without (d:) and with checkpointing, not reentrant (e:) and reentrant (f:).

    Facts: the operands that the forwards "changed", by those letters.
    """
    names = OPERANDS[run.target.kind]
    results: Tensors = {}
    changed: Facts = {}
    for prefix, reentrant in (("d", None), ("e", False), ("f", True)):
        bound = run.target.bind(run.operands(given, options, grad=True))
        operands, dy = Operands(run, bound), given["dy"].to(run.device)
        with guard.watch("nan"):
            if reentrant is None:
                y = bound()
            else:
                y = checkpoint(bound.function, *bound.arguments, use_reentrant=reentrant)
            changed[prefix] = operands.changed()
            torch.autograd.backward(y, dy)
        grads = tuple(leaf.grad for leaf in bound.leaves)
        results |= {name: tensor.clone() for name, tensor in named(names, grads, prefix).items()}
    run.synchronize()
    return results, {"changed": changed}


def offloaded(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """Gradients (d:) and those where what is saved comes back dense, in other memory, as from another device (e:).

    Facts: why the second is "refused", if it is.
    """
    names = OPERANDS[run.target.kind]
    results: Tensors = {}
    for prefix in ("d", "e"):
        bound = run.target.bind(run.operands(given, options, grad=True))
        dy = given["dy"].to(run.device)
        hooks = torch.autograd.graph.saved_tensors_hooks(moved, back) if prefix == "e" else contextlib.nullcontext()
        with guard.watch("nan"):
            try:
                with hooks:
                    y = bound()
                grads = torch.autograd.grad(y, bound.leaves, dy, allow_unused=True)
            except Exception as error:  # a loud refusal
                if prefix == "d" or own_errors.is_own(error):
                    raise
                return results, {"refused": f"{type(error).__name__}: {error}"}
        results |= {name: tensor.clone() for name, tensor in named(names, grads, prefix).items()}
    run.synchronize()
    return results, {}


def moved(saved: Tensor) -> Tensor:
    """What is saved for a backward, dense and in other memory."""
    return saved.detach().clone(memory_format=torch.contiguous_format)


def back(kept: Tensor) -> Tensor:
    """The same, as it was kept."""
    return kept


def vmapped(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """y and, with `grad`, d:NAME of torch.vmap(target); `over` has the dimension of each operand that is mapped over.

    The result has that of the first operand that is; p:y is that of a call under no_grad. No memory is watched: what is
    allocated within has dimensions that PyTorch hides. Facts: the operands that the calls "changed", by the names of
    their results.
    """
    names = OPERANDS[run.target.kind]
    bound = run.target.bind(run.operands(given, options, grad=options["grad"]))
    over = tuple(options["over"].get(name) for name in names[: len(bound.arguments)])
    out = next(axis for axis in over if axis is not None)
    mapped, operands = torch.vmap(bound.function, in_dims=over, out_dims=out), Operands(run, bound)
    y = plain(mapped(*bound.arguments))
    results, changed = {"y": y}, {"y": operands.changed()}
    if y.requires_grad:
        grads = torch.autograd.grad(y, bound.leaves, given["dy"].to(run.device), allow_unused=True)
        results |= own(named(names, grads))
    operands.changed()  # what a backward writes is for another check to say
    with torch.no_grad():
        results["p:y"] = plain(mapped(*bound.arguments))
    return results, {"changed": changed | {"p:y": operands.changed()}}


MODE_PROBES: Final[dict[str, Probe]] = {
    "autocast": autocast,
    "evaluated": evaluated,
    "checkpointed": checkpointed,
    "offloaded": offloaded,
    "vmapped": vmapped,
}
