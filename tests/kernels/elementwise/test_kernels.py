"""act_mul's values against float64: every activation, dtype, shape and layout, in Triton's interpreter."""

from __future__ import annotations

import itertools
import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from mlpfusion_kernels import ACTIVATIONS, act_mul, act_mul_reference
from mlpfusion_kernels.activations import activate_reference
from mlpfusion_kernels.elementwise.launch import Tile, act_mul_backward, act_mul_forward
from support import rings

from mlpfusion import reference
from mlpfusion.measure.interpreter import round_to_nearest_even
from mlpfusion.spec import TABLE

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
EPS = {torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
TINY = {torch.float32: 2.0**-149, torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133}


@pytest.fixture(autouse=True)
def _round_as_a_gpu_does() -> None:
    round_to_nearest_even()


def exact(gate: torch.Tensor, up: torch.Tensor, activation: str) -> torch.Tensor:
    """The fp64 value, by formulas that do not cancel."""
    return reference.activate(gate.double(), activation) * up.double()


def worst_score(y: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, activation: str) -> float:
    """max |y - r| / (eps·|r| + 2^-22·|g·u| + tiny·(1 + |u|)); at most 2 is right to within its roundings."""
    r = exact(gate, up, activation)
    g, u = gate.double(), up.double()
    allowed = EPS[y.dtype] * r.abs() + 2.0**-22 * (g * u).abs() + TINY[y.dtype] * (1 + u.abs())
    return float(((y.double() - r).abs() / allowed).max()) if y.numel() else 0.0


def operands(shape: tuple[int, ...], dtype: torch.dtype, scale: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    gate, up = (torch.randn(shape, generator=generator) for _ in range(2))
    return (gate * scale).to(dtype), up.to(dtype)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [0.01, 1.0, 10.0])
def test_each_element_is_right_to_its_roundings(activation: str, dtype: torch.dtype, scale: float) -> None:
    for seed in range(2):
        gate, up = operands((61, 67), dtype, scale, seed)
        y = act_mul(gate, up, activation)
        assert y.dtype is dtype
        assert worst_score(y, gate, up, activation) <= 2


def test_the_criterion_tells_the_two_gelus_apart() -> None:
    gate, up = operands((61, 67), torch.float32, 1.0, 0)
    assert worst_score(act_mul(gate, up, "gelu"), gate, up, "gelu_tanh") > 100


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_16_bit_gate_value(activation: str, dtype: torch.dtype) -> None:
    gate = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(dtype)
    gate = gate[gate.isfinite()]
    for factor in (1.0, 1.0 + EPS[dtype], 3.0):
        up = torch.full_like(gate, factor)
        y = act_mul(gate, up, activation).double()
        r = exact(gate, up, activation)
        rounded = r.to(dtype).double()
        finite = rounded.isfinite()
        assert torch.equal(y.isfinite(), finite)
        ulp = torch.ldexp(torch.ones_like(r), torch.frexp(r.abs().clamp(min=2.0**-140)).exponent - 1) * EPS[dtype]
        ulp = ulp.clamp(min=TINY[dtype])
        beyond = ((y - r).abs() > ulp + 2.0**-20 * gate.double().abs()) & finite
        assert not beyond.any(), gate[beyond][:5]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_special_values_give_nan_where_pytorch_does(activation: str, dtype: torch.dtype) -> None:
    largest, smallest = torch.finfo(dtype).max, TINY[dtype]
    values = [0.0, smallest, 13.0, 20.0, 88.0, 1e4, largest, math.inf]
    gates = [sign * value for value in values for sign in (1, -1)] + [math.nan]
    gate, up = torch.tensor(list(itertools.product(gates, [0.0, -0.0, 1.0, math.inf, math.nan])), dtype=dtype).unbind(1)
    gate, up = gate.contiguous(), up.contiguous()
    y = act_mul(gate, up, activation)
    eager = act_mul_reference(gate, up, activation)
    if activation == "gelu":
        # On the CPU PyTorch's float32 gelu(inf) is nan and gelu(largest) inf, which is so nowhere else: float64 there.
        in_fp64 = act_mul_reference(gate.double(), up.double(), activation).to(dtype)
        eager = torch.where(gate.abs() >= largest, in_fp64, eager)
    assert torch.equal(y.isnan(), eager.isnan())
    assert torch.equal(y.isinf(), eager.isinf())
    finite = eager.isfinite()
    torch.testing.assert_close(y[finite].double(), eager[finite].double(), rtol=4 * EPS[dtype], atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", [row.name for row in TABLE if row.smoothness < math.inf])
def test_the_slope_at_0_and_beyond_every_number_is_autograd_s(activation: str, dtype: torch.dtype) -> None:
    gates = [0.0, -0.0, TINY[dtype], -TINY[dtype], 1.0, -1.0, math.inf, -math.inf, math.nan]
    gate, up = torch.tensor(list(itertools.product(gates, [1.0, -2.0, math.inf])), dtype=dtype).t().contiguous()
    g, u = gate.float().requires_grad_(), up.float().requires_grad_()
    want = torch.autograd.grad((activate_reference(g, activation) * u).sum(), (g, u))
    got = act_mul_backward(torch.ones_like(gate), gate, up, activation, True, True)
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs.to(dtype), rtol=0, atol=0, equal_nan=True)


def test_a_square_overflows_in_float32_and_not_on_the_way_to_a_product_that_fits() -> None:
    """As Inductor's kernels; PyTorch's operators give inf for all float16 gates from 256 on."""
    gate = torch.tensor([255.0, 256.0, 300.0, 300.0, 6e4, 6e4], dtype=torch.float16)
    up = torch.tensor([1.0, -1.0, 1.0, 2.0**-4, 2.0**-17, 0.0], dtype=torch.float16)
    wide = gate.double() ** 2 * up.double()
    assert torch.equal(act_mul(gate, up, "relu2"), wide.half())
    assert wide.half().isinf().tolist() == [False, True, True, False, False, False]
    for dtype in (torch.float32, torch.bfloat16):
        gate = torch.tensor([1e19, 2e19, 2e19, 2e19], dtype=dtype)
        up = torch.tensor([1.0, 1.0, -1e-9, 0.0], dtype=dtype)
        y = act_mul(gate, up, "relu2")
        torch.testing.assert_close(y, activate_reference(gate, "relu2") * up, equal_nan=True)
        assert (y.isinf().tolist(), y.isnan().tolist()) == ([False, True, True, False], [False, False, False, True])


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_of_large_gates_are_no_nan(activation: str) -> None:
    gate = torch.tensor([1e4, -1e4, 1e19, -1e19, 1e20, -1e20, 3e38, -3e38])
    one = torch.ones_like(gate)
    dgate, dup = act_mul_backward(one, gate, one, activation, True, True)
    assert dgate is not None
    assert dup is not None
    leaf = gate.double().requires_grad_()
    act = reference.activate(leaf, activation)
    assert torch.equal(dgate, torch.autograd.grad(act.sum(), leaf)[0].float())
    assert torch.equal(dup, act.float())


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [0.01, 1.0, 10.0])
def test_gradients_are_right_to_their_roundings(activation: str, dtype: torch.dtype, scale: float) -> None:
    gate, up = operands((61, 67), dtype, scale, 3)
    dy, _ = operands((61, 67), dtype, 1.0, 4)
    g, u = gate.double().requires_grad_(), up.double().requires_grad_()
    want_dgate, want_dup = torch.autograd.grad(act_mul_reference(g, u, activation), (g, u), dy.double())
    dgate, dup = act_mul_backward(dy, gate, up, activation, True, True)
    assert dgate is not None
    assert dup is not None
    v = dy.double()
    # The derivative of a GELU is a sum of two terms that may cancel; each is rounded at the size of dy·u.
    for got, want, size in ((dgate, want_dgate, v * up.double()), (dup, want_dup, v * gate.double())):
        allowed = EPS[dtype] * want.abs() + 2.0**-22 * size.abs() + TINY[dtype] * (1 + v.abs())
        assert float(((got.double() - want).abs() / allowed).max()) <= 2


def test_mixed_dtypes_promote_as_in_pytorch() -> None:
    for first, second in itertools.product(DTYPES, repeat=2):
        gate, up = operands((5, 9), first, 1.0, 0)[0], operands((5, 9), second, 1.0, 1)[1]
        y = act_mul(gate, up, "gelu_tanh")
        assert y.dtype is torch.result_type(gate, up)
        assert worst_score(y, gate, up, "gelu_tanh") <= 2
        dgate, dup = act_mul_backward(y, gate, up, "gelu_tanh", True, True)
        assert dgate is not None
        assert dup is not None
        assert (dgate.dtype, dup.dtype) == (first, second)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 768), (4, 0, 7), (1, 1, 1), (3, 1, 5), (127,), (2, 3, 5, 7)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    gate, up = operands(shape, torch.float32, 1.0, 0)
    y = act_mul(gate, up, "silu")
    assert y.shape == shape
    assert y.is_contiguous()
    assert worst_score(y, gate, up, "silu") <= 2


@st.composite
def strided(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor]:
    """Two operands of one shape, each a view of larger memory with strides and an offset of its own."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))

    def view() -> torch.Tensor:
        order = draw(st.permutations(range(len(shape))))
        strides = [0] * len(shape)
        step = draw(st.sampled_from([1, 1, 1, 2, 3]))
        for axis in order:
            strides[axis] = draw(st.sampled_from([step, step, step, 0]))
            step = step * shape[axis] + draw(st.sampled_from([0, 0, 3]))
        offset = draw(st.integers(0, 3))
        extent = offset + 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        memory = torch.linspace(-2, 2, extent) if extent > 1 else torch.full((1,), 0.5)
        return memory.as_strided(shape, strides, offset)

    return view(), view()


@settings(max_examples=rings.examples(60))
@given(strided(), st.booleans())
def test_any_strides(pair: tuple[torch.Tensor, torch.Tensor], swap: bool) -> None:
    gate, up = reversed(pair) if swap else pair
    before = gate.clone(), up.clone()
    y = act_mul(gate, up, "gelu_tanh")
    assert y.is_contiguous()
    assert worst_score(y, gate, up, "gelu_tanh") <= 2
    dgate, dup = act_mul_backward(up, gate, up, "gelu_tanh", True, True)
    dense = act_mul_backward(up.contiguous(), gate.contiguous(), up.contiguous(), "gelu_tanh", True, True)
    assert torch.equal(torch.stack([dgate, dup]), torch.stack(dense))  # type: ignore[arg-type]
    assert torch.equal(gate, before[0])
    assert torch.equal(up, before[1])


@pytest.mark.full  # ten seconds in an interpreter; the bits of any strides are tested above
@settings(max_examples=rings.examples(40))
@given(
    st.integers(1, 40), st.integers(1, 70), st.integers(0, 9), st.sampled_from([16, 64, 256]), st.sampled_from(DTYPES)
)
def test_packed_halves_equal_dense_bit_for_bit(
    rows: int, columns: int, gap: int, elements: int, dtype: torch.dtype
) -> None:
    rows = min(rows, elements // 2)  # many programs take an interpreter long
    packed = torch.randn(rows, 2 * columns + gap).to(dtype)
    gate, up = packed[:, :columns], packed[:, columns : 2 * columns]
    tile = Tile(elements, 1)
    dense = gate.contiguous(), up.contiguous()
    y = act_mul_forward(*dense, "silu", Tile(2048, 4))
    assert torch.equal(act_mul_forward(gate, up, "silu", tile), y)
    got = act_mul_backward(up, gate, up, "silu", True, True, tile)
    want = act_mul_backward(dense[1], *dense, "silu", True, True)
    assert torch.equal(torch.stack(got), torch.stack(want))  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [15, 16, 17, 31, 47, 61])
def test_nothing_is_written_beyond_the_result(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    arena = torch.full((4 * n + 64,), 7.0)
    views = iter([arena[8 : 8 + n], arena[2 * n + 32 : 3 * n + 32]])
    monkeypatch.setattr(torch, "empty_like", lambda *_args, **_options: next(views))
    gate, up = operands((n,), torch.float32, 1.0, 0)
    dgate, dup = act_mul_backward(up, gate, up, "gelu", True, True, Tile(16, 1))
    assert dgate is not None
    assert dup is not None
    assert (dgate != 7).all()
    assert (dup != 7).all()
    untouched = torch.ones_like(arena, dtype=torch.bool)
    untouched[8 : 8 + n] = untouched[2 * n + 32 : 3 * n + 32] = False
    assert (arena[untouched] == 7).all()


def test_rows_more_than_2_to_31_elements_apart() -> None:
    # Address space only: of the 4 GiB just the pages under the three rows get memory.
    distance, columns = 2**30 + 8, 40
    memory = torch.empty(2 * distance + columns, dtype=torch.bfloat16)
    far = memory.as_strided((3, columns), (distance, 1))
    far.copy_(torch.randn(3, columns))
    near = torch.randn(3, columns).bfloat16()
    assert 2 * distance > 2**31
    assert torch.equal(act_mul(far, near, "silu"), act_mul(far.contiguous(), near, "silu"))
    got = act_mul_backward(far, far, near, "silu", True, True)
    want = act_mul_backward(far.contiguous(), far.contiguous(), near, "silu", True, True)
    assert torch.equal(torch.stack(got), torch.stack(want))  # type: ignore[arg-type]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_row_does_not_depend_on_the_batch(activation: str) -> None:
    gate, up = operands((9, 130), torch.float32, 1.0, 0)
    together = act_mul_forward(gate, up, activation, Tile(64, 1))
    alone = torch.cat([act_mul_forward(gate[i : i + 1], up[i : i + 1], activation, Tile(64, 1)) for i in range(9)])
    assert torch.equal(together, alone)


def test_bad_operands_are_named() -> None:
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"one shape, got \(2, 3\) and \(1, 3\)"):
        act_mul(x, x[:1], "silu")
    with pytest.raises(ValueError, match="one device, got cpu and meta"):
        act_mul(x, x.to("meta"), "silu")
    with pytest.raises(TypeError, match=r"got torch\.float64 and torch\.float32"):
        act_mul(x.double(), x, "silu")
    with pytest.raises(ValueError, match=f"unknown activation 'gelu_new'; known: {', '.join(ACTIVATIONS)}$"):
        act_mul(x, x, "gelu_new")
    with pytest.raises(ValueError, match="unknown activation 'gelu_new'"):
        act_mul_reference(x, x, "gelu_new")
