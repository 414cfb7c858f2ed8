"""The portable backward kernels' numbers, in Triton's interpreter: any size, row stride and activation."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mlpfusion_kernels.activations import ACTIVATIONS, activate_backward_reference, activate_reference
from mlpfusion_kernels.elementwise.launch import act_mul_forward
from mlpfusion_kernels.gate_up.backward_kernels import (
    gate_up_backward_pointer_kernel,
    gate_up_backward_tma_kernel,
)
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


class Gradients(NamedTuple):
    dgate: torch.Tensor
    dup: torch.Tensor
    product: torch.Tensor


def backward(
    dy: torch.Tensor, down: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, activation: str, form: str, parts: int
) -> Gradients:
    (m, d), h = dy.shape, gate.shape[1]
    dgate_up, product = canary(m, 2 * h, dy.dtype), canary(m, h, dy.dtype)
    dgate, dup = dgate_up[:, :h], dgate_up[:, h:]
    unit = largest_unit(d, h, dy.stride(0), down.stride(0))
    sizes = (m, d // unit, h // unit)
    grid = tiles(m, h)
    constants = (activation, "ieee", unit, *BLOCKS, GROUP, parts)
    kernel: Any
    if form == "pointer":
        strides = (dy.stride(0) // unit, down.stride(0) // unit, 2 * h // unit)
        kernel = gate_up_backward_pointer_kernel[(grid[0] * grid[1],)]
        kernel(dy, down, gate, up, dgate_up, product, *sizes, *strides, *grid, *constants)
    else:
        inputs = (descriptor(dy, BLOCK_M, BLOCK_K), descriptor(down, BLOCK_K, BLOCK_N))
        outputs = [descriptor(t, BLOCK_M, BLOCK_N // parts) for t in (dgate, dup, product)]
        kernel = gate_up_backward_tma_kernel[(3,)]
        kernel(*inputs, *outputs, gate, up, *sizes, *grid, *constants)
    assert_canary_lives(dgate_up)
    assert_canary_lives(product)
    return Gradients(dgate, dup, product)


def check_backward(
    m: int,
    d: int,
    h: int,
    dtype: torch.dtype,
    activation: str,
    form: str,
    *,
    gap: int = 0,
    parts: int = 1,
    seed: int = 0,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    dy = rows_apart(generator, (m, d), gap, dtype)
    down = rows_apart(generator, (d, h), gap, dtype)
    down *= d**-0.5
    gate, up = (torch.randn((m, h), generator=generator).to(dtype) for _ in range(2))
    dgate, dup, product = backward(dy, down, gate, up, activation, form, parts)
    v = dy.double() @ down.double()
    assert_near(dgate, activate_backward_reference(gate.double(), v * up.double(), activation))
    assert_near(dup, v * activate_reference(gate.double(), activation))
    assert_same_bits(product, act_mul_forward(gate, up, activation))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_backward_gives_both_gradients_and_the_product_of_the_forward(
    activation: str, dtype: torch.dtype, form: str
) -> None:
    check_backward(64, 64, 64, dtype, activation, form)


@settings(max_examples=rings.examples(25))
@given(
    m=st.integers(1, 100),
    d=st.integers(1, 80),
    h=st.integers(1, 80),
    gap=st.integers(0, 9),
    parts=st.sampled_from([1, 2, 4]),
    seed=st.integers(0, 9),
)
@pytest.mark.full  # ten seconds; descriptors and the shapes of other tests go the same way
def test_backward_by_pointers_takes_any_size(m: int, d: int, h: int, gap: int, parts: int, seed: int) -> None:
    check_backward(m, d, h, torch.float32, "gelu", "pointer", gap=gap, parts=parts, seed=seed)


@settings(max_examples=rings.examples(25))
@given(
    m=st.integers(1, 100),
    d=st.integers(1, 10),
    h=st.integers(1, 10),
    gap=st.integers(0, 2),
    parts=st.sampled_from([1, 2, 4]),
    seed=st.integers(0, 9),
)
def test_backward_by_descriptors_takes_rows_of_16_bytes(
    m: int, d: int, h: int, gap: int, parts: int, seed: int
) -> None:
    check_backward(m, 8 * d, 8 * h, torch.float16, "silu", "wide", gap=8 * gap, parts=parts, seed=seed)
