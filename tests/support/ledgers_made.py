"""Makes the ledger of a call on this machine, as a worker does, and what follows from it."""

from __future__ import annotations

import torch

from mlpfusion import backend, reference
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.traffic.recording.collect import collect, names
from mlpfusion.traffic.round_trips import flow

M, D, H, SIZE = 10, 16, 24, 4


def case(mode="inference", *, bias=False):
    spec = MLPSpec(hidden_size=D, intermediate_size=H, dtype="float32", bias=bias)
    return reference.make_case(Workload(spec=spec, batch=2, seq=M // 2, mode=mode), torch.device("cpu"), seed=0)


def of_backend(name, mode="inference", *, bias=False):
    """The ledger of a registered backend's call."""
    made = case(mode, bias=bias)
    return of_call(backend.load(name).bind(made.mlp), made)


def of_call(call, made):
    """The ledger of `call(x)`, after one call without."""
    step = reference.step(call, made)
    step()
    return collect(step, names(made))


def ops(ledger):
    return [launch.op.removeprefix("aten::") for launch in ledger.launches]


def trips(ledger):
    """Round-trips and the elements that they move."""
    found = flow(ledger)
    return len(found.intermediates), found.intermediate_bytes // SIZE


def elements(ledger):
    """Elements that all launches read and write."""
    return flow(ledger).derived_bytes / SIZE


def watch(call, **named):
    call()
    return collect(call, named)


def linears(mlp):
    return mlp.gate_proj.weight, mlp.up_proj.weight, mlp.down_proj.weight
