"""Which generated module is running, told by the stack, and how many graphs were compiled."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING

from mlpfusion.traffic.recording import generated_code

if TYPE_CHECKING:
    import pytest

CALLS = "def call(f):\n    return f()\n"


def generated(name: str) -> ModuleType:
    """A module as Inductor writes them: `call` runs a function from within it."""
    module = ModuleType(name)
    exec(CALLS, vars(module))
    return module


def test_outside_generated_code_none_is_running() -> None:
    assert generated_code.running() is None
    assert generated("mine").call(generated_code.running) is None


def test_the_innermost_generated_module_is_the_one() -> None:
    inner, outer = (generated(generated_code.PREFIX + name) for name in ("inner", "outer"))
    assert inner.call(generated_code.running) == "inner"
    assert outer.call(lambda: inner.call(generated_code.running)) == "inner"
    assert outer.call(lambda: generated("mine").call(generated_code.running)) == "outer"


def test_graphs_are_counted_only_where_dynamo_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = SimpleNamespace(counters={"stats": {"unique_graphs": 3}})
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", counted)
    assert generated_code.graphs_compiled() == 3
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils")
    assert generated_code.graphs_compiled() == 0
