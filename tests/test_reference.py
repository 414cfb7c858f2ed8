"""The oracle, the error, and what they accept."""

from __future__ import annotations

import pytest
import torch

from mlpfusion import reference
from mlpfusion.backends.eager import Eager
from mlpfusion.errors import MeasurementError
from mlpfusion.spec import ACTIVATIONS, MLPSpec, Workload

CPU = torch.device("cpu")
pytestmark = pytest.mark.values


def workload(mode="training", **changes):
    spec = MLPSpec(**{"hidden_size": 12, "intermediate_size": 20, "dtype": "float32", "bias": True, **changes})
    return Workload(spec=spec, batch=2, seq=5, mode=mode)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_the_oracle_is_the_same_step_in_fp64(monkeypatch, activation, bias):
    monkeypatch.setattr(reference, "ORACLE_ROWS", 3)  # ten rows in chunks of three: the last one is short
    case = reference.make_case(workload(activation=activation, bias=bias), CPU, seed=0)
    expected = reference.step(Eager().bind(case.mlp), case)()
    found = reference.oracle(case)
    assert len(found) == len(expected) == 2 + (6 if bias else 3)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == torch.float64
        torch.testing.assert_close(mine.float(), theirs, rtol=1e-4, atol=1e-5)


def test_a_seed_gives_one_case_whatever_the_tokens():
    one, same = (reference.make_case(workload("inference"), CPU, seed=3) for _ in range(2))
    other = reference.make_case(workload("inference"), CPU, seed=4)
    few = reference.make_case(workload("inference"), CPU, seed=3, tokens=2)
    assert torch.equal(one.x, same.x)
    assert torch.equal(one.mlp.down_proj.weight, few.mlp.down_proj.weight)
    assert not torch.equal(one.x, other.x)
    assert few.x.shape == (1, 2, 12)
    assert one.dy is None


def test_a_training_step_gives_every_gradient_and_leaves_none_behind():
    case = reference.make_case(workload(), CPU, seed=0)
    outputs = reference.step(Eager().bind(case.mlp), case)()
    assert [value.shape for value in outputs[1:]] == [
        case.x.shape,
        *(parameter.shape for parameter in case.mlp.parameters()),
    ]
    assert case.x.grad is None
    assert all(parameter.grad is None for parameter in case.mlp.parameters())


def test_the_error_is_relative_to_the_larger_of_rms_and_value():
    reference_values = torch.tensor([3.0, 4.0, 0.0], dtype=torch.float64)
    rms = (25 / 3) ** 0.5
    found = reference.error(torch.tensor([3.0, 4.4, 0.5]), reference_values)
    assert found.maximum == pytest.approx(0.5 / rms, rel=1e-6)
    assert found.rms == pytest.approx((((0.4 / 4) ** 2 + (0.5 / rms) ** 2) / 3) ** 0.5, rel=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_inf_are_no_error_to_average(bad):
    found = reference.error(torch.tensor([1.0, bad]), torch.ones(2, dtype=torch.float64))
    assert found == (None, None)


def test_shapes_must_agree_and_empty_is_exact():
    with pytest.raises(ValueError, match=r"\(2,\).*\(3,\)"):
        reference.error(torch.ones(2), torch.ones(3, dtype=torch.float64))
    assert reference.error(torch.ones(0), torch.ones(0, dtype=torch.float64)) == (0.0, 0.0)


def test_the_worst_output_is_the_one_that_is_judged():
    exact = torch.linspace(1, 2, 8, dtype=torch.float64).view(2, 4)
    eager = (exact + 1e-3, exact + 1e-3)
    verdict = reference.judge((exact + 1e-4, exact + 4e-3), eager, (exact, exact))
    assert verdict.ratio == pytest.approx(4, rel=1e-3)
    assert (verdict.elements, verdict.limit) == (8, 4.0)
    assert reference.judge(eager, eager, (exact, exact)).ratio == 1.0
    assert reference.judge((exact, exact), eager, (exact, exact)).ratio == 0.0
    nan = exact.clone()
    nan[0, 0] = float("nan")
    assert reference.judge((exact, nan), eager, (exact, exact)).ratio == float("inf")
    with pytest.raises(MeasurementError, match="eager itself"):
        reference.judge((exact,), (nan,), (exact,))
