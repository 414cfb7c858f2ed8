"""Which sentence belongs to which planted fault: one row each, by the check that is meant for the fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pytest
from support import checked, rings

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.stages.validate.judge.examine import Bench


class Fault(NamedTuple):
    """A body of a target, or a control that ships, with the check, dtype and words of its fault."""

    name: str
    check: str
    words: str
    body: str
    dtype: str = "float32"
    operands: str = "gate, up"
    status: str = "fail"


BACKWARD = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        return right(gate, up)

    @staticmethod
    {of_backward}
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        dgate = torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh")
        dup = dy * gelu(gate, approximate="tanh")
        return {grads}

return Own.apply(gate, up)
"""
WEIGHTS = """
class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *operands):
        ctx.save_for_backward(*operands)
        return right_mlp(*operands)

    @staticmethod
    def backward(ctx, dy):
        with torch.enable_grad():
            leaves = [each.detach().requires_grad_() for each in ctx.saved_tensors]
            dx, dwg, dwu, dwd = torch.autograd.grad(right_mlp(*leaves), leaves, dy)
        return dx, dwu, dwg, dwd

return Own.apply(x, wg, wu, wd)
"""
CACHED = """
if kept and kept[0].shape == gate.shape and kept[0].dtype == gate.dtype and gate.numel() > 16:
    return kept[0].clone()
y = right(gate, up)
kept[:] = [y.detach().clone()]
return y
"""
AFTER = """
kept.append(1)
return right(gate, up) * (2 if len(kept) > 2000 else 1)
"""
NEVER = "return torch.empty_like(gate)"
FLUSHED = """
y = right(gate, up)
return torch.where(y.abs() < torch.finfo(y.dtype).tiny, torch.zeros_like(y), y)
"""
FLUSHED_GATES = """
tiny = torch.finfo(gate.dtype).tiny
return right(torch.where(gate.abs() < tiny, torch.zeros_like(gate), gate), up)
"""
WIDTHS = """
y = right(gate, up).clone()
if y.dim() == 2 and y.shape[1] % 8 == 4:
    y[:, -4:] = 0
return y
"""


def own(grads: str, *, of_backward: str = "") -> str:
    return BACKWARD.format(of_backward=of_backward, grads=grads)


ONCE = own("dgate, dup", of_backward="@torch.autograd.function.once_differentiable")
FAULTS = [
    Fault("never written", "written", "none of the 257 elements of the result is written", NEVER),
    Fault("never written, seen by its place", "positions", "written: they are nan, as memory is at first", NEVER),
    Fault("never written, seen by its values", "function", "all are nan, as memory is that was never written", NEVER),
    Fault(
        "a part never written",
        "written",
        "of 257 elements of the result",
        "y = torch.empty_like(gate); n = y.numel() - 1; y.view(-1)[:n] = right(gate, up).reshape(-1)[:n]; return y",
    ),
    Fault("cached", "results-kept", "other operands give the earlier result again", CACHED),
    Fault(
        "cached, after many calls",
        "many-calls",
        "gives the result of other operands again",
        """
        kept.append(right(gate, up).detach())
        return kept[-2].clone() if len(kept) > 50 and kept[-2].shape == gate.shape else right(gate, up)
    """,
    ),
    Fault("wrong after 2000 calls", "many-calls", "gives another result than an earlier call on the same", AFTER),
    Fault("up + 1", "function", "every value is act(gate)·(up + 1)", "return right(gate, up + 1)"),
    Fault("up - 1", "function", "every value is act(gate)·(up - 1)", "return right(gate, up - 1)"),
    Fault("exchanged operands", "function", "gate and up are exchanged", "return right(up, gate)"),
    Fault("the other GELU", "function", "is the exact (erf) GELU, where", "return gelu(gate) * up"),
    Fault("the other GELU, in 16 bits", "function", "is the exact (erf) GELU", "return gelu(gate) * up", "bfloat16"),
    Fault("twice", "constants", "the factor 0.5 is missing", "return 2 * right(gate, up)"),
    Fault("flushed results", "function", "flushed: ", FLUSHED, "float16"),
    Fault("flushed results, in float32", "function", "all of results below the smallest normal", FLUSHED),
    Fault("flushed gates", "function", "subnormal numbers are flushed", FLUSHED_GATES, "float16"),
    Fault("widths", "elementwise", "it depends on the width: wrong with", WIDTHS),
    Fault("exchanged gradients", "backward", "d_gate and d_up are exchanged", own("dup, dgate")),
    Fault("exchanged gradients, in 16 bits", "backward", "d_gate and d_up are exchanged", own("dup, dgate"), "float16"),
    Fault(
        "exchanged weight gradients", "mlp-gradients", "dWg and dWu are exchanged", WEIGHTS, "float32", "x, wg, wu, wd"
    ),
    Fault(
        "the other slope",
        "backward",
        "it is the derivative of",
        own('torch.ops.aten.gelu_backward(dy * up, gate, approximate="none"), dup'),
    ),
    Fault("one gradient missing", "differentiable", "there is no gradient for up", own("dgate, None")),
    Fault("a backward that refuses a second", "double-backward", "refused", ONCE, status="pass"),
    Fault("an operand overwritten", "inputs-kept", "the forward overwrites up", "return right(gate, up.mul_(2)) / 2"),
]


@pytest.mark.parametrize("fault", rings.first_of_each(FAULTS, lambda fault: fault.check), ids=lambda fault: fault.name)
def test_a_planted_fault_gets_its_sentence(bench: Bench, tmp_path: Path, fault: Fault) -> None:
    verdict = checked.by(bench, tmp_path, fault.check, fault.body, fault.operands, dtypes=(fault.dtype,), quick=False)
    [found] = [check for check in verdict.checks if check.name == fault.check]
    assert fault.words in found.sentence
    assert found.status == fault.status


def test_every_fault_has_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
