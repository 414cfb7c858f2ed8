"""A function that a target put in another's place is named, and so is its code; what PyTorch does itself is not."""

from __future__ import annotations

import math
import time
import types
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional

from mlpfusion import reference
from mlpfusion.stages.validate.worker.functions import Functions, judging

if TYPE_CHECKING:
    import pytest


def other(*_: Any, **__: Any) -> None:
    """A target's own."""


class Odd:
    """What can be called and names its globals in another way than a function."""

    __globals__ = "none"

    def __call__(self) -> None: ...


REPLACED = {
    "torch.relu": (torch, "relu"),
    "torch.Tensor.__mul__": (torch.Tensor, "__mul__"),
    "torch.Tensor.copy_": (torch.Tensor, "copy_"),  # which a base defines
    "torch.nn.functional.gelu": (functional, "gelu"),
    "torch.nn.GELU.forward": (nn.GELU, "forward"),
    "torch.autograd.grad": (torch.autograd, "grad"),
    "torch.cuda.Event.elapsed_time": (torch.cuda.Event, "elapsed_time"),
    "time.perf_counter_ns": (time, "perf_counter_ns"),
    "math.sqrt": (math, "sqrt"),
    "mlpfusion.reference.activate": (reference, "activate"),
}


def test_functions_in_others_places_are_named_until_they_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Functions()
    with monkeypatch.context() as patch:
        for place, name in REPLACED.values():
            patch.setattr(place, name, other)
        found = before.replaced()
    assert sorted(found) == sorted(REPLACED)
    assert before.replaced() == []


def test_other_code_in_a_function_is_named_and_so_is_a_function_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Functions()
    monkeypatch.setattr(functional.dropout, "__code__", other.__code__)
    monkeypatch.setattr(reference.activate, "__code__", other.__code__)
    monkeypatch.delattr(functional, "gelu")
    found = before.replaced()
    assert {name for name in found if name.startswith("torch.")} == {
        "torch.nn.functional.dropout",
        "torch.nn.functional.gelu",
    }
    assert "mlpfusion.reference.activate" in found  # and by the names of all modules that import it


def test_new_names_and_what_the_compiler_puts_in_a_place_replace_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Functions()
    monkeypatch.setattr(functional, "mine", other, raising=False)
    compiler_s = types.FunctionType(other.__code__, {"__name__": "torch._dynamo.eval_frame"})
    monkeypatch.setattr(functional, "gelu", compiler_s)
    assert before.replaced() == []


def test_a_place_may_have_anything_that_can_be_called(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"a_class": types.FunctionType, "globals_of_its_own": Odd(), "a_type": int}.items():
        monkeypatch.setattr(functional, name, value, raising=False)
    before = Functions()
    assert before.replaced() == []
    monkeypatch.setattr(functional, "a_class", types.MethodType)
    assert before.replaced() == ["torch.nn.functional.a_class"]


def test_an_operator_that_the_dispatcher_runs_instead_is_named() -> None:
    before = Functions()
    with warnings.catch_warnings(), torch.library._scoped_library("aten", "IMPL") as library:
        warnings.simplefilter("ignore")  # PyTorch says that it is overridden
        library.impl("tanh", lambda x: x, "CPU")
        found = before.replaced()
    assert [name for name in found if name.startswith("aten::")] == ["aten::tanh"]


def test_what_times_or_judges_a_target_is_told_apart() -> None:
    names = ["time.sleep", "torch.nn.functional.gelu", "torch.cuda.Event.record", "timer.x", "mlpfusion.reference.f"]
    assert judging(names) == ["time.sleep", "torch.cuda.Event.record", "mlpfusion.reference.f"]
