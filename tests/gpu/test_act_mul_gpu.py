"""act_mul on a card: values, gradients, layouts, sizes past 2^31, streams, devices, graphs and the compiler.

Run with MLPFUSION_GPU_TESTS=1, which keeps the kernels out of Triton's interpreter. Needs 40 GB of free memory.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
import triton
from mlpfusion_kernels import ACTIVATIONS, act_mul, act_mul_launch, act_mul_reference, cached_kernel
from mlpfusion_kernels.act_mul import NAMESPACE, _act_mul_op
from mlpfusion_kernels.act_mul_launch import Tile, act_mul_backward, act_mul_forward
from torch.utils._python_dispatch import TorchDispatchMode
from triton import knobs

if TYPE_CHECKING:
    from collections.abc import Iterator

DEVICE = "cuda"
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or act_mul_launch._FORWARD_FLAT.interpreted,
    reason="needs a CUDA device and MLPFUSION_GPU_TESTS=1",
)

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
EPS = {torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
TINY = {torch.float32: 2.0**-149, torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133}
SHAPES = [
    (),
    (1,),
    (0, 768),
    (4, 0, 7),
    (127,),
    (3, 1, 5),
    (2047,),
    (2048,),
    (2049,),
    (61, 67),
    (8, 128, 3072),
    (33, 16411),
]


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    torch.cuda.synchronize()


def exact(gate: torch.Tensor, up: torch.Tensor, activation: str) -> torch.Tensor:
    """The fp64 value; tanh-GELU as g·sigmoid(2z), since 1 + tanh z cancels even in fp64."""
    g, u = gate.double(), up.double()
    if activation == "gelu_tanh":
        return g * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (g + 0.044715 * g**3)) * u
    if activation == "gelu":
        return g * 0.5 * torch.erfc(-g / math.sqrt(2)) * u
    return act_mul_reference(g, u, activation)


def worst_score(y: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, activation: str) -> float:
    """max |y - r| / (eps·|r| + 2^-22·|g·u| + tiny·(1 + |u|)); at most 2 is right to within its roundings."""
    if not y.numel():
        return 0.0
    r, gu = exact(gate, up, activation), (gate.double() * up.double()).abs()
    allowed = EPS[y.dtype] * r.abs() + 2.0**-22 * gu + TINY[y.dtype] * (1 + up.double().abs())
    return float(((y.double() - r).abs() / allowed).max())


def random(*shape: int, dtype: torch.dtype = torch.bfloat16, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(shape, device=DEVICE) * scale).to(dtype)


def assert_same(got: Any, want: Any) -> None:
    for one, other in zip(got, want, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_values(activation: str, dtype: torch.dtype) -> None:
    for shape, scale in itertools.product(SHAPES, (0.01, 1.0, 10.0)):
        gate, up = random(*shape, dtype=dtype, scale=scale), random(*shape, dtype=dtype)
        for _ in range(2):  # by Triton's launcher, then directly
            y = act_mul(gate, up, activation)
            assert y.shape == shape
            assert y.dtype is dtype
            assert worst_score(y, gate, up, activation) <= 2, (shape, scale)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients(activation: str, dtype: torch.dtype) -> None:
    for shape, scale in itertools.product([(61, 67), (8, 128, 3072), (33, 4099)], (0.01, 1.0, 10.0)):
        gate, up, dy = (
            random(*shape, dtype=dtype, scale=scale),
            random(*shape, dtype=dtype),
            random(*shape, dtype=dtype),
        )
        g, u = gate.double().requires_grad_(), up.double().requires_grad_()
        want = torch.autograd.grad(act_mul_reference(g, u, activation), (g, u), dy.double())
        gate.requires_grad_()
        up.requires_grad_()
        got = torch.autograd.grad(act_mul(gate, up, activation), (gate, up), dy)
        v = dy.double()
        for one, other, size in zip(got, want, (v * u, v * g), strict=True):
            allowed = EPS[dtype] * other.abs() + 2.0**-22 * size.abs() + TINY[dtype] * (1 + v.abs())
            assert float(((one.double() - other).abs() / allowed).detach().max()) <= 2, (shape, scale)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_16_bit_gate_value(activation: str, dtype: torch.dtype) -> None:
    gate = torch.arange(2**16, dtype=torch.int32, device=DEVICE).to(torch.int16).view(dtype)
    gate = gate[gate.isfinite()]
    for factor in (1.0, 1.0 + EPS[dtype], 3.0):
        up = torch.full_like(gate, factor)
        y, r = act_mul(gate, up, activation).double(), exact(gate, up, activation)
        finite = r.to(dtype).isfinite()
        assert torch.equal(y.isfinite(), finite)
        ulp = torch.ldexp(torch.ones_like(r), torch.frexp(r.abs().clamp(min=2.0**-140)).exponent - 1) * EPS[dtype]
        beyond = ((y - r).abs() > ulp.clamp(min=TINY[dtype]) + 2.0**-20 * gate.double().abs()) & finite
        assert not beyond.any(), gate[beyond][:5]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values_give_nan_where_pytorch_does(activation: str, dtype: torch.dtype) -> None:
    values = [0.0, 13.0, 20.0, 88.0, 1e4, torch.finfo(dtype).max, math.inf]
    gates = [sign * value for value in values for sign in (1, -1)] + [math.nan]
    pairs = torch.tensor(list(itertools.product(gates, [0.0, -0.0, 1.0, math.inf, math.nan])), dtype=dtype)
    gate, up = (column.contiguous().to(DEVICE) for column in pairs.unbind(1))
    assert torch.equal(act_mul(gate, up, activation).isnan(), act_mul_reference(gate, up, activation).isnan())
    finite = gate.isfinite()
    one = torch.ones_like(gate[finite])
    dgate, dup = act_mul_backward(one, gate[finite], one, activation, True, True)
    assert dgate is not None
    assert dup is not None
    assert dgate.isfinite().all()
    assert dup.isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 3072), (257, 3072), (64, 3000), (64, 3004), (50, 3001), (999, 7), (9, 1)]
)
def test_packed_halves_equal_dense_bit_for_bit(rows: int, columns: int, dtype: torch.dtype) -> None:
    packed, dy = random(rows, 2 * columns, dtype=dtype), random(rows, columns, dtype=dtype)
    halves = packed.chunk(2, dim=-1)
    dense = [half.contiguous() for half in halves]
    for activation in ACTIVATIONS:
        assert torch.equal(act_mul(*halves, activation), act_mul(*dense, activation))
        assert_same(
            act_mul_backward(dy, *halves, activation, True, True), act_mul_backward(dy, *dense, activation, True, True)
        )


def test_other_layouts() -> None:
    x = random(12, 20, 64)
    views = [
        x[:, ::2], x[..., ::2], x[:, :, 3:50], x.transpose(0, 1), x.transpose(1, 2), x[:1].expand(5, 20, 64),
        x[..., :1].expand(12, 20, 9), x.flatten()[1:1001], x.flatten()[3::7], x.as_strided((5, 9), (4, 1)),
    ]  # fmt: skip
    for view in views:
        want = act_mul(view.contiguous(), view.contiguous(), "silu")
        assert torch.equal(act_mul(view, view, "silu"), want)
        assert torch.equal(act_mul(view.contiguous(), view, "silu"), want)
        assert torch.equal(act_mul(view, view.contiguous(), "silu"), want)
        got = act_mul_backward(view, view, view.contiguous(), "silu", True, True)
        assert_same(got, act_mul_backward(*[view.contiguous()] * 3, "silu", True, True))


def test_every_alignment_in_every_order() -> None:
    memory = random(3 * 5000)
    want = {}
    for first, second in [(0, 0), (1, 0), (0, 1), (1, 1), (0, 0), (8, 8), (4, 0), (0, 0), (2, 3)]:
        gate, up = memory[first : first + 4999], memory[5000 + second : 5000 + second + 4999]
        y = act_mul(gate, up, "gelu")
        want.setdefault((first, second), y)
        assert torch.equal(y, want[first, second])
        assert worst_score(y, gate, up, "gelu") <= 2


def test_mixed_dtypes_promote_as_in_pytorch() -> None:
    for first, second in itertools.product(DTYPES, repeat=2):
        gate, up = random(33, 70, dtype=first), random(33, 70, dtype=second)
        y = act_mul(gate, up, "gelu_tanh")
        assert y.dtype is torch.result_type(gate, up)
        assert worst_score(y, gate, up, "gelu_tanh") <= 2
        packed = random(33, 140, dtype=second)[:, 70:]
        assert worst_score(act_mul(gate, packed, "gelu_tanh"), gate, packed, "gelu_tanh") <= 2


def test_more_than_2_to_31_elements() -> None:
    n, chunk = 2**31 + 4099, 2**27
    gate, up = torch.empty(n, dtype=torch.bfloat16, device=DEVICE).normal_(), random(chunk).repeat(17)[:n]
    y = act_mul(gate, up, "gelu_tanh")
    for part in zip(y.split(chunk), gate.split(chunk), up.split(chunk), strict=True):
        assert torch.equal(part[0], act_mul_forward(part[1], part[2], "gelu_tanh"))
    dgate, dup = act_mul_backward(y, gate, up, "gelu_tanh", True, True)
    assert dgate is not None
    assert dup is not None
    for start in (0, 2**31 - chunk // 2, n - chunk):
        piece = slice(start, start + chunk)
        want = act_mul_backward(y[piece], gate[piece], up[piece], "gelu_tanh", True, True)
        assert_same((dgate[piece], dup[piece]), want)


def test_packed_rows_more_than_2_to_31_elements_apart() -> None:
    rows, columns = 66000, 16400
    packed = torch.empty(rows, 2 * columns, dtype=torch.bfloat16, device=DEVICE).normal_()
    assert packed.numel() > 2**31
    gate, up = packed.chunk(2, dim=-1)
    y = act_mul(gate, up, "silu")
    dgate, dup = act_mul_backward(y, gate, up, "silu", True, True)
    assert dgate is not None
    assert dup is not None
    for start in (0, 65000, 65990):
        piece = slice(start, start + 10)
        dense = gate[piece].contiguous(), up[piece].contiguous()
        assert torch.equal(y[piece], act_mul(*dense, "silu"))
        assert_same((dgate[piece], dup[piece]), act_mul_backward(y[piece], *dense, "silu", True, True))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_row_does_not_depend_on_the_batch_or_the_tile(activation: str) -> None:
    gate, up = random(4096, 3072), random(4096, 3072)
    together = act_mul(gate, up, activation)
    for rows in (1, 2, 7, 129):
        assert torch.equal(act_mul(gate[:rows], up[:rows], activation), together[:rows])
        assert torch.equal(act_mul(gate[-rows:], up[-rows:], activation), together[-rows:])
    for tile in (Tile(1024, 2), Tile(4096, 8)):
        assert torch.equal(act_mul_forward(gate, up, activation, tile), together)


@pytest.mark.parametrize("n", [1, 15, 2047, 2049, 4099])
def test_nothing_is_written_beyond_the_result(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gate, up, dy = random(n), random(n), random(n)
    want = (act_mul_forward(gate, up, "gelu"), *act_mul_backward(dy, gate, up, "gelu", True, True))
    arena = torch.full((5 * n + 3 * 4096,), 7.0, dtype=torch.bfloat16, device=DEVICE)
    for offset in (2048, 2049):  # aligned and not
        starts = [offset, offset + n + 1024, offset + 2 * n + 2048]
        views = iter([arena[start : start + n] for start in starts])
        with monkeypatch.context() as patch:
            patch.setattr(torch, "empty_like", lambda *_args, views=views, **_options: next(views))
            got = (act_mul_forward(gate, up, "gelu"), *act_mul_backward(dy, gate, up, "gelu", True, True))
        assert_same(got, want)
        for view in got:
            assert view is not None
            view.fill_(7)
        assert (arena == 7).all()


def test_backward_leaves_the_operands_alone_and_can_run_twice() -> None:
    gate, up = random(64, 3072).requires_grad_(), random(64, 3072).requires_grad_()
    before, versions = (gate.clone(), up.clone()), (gate._version, up._version)
    y = act_mul(gate, up, "gelu_tanh")
    first = torch.autograd.grad(y.sum(), (gate, up), retain_graph=True)
    second = torch.autograd.grad(y.sum(), (gate, up))
    assert_same(second, first)
    assert_same((gate, up), before)
    assert (gate._version, up._version) == versions
    assert not {gate.data_ptr(), up.data_ptr()} & {gradient.data_ptr() for gradient in first}


@pytest.mark.parametrize("activation", ["gelu_tanh", "gelu", "silu"])
def test_second_order(activation: str) -> None:
    def derivatives(form: Any, gate: torch.Tensor, up: torch.Tensor) -> list[torch.Tensor]:
        loss = form(gate, up, activation).square().sum() + (gate**3 * up).sum()
        first = torch.autograd.grad(loss, (gate, up), create_graph=True)
        return [*first, *torch.autograd.grad((first[0].sin() + first[1] ** 2).sum(), (gate, up))]

    gate, up = (random(16, 48, dtype=torch.float32).requires_grad_() for _ in range(2))
    in_fp64 = [tensor.detach().double().requires_grad_() for tensor in (gate, up)]
    for got, want in zip(derivatives(act_mul, gate, up), derivatives(act_mul_reference, *in_fp64), strict=True):
        assert float((got - want).detach().abs().max() / want.detach().abs().max()) < 1e-5


def test_all_ways_to_call_give_the_same_bits() -> None:
    gate, up = random(77, 3072).requires_grad_(), random(77, 3072).requires_grad_()
    compiled = torch.compile(lambda g, u: act_mul(g, u, "gelu_tanh"), fullgraph=True)
    want = act_mul(gate, up, "gelu_tanh")
    want_gradients = torch.autograd.grad(want.sum(), (gate, up), retain_graph=True)
    for way in (compiled, lambda g, u: _act_mul_op(g, u, "gelu_tanh")):
        y = way(gate, up)
        assert torch.equal(y, want)
        assert_same(torch.autograd.grad(y.sum(), (gate, up)), want_gradients)
    with torch.no_grad():
        assert torch.equal(act_mul(gate, up, "gelu_tanh"), want)
        assert torch.equal(compiled(gate, up), want)
    with torch.inference_mode():
        assert torch.equal(act_mul(gate, up, "gelu_tanh"), want)
    torch.library.opcheck(_act_mul_op, (gate, up, "gelu_tanh"))


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
    halves = packed.chunk(2, dim=-1)
    dense = [half.contiguous() for half in halves]
    compiled = torch.compile(lambda x: act_mul(*x.chunk(2, dim=-1), "silu"), fullgraph=True)
    with torch.no_grad():
        assert kernels_of(lambda: act_mul(*dense, "silu")) == ["act_mul_flat_kernel"]
        assert kernels_of(lambda: act_mul(*halves, "silu")) == ["act_mul_rows_kernel"]
        assert kernels_of(lambda: compiled(packed)) == ["act_mul_rows_kernel"]
        assert kernels_of(lambda: act_mul(packed[:0], packed[:0], "silu")) == []
    gate, up = (tensor.requires_grad_() for tensor in dense)
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
    assert (release in ((3, 6), (3, 7)) and torch.version.hip is None) == cached_kernel.DIRECT_LAUNCH
    launcher = act_mul_launch._FORWARD_FLAT
    launcher._compiled.clear()
    gate = random(64, 3072)
    act_mul(gate, gate, "silu")
    assert len(launcher._compiled) == int(cached_kernel.DIRECT_LAUNCH)


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
    far = [tensor.to("cuda:1").requires_grad_() for tensor in (gate, up)]
    for _ in range(3):
        y = act_mul(*far, "silu")
        assert y.device == torch.device("cuda:1")
        assert torch.equal(y.cpu(), want.cpu())
        assert torch.autograd.grad(y.sum(), far)[0].device == torch.device("cuda:1")
        assert torch.cuda.current_device() == 0
    with pytest.raises(ValueError, match="one device, got cuda:0 and cuda:1"):
        act_mul(gate, far[1], "silu")


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
