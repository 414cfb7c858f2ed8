"""Launches of Triton kernels: which count, and that none does anything while they are off."""

from __future__ import annotations

from typing import Any

import pytest
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from mlpfusion.stages.validate.worker import launches


class Kernel:
    """What stands for `run` of Triton's kernels: it remembers its calls, and fails if it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[object, ...]] = []

        def run(*args: Any, fails: bool = False, **kwargs: Any) -> str:
            if fails:
                raise RuntimeError("out of resources")
            self.calls.append(args)
            return "launched"

        for kind in (InterpretedFunction, JITFunction):
            monkeypatch.setattr(kind, "run", run)
        launches.install()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    return Kernel(monkeypatch)


KINDS = pytest.mark.parametrize("kind", [InterpretedFunction, JITFunction])


@KINDS
def test_each_launch_counts_while_it_is_on(kernel: Kernel, kind: Any) -> None:
    kind.run("before")
    with launches.counted() as made:
        assert kind.run("a", grid=(1,)) == "launched"
        kind.run("b")
    kind.run("after")
    assert (made.tried, made.count) == (2, 2)
    assert [each for (each,) in kernel.calls] == ["before", "a", "b", "after"]


@KINDS
def test_a_launch_that_is_off_counts_and_does_nothing(kernel: Kernel, kind: Any) -> None:
    with launches.counted(off=True) as made:
        assert kind.run("a") is None
    assert (made.tried, made.count) == (1, 1)
    assert kernel.calls == []
    assert kind.run("b") == "launched"


def test_a_launch_that_raises_was_tried(kernel: Kernel) -> None:
    with launches.counted() as made, pytest.raises(RuntimeError, match="out of resources"):
        JITFunction.run(fails=True)
    assert (made.tried, made.count) == (1, 0)
    assert kernel.calls == []


@pytest.mark.parametrize("off", [False, True])
def test_a_warmup_is_no_launch(kernel: Kernel, off: bool) -> None:
    with launches.counted(off=off) as made:
        JITFunction.run("a", warmup=True)
    assert (made.tried, made.count) == (0, 0)
    assert kernel.calls == [("a",)]


@pytest.mark.parametrize("outer_off", [False, True])
def test_an_inner_count_counts_for_the_outer_too_and_any_turns_launches_off(kernel: Kernel, outer_off: bool) -> None:
    with launches.counted(off=outer_off) as outer:
        JITFunction.run("a")
        with launches.counted(off=not outer_off) as inner:
            JITFunction.run("b")
        JITFunction.run("c")
    assert (outer.count, inner.count) == (3, 1)
    assert [each for (each,) in kernel.calls] == ([] if outer_off else ["a", "c"])


def test_what_is_left_by_an_exception_counts_no_more(kernel: Kernel) -> None:
    with pytest.raises(ZeroDivisionError), launches.counted(off=True) as made:
        raise ZeroDivisionError
    assert JITFunction.run("a") == "launched"
    assert made.tried == 0


@KINDS
def test_a_second_install_counts_nothing_twice(kernel: Kernel, kind: Any) -> None:
    launches.install()
    with launches.counted() as made:
        kind.run("a")
    assert made.count == 1
    assert kernel.calls == [("a",)]
