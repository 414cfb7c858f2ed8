"""The check of offsets that 32 bits do not hold, with a boundary that a CPU reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from support import checked, exams_made
from support.runs_made import run_of

from mlpfusion.stages.validate.channel import Loaded
from mlpfusion.stages.validate.judge.checks.memory import offsets
from mlpfusion.stages.validate.judge.checks.shapes import MANY_BLOCKS
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


def test_a_cpu_is_not_asked_for_gigabytes_and_judged_as_far_as_float32_counts(bench: Bench, tmp_path: Path) -> None:
    needed = "offsets past 2^31 need a GPU, with some 20 GB of free memory"
    assert found(bench, tmp_path, "return right(gate, up)") == (
        "not decidable here",
        f"{needed}; where gate and up are halves of one tensor it is right past 2^24",
    )
    behind = "y = right(gate, up); y.view(-1)[2**24 + 1 : 2**24 + 2] = 0; return y"
    status, sentence = found(bench, tmp_path, behind)
    assert status == "fail"
    assert "where gate and up are halves of one tensor, 1 of the result are others" in sentence
    assert "the first at 16777217, behind 2^24: is an offset computed in 24 bits?" in sentence


@pytest.mark.usefixtures("near")
def test_halves_of_one_tensor_are_judged_as_well(bench: Bench, tmp_path: Path) -> None:
    body = f"""
    y = right(gate, up).clone()
    if not gate.is_contiguous():
        y.view(-1)[{BOUNDARY}:] = 0
    return y
    """
    status, sentence = found(bench, tmp_path, body)
    assert status == "fail"
    assert "where gate and up are halves of one tensor" in sentence


@pytest.mark.parametrize(("seconds", "asked"), [(0.9, True), (1.1, False)])
def test_an_interpreter_is_asked_for_so_many_where_it_is_quick(
    monkeypatch: pytest.MonkeyPatch, seconds: float, asked: bool
) -> None:
    exam = exams_made.exam(Loaded(kind="act_mul", described="a function", kernels=1, interpreted=True))
    shape = MANY_BLOCKS[0]
    exam.seconds["bfloat16", shape] = seconds * offsets.MOST_SECONDS * shape[0] * shape[1] / offsets.MOST_ON_A_CPU
    boundaries: list[int] = []

    def judged(exam: object, dtype: str, boundary: int) -> None:
        boundaries.append(boundary)

    monkeypatch.setattr(offsets, "_judged_packed", judged)
    assert offsets.offsets(exam, "bfloat16").status == "not decidable here"
    assert boundaries == [offsets.MOST_ON_A_CPU] * asked


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
