"""act_mul on a card: launches, hooks, streams, devices, CUDA graphs and the compiler.

Run with MLPFUSION_GPU_TESTS=1, which keeps the kernels out of Triton's interpreter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
import triton
from mlpfusion_kernels import act_mul
from mlpfusion_kernels.elementwise import launch
from mlpfusion_kernels.elementwise.autograd import NAMESPACE, _act_mul_op
from mlpfusion_kernels.elementwise.launch import act_mul_backward
from mlpfusion_kernels.launching import cached
from torch.utils._python_dispatch import TorchDispatchMode
from triton import knobs

if TYPE_CHECKING:
    from collections.abc import Iterator

DEVICE = "cuda"
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or launch._FORWARD_FLAT.interpreted,
    reason="needs a CUDA device and MLPFUSION_GPU_TESTS=1",
)


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    torch.cuda.synchronize()


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device=DEVICE).bfloat16()


def assert_same(got: Any, want: Any) -> None:
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one, other)


def test_all_ways_to_call_give_the_same_bits() -> None:
    gate, up = random(77, 3072).requires_grad_(), random(77, 3072).requires_grad_()
    compiled = torch.compile(lambda g, u: act_mul(g, u, "gelu_tanh"), fullgraph=True)
    want = act_mul(gate, up, "gelu_tanh")
    want_gradients = torch.autograd.grad(want.sum(), (gate, up), retain_graph=True)
    for way in (compiled, lambda g, u: _act_mul_op(g, u, "gelu_tanh", "")):
        y = way(gate, up)
        assert torch.equal(y, want)
        assert_same(torch.autograd.grad(y.sum(), (gate, up)), want_gradients)
    with torch.no_grad():
        assert torch.equal(act_mul(gate, up, "gelu_tanh"), want)
        assert torch.equal(compiled(gate, up), want)
    with torch.inference_mode():
        assert torch.equal(act_mul(gate, up, "gelu_tanh"), want)
    torch.library.opcheck(_act_mul_op, (gate, up, "gelu_tanh", ""))


def kernels_of(run: Any) -> list[str]:
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        run()
        torch.cuda.synchronize()
    on_device = torch.autograd.DeviceType.CUDA
    names = [event.name for event in profile.events() if event.device_type == on_device]
    # Annotations of compiled regions are projected onto the device too; they are no kernels.
    return [name for name in names if not name.startswith(("##", "Torch-Compiled"))]


def test_one_launch_each_way_and_no_copies() -> None:
    packed = random(256, 2 * 3072)
    half, other = packed.chunk(2, dim=-1)
    gate, up = half.contiguous(), other.contiguous()

    def of_halves(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return act_mul(first, second, "silu")

    compiled = torch.compile(of_halves, fullgraph=True)
    with torch.no_grad():
        assert kernels_of(lambda: act_mul(gate, up, "silu")) == ["act_mul_flat_kernel"]
        assert kernels_of(lambda: act_mul(half, other, "silu")) == ["act_mul_rows_kernel"]
        assert kernels_of(lambda: compiled(packed)) == ["act_mul_rows_kernel"]
        assert kernels_of(lambda: act_mul(packed[:0], packed[:0], "silu")) == []
    gate, up = gate.requires_grad_(), up.requires_grad_()
    y, dy = act_mul(gate, up, "silu"), random(256, 3072)
    backward = kernels_of(lambda: torch.autograd.grad(y, (gate, up), dy, retain_graph=True))
    assert backward == ["act_mul_backward_flat_kernel"]


def test_hooks_see_every_launch_with_its_cost() -> None:
    gate, up = random(64, 3072), random(64, 3072)
    seen: list[dict[str, Any]] = []

    def enter(metadata: Any) -> None:
        seen.append(metadata.get())

    knobs.runtime.launch_enter_hook.add(enter)
    try:
        for _ in range(3):
            act_mul(gate, up, "gelu_tanh")
        act_mul_backward(gate, gate, up, "gelu_tanh", True, False)
    finally:
        knobs.runtime.launch_enter_hook.remove(enter)
    names = [metadata["name"] for metadata in seen]
    assert names == ["act_mul_flat_kernel"] * 3 + ["act_mul_backward_flat_kernel"]
    assert [metadata["bytes"] for metadata in seen] == [3 * 2 * 64 * 3072] * 3 + [4 * 2 * 64 * 3072]
    assert all(metadata["flops32"] > 0 for metadata in seen)


def test_this_triton_launches_directly() -> None:
    release = tuple(int(part) for part in triton.__version__.split(".")[:2])
    assert (release in ((3, 6), (3, 7)) and torch.version.hip is None) == cached.DIRECT_LAUNCH
    launcher = launch._FORWARD_FLAT
    launcher._compiled.clear()
    gate = random(64, 3072)
    act_mul(gate, gate, "silu")
    assert len(launcher._compiled) == int(cached.DIRECT_LAUNCH)


def test_the_current_stream_is_used() -> None:
    source = random(1024, 3072)
    gate, up = torch.zeros_like(source), random(1024, 3072)
    want = act_mul(source, up, "silu")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    for _ in range(3):
        gate.zero_()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)  # about 10 ms: a launch on any other stream would read zeros
            gate.copy_(source)
            y = act_mul(gate, up, "silu")
        side.synchronize()
        assert torch.equal(y, want)


def test_capture_in_a_cuda_graph() -> None:
    gate, up, dy = random(128, 3072).requires_grad_(), random(128, 3072).requires_grad_(), random(128, 3072)

    def step() -> tuple[torch.Tensor, ...]:
        y = act_mul(gate, up, "gelu_tanh")
        return (y.detach(), *torch.autograd.grad(y, (gate, up), dy))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for _ in range(2):
        with torch.no_grad():
            gate.copy_(random(128, 3072))
            up.copy_(random(128, 3072))
        graph.replay()
        assert_same(captured, step())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_the_tensors_own_device_is_used() -> None:
    gate, up = random(64, 3072), random(64, 3072)
    want = act_mul(gate, up, "silu")
    far_gate, far_up = (tensor.to("cuda:1").requires_grad_() for tensor in (gate, up))
    for _ in range(3):
        y = act_mul(far_gate, far_up, "silu")
        assert y.device == torch.device("cuda:1")
        assert torch.equal(y.cpu(), want.cpu())
        assert torch.autograd.grad(y.sum(), far_gate)[0].device == torch.device("cuda:1")
        assert torch.cuda.current_device() == 0
    with pytest.raises(ValueError, match="one device, got cuda:0 and cuda:1"):
        act_mul(gate, far_up, "silu")


def test_a_pending_negation_is_carried_out() -> None:
    z = torch.randn(64, 64, dtype=torch.complex64, device=DEVICE)
    gate, up = z.conj().imag, z.real
    assert gate.is_neg()
    assert torch.equal(act_mul(gate, up, "silu"), act_mul((-z.imag).contiguous(), up.contiguous(), "silu"))
    leaf = up.contiguous().requires_grad_()
    (gradient,) = torch.autograd.grad(act_mul(leaf, leaf.detach(), "silu"), leaf, gate)
    (want,) = torch.autograd.grad(act_mul(leaf, leaf.detach(), "silu"), leaf, gate.resolve_neg())
    assert torch.equal(gradient, want)


def test_a_mode_entered_for_the_backward_sees_it() -> None:
    seen: list[str] = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    gate, up = random(8, 64).requires_grad_(), random(8, 64)
    y, dy = act_mul(gate, up, "silu"), random(8, 64)
    with Watch():
        torch.autograd.grad(y, gate, dy)
        act_mul(gate.detach(), up, "silu")
    assert f"{NAMESPACE}.act_mul_backward.default" in seen
    assert f"{NAMESPACE}.act_mul.default" in seen


def test_a_cpu_tensor_is_refused() -> None:
    x = torch.zeros(3)
    with pytest.raises(RuntimeError, match="cannot run on a CPU tensor"):
        act_mul(x, x, "silu")
    with pytest.raises(ValueError, match="one device, got cuda:0 and cpu"):
        act_mul(x.to(DEVICE), x, "silu")
