"""Keeps the ledger of one call: every launch on every path, with the bytes that each touches."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from mlpfusion.traffic.recording import inductor_kernels, interpreter_launches, triton_launches
from mlpfusion.traffic.recording.generated_code import graphs_compiled
from mlpfusion.traffic.recording.ledger import Ledgers
from mlpfusion.traffic.recording.operators import Operators

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mlpfusion.records.traffic import Ledger
    from mlpfusion.reference import Case


def names(case: Case) -> dict[str, Tensor]:
    """The tensors that exist before a call: the input, the weights and, in training, the gradient of the output."""
    given = {"x": case.x, **dict(case.mlp.named_parameters())}
    return given if case.dy is None else {**given, "dy": case.dy}


def collect(call: Callable[[], object], named: Mapping[str, Tensor]) -> Ledger:
    """The ledger of a call that ran at least once before, from two calls in a row.

    Where the first of the two is captured into a CUDA graph, it is the ledger of the capture. `named` are the tensors
    that exist before the call. Compiled code stays compiled; nothing is recompiled.
    """
    warm = Ledgers(named)
    first = _watch(call, warm)
    if first.captured:
        return first
    second = _watch(call, Ledgers(named, warm))
    if _outline(first) != _outline(second):
        reason = f"two calls in a row differ: {len(first.launches)} launches, then {len(second.launches)}"
        return msgspec.structs.replace(second, faults=(*second.faults, reason))
    return second


def collect_first(call: Callable[[], object], named: Mapping[str, Tensor]) -> Ledger | None:
    """The ledger of the first call of all, if it is captured into a CUDA graph within it; else None."""
    found = _watch(call, Ledgers(named))
    return found if found.captured else None


def _outline(ledger: Ledger) -> list[tuple[str, int, int]]:
    return [(launch.op, len(launch.reads), len(launch.writes)) for launch in ledger.launches]


def _watch(call: Callable[[], object], ledgers: Ledgers) -> Ledger:
    compiled_before = graphs_compiled()
    with ExitStack() as watchers:
        for watched in (interpreter_launches.watched, inductor_kernels.watched, triton_launches.watched):
            watchers.enter_context(watched(ledgers))
        watchers.enter_context(Operators(ledgers))
        held = call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    ledgers.settle()
    results = [value for value in tree_leaves(held) if isinstance(value, Tensor)]
    ledgers.faults += _unwritten(ledgers, results)
    for index, result in enumerate(results):
        ledgers.name("result" if len(results) == 1 else f"result {index + 1}", result)
    if graphs_compiled() != compiled_before:
        ledgers.faults.append("torch.compile recompiled while the ledger was recorded")
    return ledgers.finished()


def _unwritten(ledgers: Ledgers, results: Sequence[Tensor]) -> list[str]:
    """A fault if a result holds what no launch wrote: then something that cannot be watched did."""
    written = {access.buffer for launch in ledgers.launches for access in launch.writes}
    for result in results:
        try:
            found = ledgers.access(result) if ledgers.is_here(result) else None
        except (ValueError, RuntimeError, NotImplementedError):  # without plain memory; its launches say so
            continue
        if found is not None and found.buffer not in written and not ledgers.is_named(found.buffer):
            return ["no observed launch wrote the result"]
    return []
