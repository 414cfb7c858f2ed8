"""The numbers of the portable gate/up kernels, in Triton's interpreter: every activation, tail, stride and order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mlpfusion_kernels.activations import ACTIVATIONS, activate_reference
from mlpfusion_kernels.elementwise.launch import act_mul_forward
from mlpfusion_kernels.gate_up.backward_kernels import (
    gate_up_backward_cost,
)
from mlpfusion_kernels.gate_up.kernels import gate_up_cost, gate_up_pointer_kernel, gate_up_wide_kernel
from support import rings
from support.tiled_operands import (
    BLOCK_K,
    BLOCK_M,
    BLOCK_N,
    BLOCKS,
    DTYPES,
    FORMS,
    GROUP,
    assert_canary_lives,
    assert_near,
    assert_same_bits,
    canary,
    descriptor,
    largest_unit,
    rows_apart,
    tiles,
)


class Operands(NamedTuple):
    """x [M, K] and both weights [H, K] as views with rows apart by more than K, biases [H] or None."""

    x: torch.Tensor
    gate_weight: torch.Tensor
    up_weight: torch.Tensor
    gate_bias: torch.Tensor | None
    up_bias: torch.Tensor | None


class Results(NamedTuple):
    product: torch.Tensor
    gate: torch.Tensor
    up: torch.Tensor


def operands(
    m: int,
    k: int,
    h: int,
    dtype: torch.dtype,
    *,
    gap: int = 0,
    bias: bool = False,
    up_first: bool = False,
    seed: int = 0,
) -> Operands:
    """Random operands. Gate and up lie in one buffer, so that the sign of their distance is known, nan between them."""
    generator = torch.Generator().manual_seed(seed)
    x = rows_apart(generator, (m, k), gap, dtype)
    weights = rows_apart(generator, (2 * h + 3, k), gap, dtype)
    weights *= k**-0.5
    weights[h : h + 3] = float("nan")
    low, high = weights[:h], weights[h + 3 :]
    gate_weight, up_weight = (high, low) if up_first else (low, high)
    biases = [torch.randn(h, generator=generator).to(dtype) if bias else None for _ in range(2)]
    return Operands(x, gate_weight, up_weight, biases[0], biases[1])


def stacked(gate_weight: torch.Tensor, up_weight: torch.Tensor) -> tuple[torch.Tensor, bool]:
    """[2, H, K] over both weights, the lower address first, and whether that is up's."""
    distance = (up_weight.data_ptr() - gate_weight.data_ptr()) // gate_weight.element_size()
    first = gate_weight if distance > 0 else up_weight
    h, k = gate_weight.shape
    return first.as_strided((2, h, k), (abs(distance), first.stride(0), 1)), distance < 0


def forward(given_: Operands, activation: str, form: str, *, preact: bool = True, parts: int = 1) -> Results:
    x, gate_weight, up_weight, gate_bias, up_bias = given_
    (m, k), h = x.shape, gate_weight.shape[0]
    product = canary(m, h, x.dtype)
    out = Results(product, *(canary(m, h, x.dtype) if preact else product for _ in range(2)))
    biases = (x, x) if gate_bias is None or up_bias is None else (gate_bias, up_bias)
    constants = (activation, gate_bias is not None, preact)
    grid = tiles(m, h)
    kernel: Any
    if form == "pointer":
        unit = largest_unit(k, h, x.stride(0), gate_weight.stride(0), up_weight.stride(0))
        strides = [t.stride(0) // unit for t in (x, gate_weight, up_weight)]
        scalars = (m, k // unit, h // unit, *strides, *grid)
        kernel = gate_up_pointer_kernel[(grid[0] * grid[1],)]
        kernel(x, gate_weight, up_weight, *biases, *out, *scalars, *constants, "ieee", unit, *BLOCKS, GROUP, parts)
    else:
        weights, swapped = stacked(gate_weight, up_weight)
        inputs = (descriptor(x, BLOCK_M, BLOCK_K), descriptor(weights, 2, BLOCK_N, BLOCK_K))
        outputs = [descriptor(t, BLOCK_M, BLOCK_N // parts) for t in out]
        kernel = gate_up_wide_kernel[(3,)]
        kernel(*inputs, *outputs, *biases, k, h, *grid, *constants, swapped, "ieee", *BLOCKS, GROUP, parts)
    for result in out:
        assert_canary_lives(result)
    return out


def preactivations(given_: Operands) -> tuple[torch.Tensor, torch.Tensor]:
    """gate and up in fp64."""
    x, gate_weight, up_weight, gate_bias, up_bias = (None if t is None else t.double() for t in given_)
    assert x is not None
    assert gate_weight is not None
    assert up_weight is not None
    gate, up = x @ gate_weight.T, x @ up_weight.T
    return (gate, up) if gate_bias is None or up_bias is None else (gate + gate_bias, up + up_bias)


def check_forward(given_: Operands, activation: str, form: str, *, parts: int = 1) -> None:
    product, gate, up = forward(given_, activation, form, parts=parts)
    want_gate, want_up = preactivations(given_)
    assert_near(gate, want_gate)
    assert_near(up, want_up)
    assert_same_bits(product, act_mul_forward(gate, up, activation))
    assert_near(product, activate_reference(gate.double(), activation) * up.double())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_forward_is_act_mul_of_the_rounded_preactivations(activation: str, dtype: torch.dtype, form: str) -> None:
    check_forward(operands(64, 64, 64, dtype), activation, form)


@settings(max_examples=rings.examples(25))
@given(m=st.integers(1, 100), k=st.integers(1, 80), h=st.integers(1, 80), gap=st.integers(0, 9), seed=st.integers(0, 9))
def test_pointers_take_any_size_and_row_stride(m: int, k: int, h: int, gap: int, seed: int) -> None:
    check_forward(operands(m, k, h, torch.float32, gap=gap, bias=bool(seed % 2), seed=seed), "gelu_tanh", "pointer")


@settings(max_examples=rings.examples(25))
@given(m=st.integers(1, 100), k=st.integers(1, 10), h=st.integers(1, 10), gap=st.integers(0, 2), seed=st.integers(0, 9))
def test_descriptors_take_rows_of_16_bytes(m: int, k: int, h: int, gap: int, seed: int) -> None:
    check_forward(operands(m, 8 * k, 8 * h, torch.float16, gap=8 * gap, bias=bool(seed % 2), seed=seed), "silu", "wide")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("up_first", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_up_may_lie_below_gate(bias: bool, up_first: bool, form: str) -> None:
    check_forward(operands(40, 72, 48, torch.float16, gap=8, bias=bias, up_first=up_first), "gelu", form)


@pytest.mark.parametrize("form", FORMS)
def test_neither_parts_nor_storing_less_change_a_bit(form: str) -> None:
    given_ = operands(70, 40, 56, torch.float16, bias=True)
    whole = forward(given_, "gelu_tanh", form)
    for parts in (2, 4):
        for one, other in zip(forward(given_, "gelu_tanh", form, parts=parts), whole, strict=True):
            assert_same_bits(one, other)
    assert_same_bits(forward(given_, "gelu_tanh", form, preact=False).product, whole.product)


def test_both_forms_agree_bit_for_bit() -> None:
    given_ = operands(70, 40, 56, torch.float16, bias=True)
    for one, other in zip(forward(given_, "silu", "pointer"), forward(given_, "silu", "wide"), strict=True):
        assert_same_bits(one, other)


def test_row_offsets_pass_two_to_the_31() -> None:
    apart = 2**30 + 8
    small = operands(3, 16, 16, torch.float16)
    x = torch.empty(2 * apart + 16, dtype=torch.float16).as_strided((3, 16), (apart, 1))  # three pages are ever touched
    x.copy_(small.x)
    far = forward(small._replace(x=x), "relu", "pointer")
    assert_same_bits(far.product, forward(small, "relu", "pointer").product)


def test_a_launch_tells_its_flops_and_bytes() -> None:
    product = torch.empty((32, 48), dtype=torch.bfloat16)
    metadata = SimpleNamespace(name="kernel")
    common = {"depth": 4, "UNIT": 16, "ACTIVATION": "relu"}
    told = gate_up_cost(None, metadata, {"product": product, "STORE_PREACT": True, **common})
    assert told["flops16"] == 2 * 32 * 64 * 2 * 48
    assert told["bytes"] == 2 * (32 * 64 + 2 * 48 * 64 + 3 * 32 * 48)
    by_descriptor = {"product": descriptor(product, 16, 16), "STORE_PREACT": False, "depth": 64, "ACTIVATION": "relu"}
    assert gate_up_cost(None, metadata, by_descriptor)["bytes"] == 2 * (32 * 64 + 2 * 48 * 64 + 32 * 48)
    told = gate_up_backward_cost(None, metadata, {"product": product, **common})
    assert told["flops16"] == 2 * 32 * 64 * 48
    assert told["bytes"] == 2 * (32 * 64 + 64 * 48 + 5 * 32 * 48)
    told = gate_up_backward_cost(None, metadata, {"product": product.float(), **common})
    assert "flops16" not in told
    assert told["flops32"] > 2 * 32 * 64 * 48
