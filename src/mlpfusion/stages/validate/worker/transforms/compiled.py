"""The worker's probes of calls within torch.compile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import torch

from mlpfusion.stages.validate.worker.results import named
from mlpfusion.stages.validate.worker.targets.loader import OPERANDS
from mlpfusion.stages.validate.worker.transforms.alone import Operands, own

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.worker.probes import Probe, Run


def compiled(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """y and gradients of the target inside torch.compile(fullgraph=True), for two shapes one after the other.

    y, d:NAME and then o:y, o:NAME for what `other:NAME` holds, if it holds something; p:y and q:y are the two y without
    gradients. Facts: which numbers passed to a Triton kernel become float64 under Inductor, and the operands that the
    calls on the first shape "changed", by the names of their results.
    """
    torch._dynamo.reset()
    names = OPERANDS[run.target.kind]
    bound = run.target.bind(run.operands(given, options, grad=options["grad"]))
    function = torch.compile(bound.function, fullgraph=True, backend=options["backend"])
    operands = Operands(run, bound)
    y, code = _with_code(function, bound.arguments, options["backend"])
    results, changed = {"y": y}, {"y": operands.changed()}
    if y.requires_grad:
        grads = torch.autograd.grad(y, bound.leaves, given["dy"].to(run.device), allow_unused=True)
        results |= own(named(names, grads))
    operands.changed()  # what a backward writes is for another check to say
    with torch.no_grad():
        results["p:y"] = function(*bound.arguments)
    changed["p:y"] = operands.changed()
    if "other:dy" in given:
        others = {name: given.get(f"other:{name}", given[name]) for name in names}
        moved = run.operands(others, options, grad=options["grad"])
        count = len(bound.arguments)
        other = results["o:y"] = function(*moved[:count])
        if other.requires_grad:
            leaves = (*moved[:count], *bound.leaves[count:])
            grads = torch.autograd.grad(other, leaves, given["other:dy"].to(run.device), allow_unused=True)
            results |= named(names, grads, "o")
        with torch.no_grad():
            results["q:y"] = function(*moved[:count])
    run.synchronize()
    return results, {"fp64": fp64_numbers(code), "changed": changed}


def _with_code(function: Callable[..., Any], arguments: tuple[Any, ...], backend: str) -> tuple[Any, str]:
    """The result of a first call and, from Inductor, the code that was generated for it."""
    if backend != "inductor":
        return function(*arguments), ""
    from torch._inductor import config
    from torch._inductor.utils import run_and_get_code

    with config.patch(force_disable_caches=True):  # a cache has the code without telling
        result, sources = run_and_get_code(function, *arguments)
    return result, "\n".join(sources)


def fp64_numbers(code: str) -> list[str]:
    """The arguments of type fp64 in the signatures of Triton kernels in Inductor's generated code."""
    signatures = re.findall(r"'signature': \{([^}]*)\}", code)
    return sorted({name for one in signatures for name in re.findall(r"'(\w+)': 'fp64'", one)})


def exact(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """For each row of y whether an element equals the row's largest, all of it compiled as one: y [rows] of 0 and 1."""
    torch._dynamo.reset()
    bound = run.target.bind(run.operands(given, options))

    def largest(*arguments: Any) -> Tensor:
        y = bound.function(*arguments)
        return (y == y.amax(-1, keepdim=True)).any(-1)

    with torch.no_grad():
        found = torch.compile(largest, fullgraph=True, backend=options["backend"])(*bound.arguments)
    run.synchronize()
    return {"y": found.float()}, {}


COMPILED_PROBES: Final[dict[str, Probe]] = {"compiled": compiled, "exact": exact}
