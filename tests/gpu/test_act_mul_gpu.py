"""act_mul on a card: values, gradients, layouts and sizes past 2^31.

Run with MLPFUSION_GPU_TESTS=1, which keeps the kernels out of Triton's interpreter. Needs 40 GB of free memory.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from mlpfusion_kernels import ACTIVATIONS, act_mul, act_mul_reference
from mlpfusion_kernels.elementwise import launch
from mlpfusion_kernels.elementwise.launch import Tile, act_mul_backward, act_mul_forward

from mlpfusion.spec import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

DEVICE = "cuda"
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or launch._FORWARD_FLAT.interpreted,
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
    exact, ones = (each[finite].double().requires_grad_() for each in (gate, torch.ones_like(gate)))
    wanted = torch.autograd.grad(act_mul_reference(exact, ones, activation).sum(), (exact, ones))
    for found, want in zip((dgate, dup), wanted, strict=True):
        assert torch.equal(found.isfinite(), want.to(dtype).isfinite())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("rows", "columns"), [(1, 3072), (257, 3072), (64, 3000), (64, 3004), (50, 3001), (999, 7), (9, 1)]
)
def test_packed_halves_equal_dense_bit_for_bit(rows: int, columns: int, dtype: torch.dtype) -> None:
    packed, dy = random(rows, 2 * columns, dtype=dtype), random(rows, columns, dtype=dtype)
    gate, up = packed.chunk(2, dim=-1)
    dense_gate, dense_up = gate.contiguous(), up.contiguous()
    for activation in ACTIVATIONS:
        assert torch.equal(act_mul(gate, up, activation), act_mul(dense_gate, dense_up, activation))
        assert_same(
            act_mul_backward(dy, gate, up, activation, True, True),
            act_mul_backward(dy, dense_gate, dense_up, activation, True, True),
        )


def test_other_layouts() -> None:
    x = random(12, 20, 64)
    views = [
        x[:, ::2], x[..., ::2], x[:, :, 3:50], x.transpose(0, 1), x.transpose(1, 2), x[:1].expand(5, 20, 64),
        x[..., :1].expand(12, 20, 9), x.flatten()[1:1001], x.flatten()[3::7], x.as_strided((5, 9), (4, 1)),
    ]  # fmt: skip
    for view in views:
        dense = view.contiguous()
        want = act_mul(dense, dense, "silu")
        assert torch.equal(act_mul(view, view, "silu"), want)
        assert torch.equal(act_mul(dense, view, "silu"), want)
        assert torch.equal(act_mul(view, dense, "silu"), want)
        got = act_mul_backward(view, view, dense, "silu", True, True)
        assert_same(got, act_mul_backward(dense, dense, dense, "silu", True, True))


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


@pytest.mark.parametrize("activation", [row.name for row in TABLE if row.smoothness >= 1])
def test_second_order(activation: str) -> None:
    def derivatives(form: Any, gate: torch.Tensor, up: torch.Tensor) -> list[torch.Tensor]:
        loss = form(gate, up, activation).square().sum() + (gate**3 * up).sum()
        first = torch.autograd.grad(loss, (gate, up), create_graph=True)
        return [*first, *torch.autograd.grad((first[0].sin() + first[1] ** 2).sum(), (gate, up))]

    gate, up = (random(16, 48, dtype=torch.float32).requires_grad_() for _ in range(2))
    in_fp64 = [tensor.detach().double().requires_grad_() for tensor in (gate, up)]
    for got, want in zip(derivatives(act_mul, gate, up), derivatives(act_mul_reference, *in_fp64), strict=True):
        assert float((got - want).detach().abs().max() / want.detach().abs().max()) < 1e-5
