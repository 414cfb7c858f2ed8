"""Launches of Triton kernels: which count, and that none does anything while they are off."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch
from triton.backends.amd.driver import HIPLauncher
from triton.backends.nvidia.driver import CudaLauncher
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


class Direct:
    """What stands for a compiled kernel's launcher, which a target may call by itself."""

    def __init__(self, maker: type, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[object, ...]] = []
        monkeypatch.setattr(maker, "__call__", lambda _, *args: self.calls.append(args))
        launches.install()
        self.launch = object.__new__(maker)


@pytest.fixture(params=[CudaLauncher, HIPLauncher])
def direct(request: pytest.FixtureRequest, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> Direct:
    return Direct(request.param, monkeypatch)


@pytest.mark.parametrize("off", [False, True])
def test_a_launch_past_the_kernel_counts_too(direct: Direct, off: bool) -> None:
    launches.install()
    with launches.counted(off=off) as made:
        direct.launch(1, 1, 1)
    assert (made.tried, made.count) == (1, 1)
    assert direct.calls == [] if off else [(1, 1, 1)]


def test_a_launch_through_the_kernel_counts_once(direct: Direct, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JITFunction, "run", lambda *_: direct.launch(1, 1, 1))
    launches.install()
    with launches.counted() as made:
        JITFunction.run("a")
        direct.launch(2, 1, 1)
    assert made.count == 2
    assert direct.calls == [(1, 1, 1), (2, 1, 1)]


def below(launch: Any, depth: int) -> None:
    """Launch from functions inside each other."""
    if depth:
        below(launch, depth - 1)
    else:
        launch(1, 1, 1)


def scope_of(module: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the functions of a module that is there see."""
    monkeypatch.setitem(sys.modules, module, types.ModuleType(module))
    return vars(sys.modules[module])


@pytest.mark.parametrize(
    ("module", "depth", "counts"),
    [("torch._inductor.runtime.triton_heuristics", 1, 0), ("generated", 1, 1), ("torch._inductor.x", 5, 1)],
)
def test_a_launch_of_inductors_is_none_of_the_targets(
    direct: Direct, monkeypatch: pytest.MonkeyPatch, module: str, depth: int, counts: int
) -> None:
    """Inductor calls a launcher by code that it generates; a target's operator in compiled code is further below it."""
    scope = scope_of(module, monkeypatch)
    scope["below"] = below
    exec("def outer(launch, depth): below(launch, depth)", scope)
    with launches.counted(off=True) as made:
        scope["outer"](direct.launch, depth)
    assert made.count == counts


def test_what_only_has_inductors_name_is_the_targets(direct: Direct) -> None:
    scope: dict[str, Any] = {"__name__": "torch._inductor.runtime.triton_heuristics"}
    exec("def outer(launch): launch(1, 1, 1)", scope)
    with launches.counted(off=True) as made:
        scope["outer"](direct.launch)
    assert made.count == 1


def test_a_replay_that_raises_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def replay(_: object) -> None:
        raise RuntimeError("nothing was captured")

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", replay)
    launches.install()
    with launches.counted() as made, pytest.raises(RuntimeError, match="nothing was captured"):
        torch.cuda.CUDAGraph.replay(object())  # type: ignore[arg-type]
    assert made.replays == 0


@pytest.mark.parametrize("off", [False, True])
@pytest.mark.parametrize("module", ["mine", "torch._inductor.cudagraph_trees"])
def test_a_graph_is_launched_by_its_replay(monkeypatch: pytest.MonkeyPatch, module: str, off: bool) -> None:
    replayed: list[object] = []
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", replayed.append)
    launches.install()
    scope = scope_of(module, monkeypatch)
    scope["replay"] = torch.cuda.CUDAGraph.replay
    exec("def run(graph): replay(graph)", scope)
    scope["run"]("before")
    with launches.counted(off=off) as made:
        scope["run"]("a")
    assert (made.replays, made.count) == (int(module == "mine"), 0)
    assert replayed == (["before"] if off and module == "mine" else ["before", "a"])
