"""The worker's probe of offsets that 32 bits do not hold: one block of operands, repeated until it is far enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor

from mlpfusion.stages.validate.worker.results import named, plain
from mlpfusion.stages.validate.worker.targets.loader import OPERANDS

if TYPE_CHECKING:
    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.worker.probes import Probe, Run

# Tensors of the size of gate at once, without and with gradients: operands, results, and what a target keeps.
AT_ONCE: Final = (5, 9)
CLOSE: Final = 8  # eps between the same elements in two places


def far(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """An act·mul of gate, up and dy [rows, N], repeated along the rows to more than `boundary` elements each.

    With `packed` gate and up are halves of one tensor. Results are the first block [rows, N] of y and, with `grad`, of
    d:NAME. Facts: `rows` of all; `needed` and `free` bytes, without results where these are too few; `off` has for each
    result how many elements differ from those of the first block that they repeat, and the first of them (None: none).
    """
    names = OPERANDS[run.target.kind]
    block = given["gate"]
    copies = options["boundary"] // block.numel() + 2
    needed = AT_ONCE[bool(options["grad"])] * copies * block.numel() * block.element_size()
    facts: Facts = {"rows": copies * block.shape[0], "needed": needed, "free": _free(run)}
    if facts["free"] is not None and needed > facts["free"]:
        return {}, facts
    blocks = [given[name].to(run.device) for name in names]
    if options.get("packed"):
        operands = torch.cat(blocks, dim=-1).repeat(copies, 1).chunk(2, dim=-1)
    else:
        operands = tuple(each.repeat(copies, 1) for each in blocks)
    bound = run.target.bind(tuple(each.requires_grad_(bool(options["grad"])) for each in operands))
    y = plain(bound())
    results = {"y": y.detach()}
    if y.requires_grad:
        dy = given["dy"].to(run.device).repeat(copies, 1)
        results |= named(names, torch.autograd.grad(y, bound.leaves, dy))
    run.synchronize()
    facts["off"] = {name: _off(value, block.shape[0]) for name, value in results.items()}
    return {name: value[: block.shape[0]].clone() for name, value in results.items()}, facts


def _free(run: Run) -> int | None:
    """The free bytes of a GPU."""
    if run.device.type != "cuda":
        return None
    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info(run.device)[0])


def _off(value: Tensor, rows: int) -> tuple[int, int | None]:
    count, first = 0, None
    block = value[:rows]
    allowed = CLOSE * torch.finfo(value.dtype).eps * block.abs()
    for start in range(rows, value.shape[0], rows):
        wrong = ~((value[start : start + rows] - block).abs() <= allowed)
        here = int(wrong.sum())
        if here and first is None:
            first = start * value.shape[1] + int(wrong.reshape(-1).nonzero()[0])
        count += here
    return count, first


FAR_PROBES: Final[dict[str, Probe]] = {"far": far}
