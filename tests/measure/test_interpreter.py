"""The interpreter's conversions between float32 and bfloat16, bit by bit, and its list of builtins."""

from __future__ import annotations

import inspect
import types

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from mlpfusion.measure.interpreter import bfloat16_bits, float32_bits, list_builtins_once, round_to_nearest_even


@triton.jit
def cast_kernel(source, target, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(target + offsets, tl.load(source + offsets).to(target.dtype.element_ty))


def cast(source: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    target = torch.empty_like(source, dtype=dtype)
    cast_kernel[(1,)](source, target, BLOCK=source.numel())
    return target


def hard_float32_values() -> torch.Tensor:
    """Every upper half of a float32 with the lower halves around the points where rounding changes."""
    upper = np.arange(2**16, dtype=np.uint32) << np.uint32(16)
    lower = np.array([0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x1234, 0xC0DE], dtype=np.uint32)
    return torch.from_numpy((upper[:, None] | lower[None, :]).ravel().view(np.float32))


def assert_same_values(got: torch.Tensor, want: torch.Tensor) -> None:
    integer = torch.int16 if want.dtype is torch.bfloat16 else torch.int32
    assert torch.equal(got.isnan(), want.isnan())
    numbers = ~want.isnan()
    assert torch.equal(got[numbers].view(integer), want[numbers].view(integer))


def test_float32_to_bfloat16_rounds_as_pytorch_does() -> None:
    round_to_nearest_even()
    values = hard_float32_values()
    assert_same_values(cast(values, torch.bfloat16), values.bfloat16())
    bits = torch.from_numpy(bfloat16_bits(values.numpy()).view(np.int16)).view(torch.bfloat16)
    assert_same_values(bits, values.bfloat16())


def test_bfloat16_to_float32_is_exact() -> None:
    round_to_nearest_even()
    values = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    assert_same_values(cast(values, torch.float32), values.float())
    bits = torch.from_numpy(float32_bits(values.view(torch.int16).numpy()).view(np.float32))
    assert_same_values(bits, values.float())


def test_float16_stays_as_it_was() -> None:
    values = hard_float32_values()[::64].contiguous()
    before = cast(values, torch.float16)
    round_to_nearest_even()
    assert_same_values_16(cast(values, torch.float16), before)


def assert_same_values_16(got: torch.Tensor, want: torch.Tensor) -> None:
    assert torch.equal(torch.nan_to_num(got, nan=7.0), torch.nan_to_num(want, nan=7.0))


def test_a_second_call_changes_nothing() -> None:
    round_to_nearest_even()
    once = interpreter._convert_float
    round_to_nearest_even()
    assert interpreter._convert_float is once


def test_an_unknown_triton_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_convert_float", lambda values: values)
    with pytest.raises(RuntimeError, match=rf"triton {triton.__version__}: its interpreter's _convert_float"):
        round_to_nearest_even()


@triton.jit
def exponential(x):
    return tl.exp(x)


@triton.jit
def exponentials_kernel(source, target, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(target + offsets, exponential(tl.load(source + offsets)) + exponential(0.0 * tl.load(source)))


@triton.jit
def failing_kernel(source):
    tl.store(source, exponential(tl.load(source)) + not_there)  # type: ignore[name-defined]  # noqa: F821


def exponentials() -> torch.Tensor:
    source, target = torch.linspace(-2, 2, 16), torch.empty(16)
    exponentials_kernel[(1,)](source, target, BLOCK=16)
    assert tl.core.is_builtin(tl.exp), "what is patched is put back"
    return target


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> object:
    """The list as a new process has it."""
    monkeypatch.setattr(interpreter, "inspect", inspect)
    before = exponentials()
    list_builtins_once()
    assert torch.equal(exponentials(), before)
    return interpreter.inspect  # type: ignore[attr-defined]


def test_the_builtins_are_those_that_are_found_without_a_list(listing: object) -> None:
    for each in (tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base):
        found = [(name, member) for name, member in inspect.getmembers(each) if tl.core.is_builtin(member)]
        assert listing.getmembers(each) == found  # type: ignore[attr-defined]
    list_builtins_once()
    assert interpreter.inspect is listing  # type: ignore[attr-defined]


def test_a_builtin_that_is_replaced_is_called_in_the_next_launch(
    listing: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = exponentials()
    original = tl.exp

    @tl.core.builtin
    def twice(x, _semantic=None):
        return original(x, _semantic=_semantic).__mul__(2.0, _semantic=_semantic)

    monkeypatch.setattr(tl, "exp", twice)
    torch.testing.assert_close(exponentials(), 2 * right)
    monkeypatch.undo()


def test_a_builtin_that_another_launch_has_patched_is_known_afterwards(listing: object) -> None:
    def _patch_attr() -> object:
        return lambda x: x

    language = types.ModuleType("language")
    language.load, language.exp, language.plain = tl.load, _patch_attr(), len  # type: ignore[attr-defined]
    assert listing.getmembers(language) == [("load", tl.load)]  # type: ignore[attr-defined]
    language.exp = tl.exp  # type: ignore[attr-defined]
    assert listing.getmembers(language) == [("exp", tl.exp), ("load", tl.load)]  # type: ignore[attr-defined]


def test_a_builtin_that_comes_later_is_found(listing: object, monkeypatch: pytest.MonkeyPatch) -> None:
    @tl.core.builtin
    def later(x, _semantic=None):
        return x

    monkeypatch.setattr(tl, "later", later, raising=False)
    assert ("later", later) in listing.getmembers(tl)  # type: ignore[attr-defined]


def test_builtins_are_found_after_a_launch_that_failed(listing: object) -> None:
    right = exponentials()
    with pytest.raises(interpreter.InterpreterError, match="not_there"):
        failing_kernel[(1,)](torch.ones(16))
    assert torch.equal(exponentials(), right)
