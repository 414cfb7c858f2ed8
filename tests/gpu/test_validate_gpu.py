"""Validation on a GPU: faults that only a GPU shows, compiled kernels' own verdicts, and the race against Inductor."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from support.paths import ROOT

from mlpfusion.stages.validate.judge import examine as examine_judge
from mlpfusion.stages.validate.judge import self_test
from mlpfusion.stages.validate.judge.exam import Asked
from mlpfusion.stages.validate.progress import silent

TABLE = {control.name: control for control in self_test.controls()}
ON_A_GPU = [name for name, control in TABLE.items() if control.device == "cuda"]
# Some of each kind; all of them are judged by `mlpfusion validate --self-test`.
ELSEWHERE_TOO = [
    "exact_exp",
    "approximate_exp",
    "tuned",
    "act_mul",
    "mlp",
    "erf_for_tanh",
    "cubic_044",
    "half_06",
    "half_inside",
    "truncating_store_bf16",
    "mask_inverted",
    "tail_left_out",
    "one_configuration_wrong",
    "strides_ignored",
    "reads_a_value",
    "crashes",
]


@pytest.fixture(scope="module")
def bench():
    with examine_judge.Bench("cuda") as made:
        yield made


@pytest.mark.parametrize("name", [*ON_A_GPU, *ELSEWHERE_TOO])
def test_a_control_gets_the_verdict_that_it_should(bench, name):
    control = TABLE[name]
    if control.needs is not None and importlib.util.find_spec(control.needs) is None:
        pytest.skip(f"needs {control.needs}")
    judged = self_test.judge(bench, control, seed=examine_judge.new_seed(), tell=silent)
    assert judged.skipped is None
    assert judged.wrong is None, judged.wrong


def examine(bench, target, **asked):
    return examine_judge.examine(
        bench,
        examine_judge.Order(target, "gelu_tanh"),
        Asked(**asked),
        seed=examine_judge.new_seed(),
        sources=lambda name, text: None,
        tell=silent,
    )


def test_the_example_is_valid_and_raced_against_inductor(bench):
    verdict = examine(bench, f"{ROOT / 'examples' / 'gelu_mul.py'}:gelu_mul", against=("eager", "inductor"), rounds=20)
    assert verdict.word in {"valid", "valid with hazards"}, verdict.headline
    assert {check.name for check in verdict.hazards} <= {"compile"}
    mine, eager, inductor = verdict.peers
    assert len(mine.kernels) == len(inductor.kernels) == 1
    assert len(eager.kernels) == 2
    assert mine.kernels[0].name.startswith("gelu_mul_kernel")
    assert mine.kernels[0].registers
    for peer in (eager, inductor):
        assert peer.reason is None
        assert peer.ratio is not None
        assert peer.ratio.low <= peer.ratio.median <= peer.ratio.high
    assert eager.speed == "faster"  # one kernel for two


@pytest.mark.parametrize("target", ["mlpfusion_kernels:act_mul", "triton", "fused", "fused-graph"])
def test_what_runs_our_kernels_is_valid_and_is_seen_to_run_them(bench, target):
    """They are launched past `kernel[grid]`, or by a graph that replays them."""
    verdict = examine(bench, target)
    assert verdict.word == "valid", verdict.headline
    assert {check.status for check in verdict.checks if check.name == "own-kernel"} == {"pass"}


def test_pytorchs_cuda_graphs_are_judged_in_every_dtype(bench):
    verdict = examine(bench, "compile-cudagraphs", only=("mlp-values", "mlp-gradients"))
    assert verdict.word == "valid", verdict.headline
    assert {check.dtype for check in verdict.checks if check.name == "mlp-gradients"} == {
        "bfloat16",
        "float16",
        "float32",
    }


def test_a_target_that_poisons_the_device_costs_one_verdict(bench):
    broken = self_test.folder() / "gpu.py"
    assert "CUDA error" in examine(bench, f"{broken}:device_assert", until_failure=True).headline
    after = examine(bench, f"{self_test.folder() / 'good.py'}:eager", only=("function", "elementwise"))
    assert after.word == "valid"
    assert torch.ones(1, device="cuda").item() == 1.0  # nor did the judge lose its device
