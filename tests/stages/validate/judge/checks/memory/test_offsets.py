"""The check of offsets that 32 bits do not hold, with a boundary that a CPU reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from support import checked
from support.runs_made import run_of

from mlpfusion.stages.validate.judge.checks.memory import offsets
from mlpfusion.stages.validate.worker import far_probes

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from mlpfusion.stages.validate.judge.examine import Bench

BOUNDARY = 2**13
BLOCK = (4, 64)


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> None:
    """A boundary of a few thousand elements."""
    monkeypatch.setattr(offsets, "BOUNDARY", BOUNDARY)
    monkeypatch.setattr(offsets, "BLOCK", BLOCK)


def found(bench: Bench, folder: Path, body: str, dtype: str = "bfloat16") -> tuple[str, str]:
    verdict = checked.by(bench, folder, "offsets", body, dtypes=(dtype,))
    [check] = [check for check in verdict.checks if check.name == "offsets"]
    return check.status, check.sentence


WRONG = {
    "the first element behind": (
        f"y = right(gate, up).clone(); y.view(-1)[{BOUNDARY}:{BOUNDARY + 1}] = 9; return y",
        f"1 of the result are others than the same operands give at the start, the first at {BOUNDARY}, behind 2^13",
    ),
    "all behind": (
        f"y = right(gate, up).clone(); y.view(-1)[{BOUNDARY}:] = 0; return y",
        f"the first at {BOUNDARY}, behind 2^13: is an offset computed in 32 bits?",
    ),
    "the last before": (
        f"y = right(gate, up).clone(); y.view(-1)[{BOUNDARY - 1}:{BOUNDARY}] = 9; return y",
        f"the first at {BOUNDARY - 1}, before 2^13",
    ),
    "the last element": (
        f"y = right(gate, up).clone(); y.view(-1)[-1:] += 9 * (y.numel() > {BOUNDARY}); return y",
        "1 of the result are others",
    ),
    "never written": (
        f"y = right(gate, up).clone(); y.view(-1)[{BOUNDARY}:] = float('nan'); return y",
        f"the first at {BOUNDARY}, behind 2^13",
    ),
    "the start": (
        f"y = right(gate, up); return y * (2 if y.numel() > {BOUNDARY} else 1)",
        "the result is wrong at the start",
    ),
    "a gradient": (
        f"""
        class Own(torch.autograd.Function):
            @staticmethod
            def forward(ctx, gate, up):
                ctx.save_for_backward(gate, up)
                return right(gate, up)

            @staticmethod
            def backward(ctx, dy):
                gate, up = ctx.saved_tensors
                dup = dy * gelu(gate, approximate="tanh")
                dup.view(-1)[{BOUNDARY}:] = 0
                return torch.ops.aten.gelu_backward(dy * up, gate, approximate="tanh"), dup

        return Own.apply(gate, up)
        """,
        f"of the gradient of up are others than the same operands give at the start, the first at {BOUNDARY}",
    ),
}


@pytest.mark.usefixtures("near")
@pytest.mark.parametrize("fault", WRONG)
def test_a_fault_on_either_side_of_the_boundary_is_named_by_its_place(bench: Bench, tmp_path: Path, fault: str) -> None:
    body, words = WRONG[fault]
    status, sentence = found(bench, tmp_path, body)
    assert status == "fail"
    assert words in sentence


@pytest.mark.usefixtures("near")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_what_is_right_everywhere_passes(bench: Bench, tmp_path: Path, dtype: str) -> None:
    assert found(bench, tmp_path, "return right(gate, up)", dtype) == (
        "pass",
        "right on either side of 2^13 elements and up to the last",
    )
    assert found(bench, tmp_path, "return right(gate, up).detach()", dtype)[1].endswith(
        "gradients were not judged there"
    )


@pytest.mark.usefixtures("near")
def test_a_refusal_is_told(bench: Bench, tmp_path: Path) -> None:
    body = f"""
    if gate.numel() > {BOUNDARY}:
        raise ValueError("too many")
    return right(gate, up)
    """
    assert found(bench, tmp_path, body) == ("reported", "refuses more than 2^13 elements: ValueError: too many")


def test_a_cpu_is_not_asked_for_gigabytes(bench: Bench, tmp_path: Path) -> None:
    status, sentence = found(bench, tmp_path, "return right(gate, up)")
    assert status == "not decidable here"
    assert sentence == "offsets past 2^31 need a GPU, with some 20 GB of free memory"


def test_where_the_memory_is_too_little_nothing_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_probes, "_free", lambda run: 10**6)

    def never(gate: Tensor, up: Tensor) -> Tensor:
        raise AssertionError(f"called with {gate.shape} and {up.shape}")

    given = {name: torch.ones(BLOCK, dtype=torch.bfloat16) for name in ("gate", "up", "dy")}
    for grad in (False, True):
        results, facts = far_probes.far(run_of(never), given, {"boundary": 2**31, "grad": grad})
        assert results == {}
        assert facts["needed"] > 2 * 2**31 * (9 if grad else 5)
        assert offsets.too_little(facts).sentence == (
            f"offsets past 2^31 need {'39' if grad else '21'} GB; the GPU has 0 GB free"
        )
