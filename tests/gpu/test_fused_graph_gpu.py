"""Replayed graphs on a GPU: values, kept outputs, moved weights, streams, threads and memory."""

from __future__ import annotations

import threading

import pytest
import torch
from support import workspaces

from mlpfusion import backend
from mlpfusion.backends.fused_graph import LIMIT, FusedGraph
from mlpfusion.errors import BackendUnavailableError
from mlpfusion.module import GatedMLP
from mlpfusion.spec import MLPSpec

CUDA = torch.device("cuda")
SPEC = MLPSpec(hidden_size=256, intermediate_size=512)


@pytest.fixture(params=["triton", "fused"])
def inner(request):
    """What is recorded: kernels that are always here, and those it is meant for."""
    if request.param not in backend.names():
        pytest.skip(f"no backend {request.param}")
    return backend.load(request.param)


def made(inner, spec=SPEC, device=CUDA):
    mlp = GatedMLP(spec, device=device).requires_grad_(False)
    return mlp, FusedGraph(inner).bind(mlp), inner.bind(mlp)


def tokens(*shape, spec=SPEC, device=CUDA):
    return torch.randn(*shape, spec.hidden_size, device=device, dtype=getattr(torch, spec.dtype))


@pytest.mark.parametrize("shape", [(1,), (2, 8), (256,), (1, 3, 5)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_replay_gives_what_a_plain_call_gives(inner, shape, dtype):
    spec = MLPSpec(hidden_size=256, intermediate_size=512, dtype=dtype, bias=len(shape) == 2)
    _, call, plain = made(inner, spec)
    for _ in range(3):
        x = tokens(*shape, spec=spec)
        torch.testing.assert_close(call(x), plain(x), rtol=0, atol=0)


def test_kept_outputs_are_not_overwritten(inner):
    _, call, plain = made(inner)
    inputs = [tokens(16) for _ in range(20)]
    kept = [call(x) for x in inputs]
    for x, y in zip(inputs, kept, strict=True):
        assert torch.equal(y, plain(x))
    with torch.inference_mode():
        y = call(inputs[0])
        assert y.is_inference()
        assert torch.equal(y, kept[0])


def test_first_called_in_inference_mode_it_works_outside(inner):
    _, call, plain = made(inner)
    x = tokens(4)
    with torch.inference_mode():
        call(x)
    assert torch.equal(call(x), plain(x))


def test_moved_and_updated_weights_are_followed(inner):
    mlp, call, _ = made(inner)
    x = tokens(8)
    call(x)
    mlp.gate_proj.weight.mul_(2)
    assert torch.equal(call(x), inner.bind(mlp)(x))
    mlp.up_proj.weight.data = mlp.up_proj.weight * 3
    torch.cuda.empty_cache()
    assert torch.equal(call(x), inner.bind(mlp)(x))


def test_streams_and_threads_do_not_mix_their_inputs(inner):
    _, call, plain = made(inner)
    inputs = [tokens(16) for _ in range(4)]
    expected = [plain(x) for x in inputs]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in inputs]
    wrong = []

    def work(x, y, stream):
        with torch.no_grad(), torch.cuda.stream(stream):
            results = [call(x) for _ in range(50)]
            stream.synchronize()
            wrong.extend(0 for result in results if not torch.equal(result, y))

    for used in (streams, [torch.cuda.current_stream()] * len(inputs)):
        with torch.no_grad():
            call(inputs[0])
        threads = [threading.Thread(target=work, args=each) for each in zip(inputs, expected, used, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_within_another_capture_and_under_a_compiler_the_plain_call_runs(inner):
    _, call, plain = made(inner)
    x = tokens(16)
    expected = plain(x)
    call(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = call(x)
    y.zero_()
    graph.replay()
    assert torch.equal(y, expected)
    assert torch.equal(torch.compile(call, fullgraph=True)(x), expected)


def test_gradients_are_refused(inner):
    mlp, call, _ = made(inner)
    mlp.requires_grad_(True)
    with pytest.raises(BackendUnavailableError, match="no_grad"):
        call(tokens(2))
    with torch.no_grad():
        call(tokens(2))


def test_graphs_are_bounded_and_their_memory_comes_back(inner):
    _, call, plain = made(inner)
    allocated = []
    for ones in range(3 * LIMIT):  # inputs of one size, and a shape of its own each
        x = tokens(*(1,) * ones, 64)
        assert torch.equal(call(x), plain(x))
        torch.cuda.synchronize()
        allocated.append(torch.cuda.memory_allocated())
    assert allocated[-1] <= allocated[LIMIT]


@pytest.mark.parametrize("shape", workspaces.SPLIT)
def test_a_graph_keeps_its_workspace_when_another_ends_or_all_are_cleared(inner, shape):
    tokens_, intermediate, hidden = shape
    spec = MLPSpec(hidden_size=hidden, intermediate_size=intermediate)
    _, call, plain = made(inner, spec)
    x = tokens(tokens_, spec=spec)
    expected = plain(x)
    assert torch.equal(call(x), expected)
    workspaces.another_ends(lambda: made(inner, spec)[1](x))
    workspaces.untouched(lambda: call(x), expected)
    workspaces.cleared()
    workspaces.untouched(lambda: call(x), expected)


def test_modules_that_share_a_stream_do_not_mix_their_results(inner):
    pairs = [made(inner)[1:] for _ in range(4)]
    inputs = [tokens(16) for _ in pairs]
    expected = [plain(x) for (_, plain), x in zip(pairs, inputs, strict=True)]
    stream, wrong = torch.cuda.current_stream(), []

    def work(call, x, y):
        with torch.no_grad(), torch.cuda.stream(stream):
            results = [call(x) for _ in range(50)]
            stream.synchronize()
            wrong.extend(0 for result in results if not torch.equal(result, y))

    calls = [call for call, _ in pairs]
    threads = [threading.Thread(target=work, args=each) for each in zip(calls, inputs, expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_module_on_another_device_than_the_current_one(inner):
    _, call, plain = made(inner, device="cuda:1")
    x = tokens(4, device="cuda:1")
    assert torch.equal(call(x), plain(x))
    assert torch.cuda.current_device() == 0
