"""How the gate/up kernels are launched: which weights are read in place and how, wherever they lie and move to."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mlpfusion_kernels import Weights, gated_mlp, unreadable
from mlpfusion_kernels.gate_up import launch
from mlpfusion_kernels.gate_up.backward_kernels import (
    gate_up_backward_pointer_kernel,
    gate_up_backward_tma_kernel,
)
from mlpfusion_kernels.gate_up.configs import Config
from mlpfusion_kernels.gate_up.kernels import gate_up_pointer_kernel, gate_up_wide_kernel
from mlpfusion_kernels.gate_up.launch import _unit, gate_up_backward, gate_up_forward
from mlpfusion_kernels.gate_up.operands import aligned_rows, distance
from support import rings
from support.flat_weights import DTYPES, flat_weights
from torch import Tensor
from torch.nn import functional

D, H, M = 48, 32, 37


def use_form(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """Have the interpreter run this form, with tiles that leave tails, and pointers where descriptors cannot read."""

    def chosen(*_: Any, descriptors: bool = True, **__: Any) -> Config:
        by_descriptors = form == "wide" and descriptors
        return Config(form if by_descriptors else "pointer", 32, 16, 32, 2, 4, 1, 3 * by_descriptors, 2)

    monkeypatch.setattr(launch, "forward_config", chosen)
    monkeypatch.setattr(launch, "backward_config", chosen)


@pytest.fixture(params=["pointer", "wide"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    use_form(monkeypatch, request.param)
    return str(request.param)


@settings(max_examples=rings.examples(300))
@given(flat_weights())
def test_weights_are_readable_where_16_byte_copies_can_reach_each_row(found: tuple[Tensor, Tensor, Tensor]) -> None:
    gate, up, down = found
    faulty = [
        name
        for name, weight in zip(("gate", "up", "down"), found, strict=True)
        if weight[0].stride() != (1,)
        or weight.stride(0) < weight.shape[1]
        or any(row.data_ptr() % 16 for row in weight)
    ]
    reason = unreadable(Weights(gate, up, down))
    if faulty:
        assert reason is not None
        assert reason.startswith(f"{faulty[0]}_weight must ")
        assert "\n" not in reason
    elif gate.data_ptr() == up.data_ptr():
        assert reason == "gate_weight and up_weight share one memory"
    else:
        assert reason is None


@given(st.lists(st.integers(0, 1 << 45), min_size=1, max_size=5))
def test_the_unit_is_the_largest_power_of_two_up_to_16_that_divides_all(lengths: list[int]) -> None:
    assert _unit(*lengths) == max(unit for unit in (1, 2, 4, 8, 16) if all(n % unit == 0 for n in lengths))


@settings(max_examples=rings.examples(200))
@given(
    st.sampled_from(DTYPES),
    st.integers(1, 4),
    st.sampled_from([16, 32]),
    st.sampled_from([0, 1, 15, 16, 17, 20, 24, 32, 40]),
    st.sampled_from([1, 1, 1, 2]),
    st.integers(0, 16),
)
def test_rows_are_copied_only_where_they_cannot_be_read(
    dtype: torch.dtype, rows: int, columns: int, stride: int, step: int, offset: int
) -> None:
    x = torch.arange(512.0).to(dtype).as_strided((rows, columns), (stride, step), offset)
    got = aligned_rows(x)
    assert torch.equal(got, x)
    assert got.stride(1) == 1
    assert got.stride(0) >= columns
    assert not any(row.data_ptr() % 16 for row in got)
    readable = (
        step == 1 and stride >= columns and not any(address % 16 for address in (x.data_ptr(), stride * x.itemsize))
    )
    assert (got is x) == readable


# ---- whole calls -----------------------------------------------------------------------------------------------------


def buffer_of(order: str, gap: int, between: int, dtype: torch.dtype, seed: int = 0) -> tuple[Tensor, Tensor]:
    """gate and up [H, D] in one buffer in the order given, nan in the gaps after rows and between the two."""
    generator = torch.Generator().manual_seed(seed)
    stride = D + gap
    memory = torch.full((2 * H * stride + between,), float("nan"), dtype=dtype)
    ends = [memory.as_strided((H, D), (stride, 1), place) for place in (0, H * stride + between)]
    gate, up = ends if order == "gate first" else reversed(ends)
    for each in (gate, up):
        each.copy_(torch.randn(H, D, generator=generator) * D**-0.5)
    return gate, up


def operands(dtype: torch.dtype = torch.float16) -> tuple[Tensor, Tensor, Tensor]:
    """x [M, D], the down weight [D, H] and dy [M, D]."""
    generator = torch.Generator().manual_seed(1)
    shapes = ((M, D), (D, H), (M, D))
    x, down, dy = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    return x, down * H**-0.5, dy


def results(weights: Weights, dtype: torch.dtype = torch.float16) -> list[Tensor]:
    """y and all gradients of `gated_mlp`."""
    x, _, dy = operands(dtype)
    leaves = [x.requires_grad_(), *(each.detach().requires_grad_() for each in weights if each is not None)]
    y = gated_mlp(x, Weights(*leaves[1:]), "silu")
    return [y.detach(), *torch.autograd.grad(y, leaves, dy)]


def expected(weights: Weights, dtype: torch.dtype = torch.float16) -> list[Tensor]:
    """The same in fp64."""
    x, _, dy = operands(dtype)
    leaves = [each.detach().double().requires_grad_() for each in (x, *weights[:3])]
    exact, gate, up, down = leaves
    y = functional.linear(functional.silu(functional.linear(exact, gate)) * functional.linear(exact, up), down)
    return [y.detach(), *torch.autograd.grad(y, leaves, dy.double())]


def assert_near(got: list[Tensor], want: list[Tensor]) -> None:
    for one, other in zip(got, want, strict=True):
        eps = torch.finfo(one.dtype).eps
        torch.testing.assert_close(one.double(), other, rtol=8 * eps, atol=8 * eps * float(other.abs().max()))


def test_the_interpreter_runs_its_own_tiles_whatever_the_card() -> None:
    launch.card.cache_clear()
    assert launch.card(0) == launch.card(-1) == ((0, 0), 1, 0, "")


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("gap", "between"), [(0, 0), (16, 0), (8, 24), (0, 8)])
@pytest.mark.parametrize("order", ["gate first", "up first"])
def test_weights_of_one_buffer_are_read_in_place(order: str, gap: int, between: int, dtype: torch.dtype) -> None:
    gate, up = buffer_of(order, gap, between, dtype)
    weights = Weights(gate, up, operands(dtype)[1])
    assert unreadable(weights) is None
    assert_near(results(weights, dtype), expected(weights, dtype))


@pytest.mark.usefixtures("form")
def test_weights_with_strides_of_their_own_are_read_one_by_one() -> None:
    gate, _ = buffer_of("gate first", 0, 0, torch.float16)
    _, up = buffer_of("gate first", 8, 0, torch.float16)
    assert distance(gate, up) is None
    weights = Weights(gate, up, operands()[1])
    assert_near(results(weights), expected(weights))


@pytest.mark.usefixtures("form")
def test_weights_that_move_are_followed() -> None:
    """By assignment to `.data`, to the other side of one another, and to memory that another weight had before."""
    gate, up = (torch.nn.Parameter(each) for each in buffer_of("gate first", 0, 0, torch.float16))
    weights = Weights(gate, up, operands()[1])
    assert_near(results(weights), expected(weights))
    for seed, order in enumerate(("up first", "gate first", "up first"), start=1):
        gate.data, up.data = buffer_of(order, 0, 16 * seed, torch.float16, seed)
        assert_near(results(weights), expected(weights))
    gate.data, up.data = up.data, gate.data
    assert_near(results(weights), expected(weights))
    address = up.data_ptr()
    up.data = up.data.new_empty(0)
    replaced = torch.randn(H, D).half()  # often where the freed one was
    up.data = replaced
    assert_near(results(weights), expected(weights))
    assert up.data_ptr() == replaced.data_ptr()
    assert address


@pytest.mark.usefixtures("form")
def test_weights_that_move_where_they_cannot_be_read_are_refused() -> None:
    gate, up = (torch.nn.Parameter(each) for each in buffer_of("gate first", 0, 0, torch.float16))
    weights, x = Weights(gate, up, operands()[1]), operands()[0]
    gated_mlp(x, weights, "silu")
    up.data = torch.randn(H * D + 1).half()[1:].view(H, D)
    with pytest.raises(ValueError, match="up_weight must start at a multiple of 16 bytes, not at address 0x"):
        gated_mlp(x, weights, "silu")
    up.data = gate.data
    with pytest.raises(ValueError, match="gate_weight and up_weight share one memory"):
        gated_mlp(x, weights, "silu")
    up.data = torch.randn(D, H).half().T
    with pytest.raises(ValueError, match=r"up_weight must have rows of adjacent elements.*got strides \(1, 32\)"):
        gated_mlp(x, weights, "silu")


PRECISIONS = {
    "pass": "ieee",
    "matmul.allow_tf32 = True": "tf32",
    "matmul.fp32_precision = 'tf32'": "tf32",
    "matmul.allow_tf32 = True; matmul.fp32_precision = 'ieee'": "ieee",
    "torch.backends.fp32_precision = 'tf32'": "tf32",
    "torch.set_float32_matmul_precision('high')": "tf32",
}
IN_PROCESSES_OF_THEIR_OWN = """
import os, sys, torch
from mlpfusion_kernels.gate_up.launch import _precision
matmul = torch.backends.cuda.matmul
for setting in sys.argv[1:]:
    if not os.fork():
        exec(setting)
        print(_precision(torch.zeros(1)), _precision(torch.zeros(1).half()), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.full  # a process that imports PyTorch for each setting
def test_float32_is_multiplied_as_pytorch_is_told_to_by_whichever_setting() -> None:
    """PyTorch refuses to read one of its settings once another was used, for the rest of the process."""
    command = [sys.executable, "-c", IN_PROCESSES_OF_THEIR_OWN, *PRECISIONS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{precision} ieee" for precision in PRECISIONS.values()]


# ---- what is passed on -----------------------------------------------------------------------------------------------


class Recorder:
    """Takes the place of a kernel's launcher and writes down what it is called with."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *arguments: Any) -> None:
        self.calls.append(arguments)


def constants_of(kernel: Any, call: tuple[Any, ...], *, described: bool) -> tuple[Any, ...]:
    """The values of a kernel's compile-time parameters in one recorded call, and its compile options."""
    given_ = [*call[2].boxes(), *call[3], *call[4]] if described else [*call[2], *call[3]]
    names = list(kernel.fn.__code__.co_varnames[: kernel.fn.__code__.co_argcount])
    assert len(names) == len(given_)
    constants = tuple(value for name, value in zip(names, given_, strict=True) if name.isupper())
    return (*constants, *(str(option) for option in call[4 if not described else 5 :]))


KERNELS = [
    ("pointer", "_POINTER", gate_up_pointer_kernel, "forward"),
    ("wide", "_WIDE", gate_up_wide_kernel, "forward"),
    ("pointer", "_BACKWARD_POINTER", gate_up_backward_pointer_kernel, "backward"),
    ("wide", "_BACKWARD_TMA", gate_up_backward_tma_kernel, "backward"),
]


@pytest.mark.parametrize(("kind", "launcher", "kernel", "direction"), KERNELS)
def test_a_key_decides_the_constants_the_dtypes_and_the_options(
    monkeypatch: pytest.MonkeyPatch, kind: str, launcher: str, kernel: Any, direction: str
) -> None:
    """What is compiled is found again by its key alone: two that differ must not share one."""
    recorder = Recorder()
    monkeypatch.setattr(launch, launcher, recorder)
    compiled: dict[Any, Any] = {}
    matrix = itertools.product(DTYPES, ("silu", "relu"), (False, True), (False, True), (False, True), (48, 40))
    for dtype, activation, bias, keep, tf32, depth in matrix:
        use_form(monkeypatch, kind)
        monkeypatch.setattr(launch, "_precision", lambda _x, tf32=tf32: "tf32" if tf32 else "ieee")
        x, weight = torch.zeros(M, depth, dtype=dtype), torch.zeros(2 * H, depth, dtype=dtype)
        biases = [torch.zeros(H, dtype=dtype)] * 2 if bias else [None, None]
        for gate, up in ((weight[:H], weight[H:]), (weight[H:], weight[:H])):
            if direction == "forward":
                gate_up_forward(x, Weights(gate, up, weight.T.contiguous(), *biases), activation, keep)
            else:
                products = torch.zeros(2, M, H, dtype=dtype)
                gate_up_backward(x, torch.zeros(depth, H, dtype=dtype), products[0], products[1], activation)
            call = recorder.calls[-1]
            what = (dtype, constants_of(kernel, call, described=kind == "wide"))
            assert compiled.setdefault(call[0], what) == what
    assert len(compiled) == len(set(compiled.values())) >= 8
