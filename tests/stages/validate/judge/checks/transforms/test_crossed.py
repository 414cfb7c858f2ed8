"""Situations of many sides: which levels meet, what is wrong in one alone is told with all of its sides."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from support import checked
from support.targets_made import verdict_of

from mlpfusion.stages.validate.judge.checks.transforms import crossed
from mlpfusion.stages.validate.worker.transforms.crossed import OTHERS

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.stages.validate.judge.examine import Bench

WITHOUT_A_LAST_COLUMN = """
import threading
y = right(gate, up)
wrong = {where}
return torch.cat((y[..., :-1], 0 * y[..., -1:]), dim=-1) if wrong else y
"""
SIDES = {
    "threading.current_thread() is not threading.main_thread() and gate.dim() == 3": (
        "three dimensions",
        "another thread",
    ),
    "torch.get_default_dtype() is torch.bfloat16 and not up.requires_grad and gate.requires_grad": (
        "gradients of gate,",
        "default dtype bfloat16",
    ),
    "torch.is_inference_mode_enabled() and gate.storage_offset() == 3": ("offset", "inference mode"),
    "torch._C._autograd._top_saved_tensors_default_hooks(True) and gate.shape[0] == 1": (
        "one row",
        "gradients of",
    ),
}


def exam(kind: str = "act_mul", *, trains: bool = True, seed: int = 0) -> Any:
    names = ("gate", "up") if kind == "act_mul" else ("x", "wg", "wu", "wd")
    return SimpleNamespace(kind=kind, names=names, seed=seed, lack=lambda dtype: None if trains else "none")


@pytest.mark.parametrize("kind", ["act_mul", "mlp"])
@pytest.mark.parametrize("trains", [True, False])
def test_only_what_is_trained_has_a_backward_and_every_mode_its_gradients(kind: str, trains: bool) -> None:
    found = crossed.situations(exam(kind, trains=trains), "float32")
    assert {case.options["mode"] for case in found} == set(
        crossed.MODES if trains else set(crossed.MODES) - set(crossed.TRAINED)
    )
    for case in found:
        options = case.options
        if options["needs"]:
            assert options["mode"] not in crossed.UNTRAINED
        else:
            assert options["mode"] not in crossed.TRAINED
            assert options["between"] == "nothing"
            assert "dy" not in options.get("layouts", {})
        assert options["before"] in OTHERS
        assert options["between"] in OTHERS
    assert bool([case for case in found if case.options["needs"]]) == trains


def test_another_seed_draws_other_sizes() -> None:
    first, second = ({case.shape for case in crossed.situations(exam(seed=seed), "float32")} for seed in (1, 2))
    assert len(first - second) > 10


@pytest.mark.parametrize("where", SIDES)
def test_what_is_wrong_where_two_sides_meet_is_told_with_both(bench: Bench, tmp_path: Path, where: str) -> None:
    body = WITHOUT_A_LAST_COLUMN.format(where=where)
    verdict = checked.by(bench, tmp_path, "crossed", body, dtypes=("float32",))
    assert verdict.word == "not valid"
    for side in SIDES[where]:
        assert side in verdict.headline


def test_what_is_right_is_right_in_all_and_refusals_are_counted(bench: Bench, tmp_path: Path) -> None:
    verdict = checked.by(bench, tmp_path, "crossed", "return right(gate, up)", dtypes=("float32",))
    assert verdict.word == "valid"
    body = """
    if not (gate.is_contiguous() and up.is_contiguous()):
        raise ValueError("dense operands are needed")
    return right(gate, up)
    """
    dense = checked.by(bench, tmp_path, "crossed", body, dtypes=("float32",))
    sentence = next(check.sentence for check in dense.checks if check.name == "crossed")
    assert "more were refused" in sentence


def test_an_mlp_is_judged_too(bench: Bench) -> None:
    assert checked.of_control(bench, "pairs/crossed.py:workspace_by_default", "crossed", "float32").word == "not valid"
    assert verdict_of(bench, "eager", only=("crossed",), dtypes=("float32",)).word == "valid"
