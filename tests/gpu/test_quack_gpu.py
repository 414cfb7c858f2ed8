"""quack on a GPU: values, gradients and memory with its default configurations, and one that it tunes."""

from __future__ import annotations

import importlib

import pytest
import torch

from mlpfusion.backends.eager import Eager
from mlpfusion.backends.quack import ACTIVATIONS, Quack
from mlpfusion.device import detect
from mlpfusion.errors import BackendUnavailableError
from mlpfusion.measure.memory import saved_bytes
from mlpfusion.module import GatedMLP
from mlpfusion.reference import Case, judge, make_case, oracle, step
from mlpfusion.spec import MODES, MLPSpec, Workload

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def here() -> None:
    reason = Quack().unsupported(MLPSpec(hidden_size=64, intermediate_size=64), detect("cuda"))
    if reason is not None:
        pytest.skip(reason)
    try:
        importlib.import_module("quack.gemm_interface")
    except Exception as error:
        pytest.skip(f"quack cannot be imported: {type(error).__name__}: {error}")


def case(mode: str = "training", *, sizes: tuple[int, int] = (256, 512), tokens: int = 129, **changes) -> Case:
    spec = MLPSpec(hidden_size=sizes[0], intermediate_size=sizes[1], **changes)
    return make_case(Workload(spec=spec, batch=1, seq=tokens, mode=mode), CUDA, seed=1)


def within_twice_eagers_error(given: Case, backend: Quack) -> bool:
    eager, exact = step(Eager().bind(given.mlp), given)(), oracle(given)
    verdict = judge(step(backend.bind(given.mlp), given)(), eager, exact)
    return verdict.ratio <= verdict.limit


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("sizes", [(256, 512), (72, 200)])
def test_as_accurate_as_eager(activation, dtype, mode, sizes):
    given = case(mode, sizes=sizes, activation=activation, dtype=dtype)
    assert within_twice_eagers_error(given, Quack(tuned=False))


@pytest.mark.parametrize("tokens", [1, 2, 64, 257])
def test_any_number_of_tokens(tokens):
    assert within_twice_eagers_error(case(tokens=tokens), Quack(tuned=False))


def test_biases_in_inference():
    assert within_twice_eagers_error(case("inference", bias=True), Quack(tuned=False))
    given = case(bias=True)
    with pytest.raises(BackendUnavailableError, match="no biases"):
        Quack(tuned=False).bind(given.mlp)(given.x)


def test_a_tuned_call_is_right_too():
    assert within_twice_eagers_error(case("inference"), Quack())


def test_backward_keeps_x_gate_and_up_alone():
    given = case(tokens=128)
    assert saved_bytes(Quack(tuned=False).bind(given.mlp), given) == 128 * (256 + 2 * 512) * 2


def test_compiled_captured_and_plain_calls_agree_to_the_bit():
    given = case("inference", tokens=128)
    call = Quack(tuned=False).bind(given.mlp)
    with torch.no_grad():
        expected = call(given.x)
        assert torch.equal(torch.compile(call, fullgraph=True)(given.x), expected)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = call(given.x)
        y.zero_()
        graph.replay()
        assert torch.equal(y, expected)


def test_a_compiled_step_is_a_plain_one():
    given = case(tokens=128)
    call = Quack(tuned=False).bind(given.mlp)
    compiled = torch.compile(call, fullgraph=True)
    for got, expected in zip(step(compiled, given)(), step(call, given)(), strict=True):
        torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)


def test_a_module_moves_with_it():
    mlp = GatedMLP(MLPSpec(hidden_size=256, intermediate_size=512), device=CUDA, backend=Quack(tuned=False))
    x = torch.randn(4, 256, device=CUDA, dtype=torch.bfloat16)
    with torch.no_grad():
        expected = mlp(x)
        with pytest.raises(BackendUnavailableError, match="need a GPU"):
            mlp.cpu()(x.cpu())
        torch.testing.assert_close(mlp.cuda()(x), expected)
