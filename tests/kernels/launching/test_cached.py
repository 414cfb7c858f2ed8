"""The direct launch: when it is taken, what it passes on and who sees it, with a stand-in for the compiled kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
from mlpfusion_kernels.elementwise import autograd
from mlpfusion_kernels.elementwise.autograd import _is_plain_cuda
from mlpfusion_kernels.launching import cached as cached_launching
from mlpfusion_kernels.launching.cached import CACHE_LIMIT, CachedKernel
from support.launched import Pointer, streams
from torch.autograd import forward_ad
from torch.utils.flop_counter import FlopCounterMode
from triton import knobs
from triton.compiler import CompiledKernel


class Kernel:
    """A JIT kernel that returns a compiled one, which only writes its arguments down."""

    def __init__(self) -> None:
        self.pre_run_hooks: list[Any] = []
        self.by_jit: list[tuple[Any, ...]] = []
        self.direct: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*arguments: Any, num_warps: int) -> CompiledKernel:
            self.by_jit.append((grid, arguments, num_warps))
            compiled: CompiledKernel = object.__new__(CompiledKernel)
            compiled.function, compiled.packed_metadata = "function", "packed"
            compiled.module = None  # nothing to unload
            compiled._run = self.run
            return compiled

        return launch

    def run(self, *arguments: Any) -> None:
        metadata, enter, leave = arguments[6:9]
        if enter is not None:
            enter(metadata)
        self.direct.append(arguments)
        if leave is not None:
            leave(metadata)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    streams(monkeypatch)
    monkeypatch.setattr(cached_launching, "DIRECT_LAUNCH", True)
    return Kernel()


def cached(kernel: Kernel) -> CachedKernel:
    launcher = CachedKernel(kernel)
    launcher.interpreted = False
    return launcher


ALIGNED: tuple[Any, ...] = (Pointer(256), Pointer(512))


def test_the_second_launch_under_a_key_is_direct(kernel: Kernel) -> None:
    launch = cached(kernel)
    for _ in range(3):
        launch(("key",), 5, ALIGNED, (100, "silu"), 4)
    assert kernel.by_jit == [((5,), (*ALIGNED, 100, "silu"), 4)]
    assert kernel.direct == [(5, 1, 1, 700, "function", "packed", None, None, None, 256, 512, 100, "silu")] * 2


def test_another_key_compiles_again(kernel: Kernel) -> None:
    launch = cached(kernel)
    for key in ("a", "b", "a"):
        launch((key,), 5, ALIGNED, (), 4)
    assert (len(kernel.by_jit), len(kernel.direct)) == (2, 1)


def test_misaligned_pointers_are_never_cached(kernel: Kernel) -> None:
    launch = cached(kernel)
    for pointers in (ALIGNED, (Pointer(264), Pointer(512)), (Pointer(256), Pointer(520)), ALIGNED):
        launch(("key",), 5, pointers, (), 4)
    assert (len(kernel.by_jit), len(kernel.direct)) == (3, 1)


def test_hooks_and_metadata_are_honoured(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, seen = cached(kernel), []
    monkeypatch.setattr(CompiledKernel, "launch_metadata", lambda _self, *arguments: arguments)
    launch(("key",), 5, ALIGNED, (100,), 4)
    launch(("key",), 5, ALIGNED, (100,), 4)
    assert kernel.direct[0][6] == ((5, 1, 1), 700, *ALIGNED, 100)  # an instrumented method sees tensors, not addresses
    monkeypatch.setattr(knobs.runtime, "launch_enter_hook", lambda metadata: seen.append(("enter", metadata)))
    monkeypatch.setattr(knobs.runtime, "launch_exit_hook", lambda metadata: seen.append(("exit", metadata)))
    launch(("key",), 5, ALIGNED, (100,), 4)
    metadata = ((5, 1, 1), 700, *ALIGNED, 100)
    assert seen == [("enter", metadata), ("exit", metadata)]


def test_hooks_added_to_triton_s_chain_are_honoured(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, seen = cached(kernel), []
    monkeypatch.setattr(CompiledKernel, "launch_metadata", lambda *_arguments: "metadata")
    launch(("key",), 5, ALIGNED, (), 4)
    knobs.runtime.launch_enter_hook.add(seen.append)
    try:
        launch(("key",), 5, ALIGNED, (), 4)
    finally:
        knobs.runtime.launch_enter_hook.remove(seen.append)
    assert len(kernel.direct) == 1
    assert kernel.direct[0][7] is knobs.runtime.launch_enter_hook


@pytest.mark.parametrize("reason", ["version", "debug", "instrumentation", "stages", "pre_run_hooks"])
def test_whatever_needs_tritons_own_launcher_gets_it(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    launch = cached(kernel)
    launch(("key",), 5, ALIGNED, (), 4)
    if reason == "version":
        monkeypatch.setattr(cached_launching, "DIRECT_LAUNCH", False)
    elif reason == "debug":
        monkeypatch.setattr(knobs.runtime, "debug", True)
    elif reason == "instrumentation":
        monkeypatch.setattr(knobs.compilation, "instrumentation_mode", "fpsan")
    elif reason == "stages":
        monkeypatch.setattr(knobs.runtime, "add_stages_inspection_hook", lambda *_: ("", ""))
    else:
        kernel.pre_run_hooks.append(print)
    launch(("key",), 5, ALIGNED, (), 4)
    assert (len(kernel.by_jit), len(kernel.direct)) == (2, 0)


def test_a_tensor_of_another_device_gets_a_guard(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[int] = []

    class Guard:
        def __init__(self, index: int) -> None:
            self.index = index

        def __enter__(self) -> None:
            entered.append(self.index)

        def __exit__(self, *_: object) -> None:
            entered.append(-1)

    monkeypatch.setattr(torch.cuda, "device", Guard)
    launch = cached(kernel)
    for _ in range(2):
        launch(("key", 1), 5, (Pointer(256, device=1),), (), 4)
    assert entered == [1, -1, 1, -1]
    assert kernel.direct[0][3] == 701


def test_the_cache_is_bounded(kernel: Kernel) -> None:
    launch = cached(kernel)
    for number in range(CACHE_LIMIT + 5):
        launch((number,), 1, ALIGNED, (), 4)
    assert len(launch._compiled) <= CACHE_LIMIT


def test_a_cpu_tensor_outside_the_interpreter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_launching, "is_interpreted", lambda _kernel: False)
    with pytest.raises(RuntimeError, match="cannot run on a CPU tensor; move it to a GPU, or set TRITON_INTERPRET=1"):
        CachedKernel(Kernel())((), 1, (torch.zeros(1),), (), 4)


def test_only_known_triton_releases_launch_directly() -> None:
    release = tuple(int(part) for part in triton.__version__.split(".")[:2])
    assert (torch.version.cuda is not None and release in ((3, 6), (3, 7))) == cached_launching.DIRECT_LAUNCH


class Looks(torch.Tensor):
    """A subclass: exact tensors only take the direct way."""


def test_what_keeps_a_call_from_the_direct_way(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(3)
    assert not _is_plain_cuda(x, x)  # a CPU tensor

    class Cuda:
        is_cuda, negated, zero = True, False, False

        def is_neg(self) -> bool:
            return self.negated

        def _is_zerotensor(self) -> bool:
            return self.zero

    monkeypatch.setattr(autograd, "PLAIN", frozenset((Cuda,)))
    plain: Any = Cuda()
    assert _is_plain_cuda(plain, plain)
    subclass: Any = x.as_subclass(Looks)
    assert not _is_plain_cuda(subclass, plain)
    assert not _is_plain_cuda(plain, subclass)
    for trait in ("negated", "zero"):
        odd: Any = Cuda()
        setattr(odd, trait, True)
        assert not _is_plain_cuda(odd, plain)
        assert not _is_plain_cuda(plain, odd)
    with FlopCounterMode(display=False):
        assert not _is_plain_cuda(plain, plain)
    with torch.device("cpu"):
        assert not _is_plain_cuda(plain, plain)
    with forward_ad.dual_level():
        assert not _is_plain_cuda(plain, plain)
    seen = []
    torch.func.vmap(lambda row: (seen.append(_is_plain_cuda(plain, plain)), row)[1])(x)
    assert seen == [False]
    with torch.autocast("cpu"), torch.autograd.graph.save_on_cpu():
        assert _is_plain_cuda(plain, plain)
