"""Launches of handwritten Triton kernels in the ledger: by the interpreter, by Triton, and by our fast path."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mlpfusion_kernels.launching import cached
from mlpfusion_kernels.launching.cached import CachedKernel, Launched
from support.halved import halve, watched
from triton.compiler import CompiledKernel
from triton.runtime.jit import JITFunction

from mlpfusion.records.traffic import Run
from mlpfusion.traffic.recording import triton_launches
from mlpfusion.traffic.recording.ledger import Ledgers

CODE = """
tt.func public @mul(%a: !tt.ptr<f32>, %b: !tt.ptr<f32>, %out: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {
  %0 = tt.load %a : !tt.ptr<f32>
  %1 = tt.load %b : !tt.ptr<f32>
  tt.store %out, %1 : !tt.ptr<f32>
  tt.return
}
"""


# ---- compiled kernels ------------------------------------------------------------------------------------------------


def compiled(code: str | None = CODE, name: str = "mul") -> CompiledKernel:
    made: Any = object.__new__(CompiledKernel)
    made.asm = {} if code is None else {"ttir": code}
    made.name = name
    made.src = SimpleNamespace()
    made.function, made.packed_metadata = "function", "packed"
    made._init_handles, made.module = lambda: None, None  # nothing to load, and nothing to unload
    kernel: CompiledKernel = made
    return kernel


def tensors():
    return torch.zeros(4), torch.ones(8), torch.zeros(4, 4)[:, :2]


def seen(run) -> Any:
    ledgers = Ledgers({})
    with triton_launches.watched(ledgers):
        run()
    return ledgers.finished().launches


def test_a_launch_is_read_from_the_kernels_own_code():
    a, b, out = tensors()
    (launch,) = seen(lambda: compiled().launch_metadata((1,), 0, a, b, out, 7))
    assert (launch.op, launch.source, launch.unknown) == ("mul", "triton", None)
    assert [access.bytes for access in launch.reads] == [16, 32]
    assert [access.runs for access in launch.writes] == [(Run(0, 8, 16, 4),)]


def test_a_descriptor_stands_for_the_tensor_below_it():
    a, b, out = tensors()
    described = SimpleNamespace(base=a, shape=[2, 2], strides=[2, 1])
    (launch,) = seen(lambda: compiled().launch_metadata((1,), 0, described, b, (out, 3), 7))
    assert [len(launch.reads), len(launch.writes)] == [2, 1]
    assert launch.reads[0].bytes == 16


def test_a_descriptor_over_two_weights_touches_both():
    store = torch.zeros(100)
    gate = store[10:26].view(4, 4)  # and the other from 60 on
    both = SimpleNamespace(base=gate, shape=[2, 4, 4], strides=[50, 4, 1])
    out = torch.zeros(4)
    (launch,) = seen(lambda: compiled().launch_metadata((1,), 0, both, out, out, 7))
    assert launch.reads[0].runs == (Run(40, 64, 200, 2),)
    far = torch.empty(4), torch.empty(4)  # two allocations, read through the distance between them
    first, second = sorted(far, key=lambda one: one.data_ptr())
    apart = (second.data_ptr() - first.data_ptr()) // 4
    ledgers = Ledgers({"gate": first, "up": second})
    found = ledgers.span(first, [2, 4], [apart, 1])
    assert [(access.buffer, access.bytes) for access in found] == [(0, 16), (1, 16)]
    with pytest.raises(ValueError, match="none of its arguments"):
        Ledgers({"gate": first}).span(first, [2, 4], [apart, 1])


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (None, "keeps no intermediate code"),
        (CODE.replace("tt.store %out, %1", "ttng.store %out"), "ttng.store"),
        (CODE.replace(", %out: !tt.ptr<f32>", "").replace("tt.store %out", "tt.store %a"), "2 pointers"),
    ],
)
def test_what_the_code_does_not_tell_is_not_trusted(code, says):
    (launch,) = seen(lambda: compiled(code).launch_metadata((1,), 0, *tensors(), 7))
    assert says in launch.unknown


def test_everything_is_as_it_was_afterwards():
    before, listeners = CompiledKernel.launch_metadata, list(cached.LISTENERS)
    with pytest.raises(ZeroDivisionError):
        seen(lambda: 1 / 0)
    assert CompiledKernel.launch_metadata is before
    assert cached.LISTENERS == listeners == []


# ---- our fast path ---------------------------------------------------------------------------------------------------


class Kernel:
    """A JIT kernel whose compiled form only counts its launches."""

    def __init__(self) -> None:
        self.pre_run_hooks: list[Any] = []
        self.direct = 0

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*arguments: Any, **options: Any) -> CompiledKernel:
            made = compiled()
            made._run = self.run
            made.launch_metadata(grid, 0, *arguments)  # as Triton's own launcher does
            return made

        return launch

    def run(self, *arguments: Any) -> None:
        self.direct += 1


def test_launches_of_our_fast_path_are_seen(monkeypatch):
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 0, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 700, raising=False)
    monkeypatch.setattr(cached, "DIRECT_LAUNCH", True)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda self: 0)
    kernel = Kernel()
    launcher = CachedKernel(kernel)
    launcher.interpreted = False
    given = (torch.zeros(64), torch.ones(64), torch.zeros(64))
    found = seen(lambda: [launcher(("key",), 5, given, (7,), 4) for _ in range(3)])
    assert kernel.direct == 2
    assert [(launch.op, len(launch.reads), len(launch.writes)) for launch in found] == [("mul", 2, 1)] * 3


def function(name: str) -> JITFunction:
    made: JITFunction = object.__new__(JITFunction)
    made.__name__ = name
    return made


def test_an_announced_launch_is_written_down_with_its_roles_and_once():
    x, weight, out = tensors()

    def run() -> None:
        cached.announce(Launched(function("wide"), (1, 1, 1), {"x": x, "up": weight}, {"out": out}))
        compiled(None, "wide").launch_metadata((1,), 0, object(), 7)  # its arguments say nothing
        cached.announce(Launched(function("wide"), (1, 1, 1), {"x": x}, {"out": out}))  # no metadata asked for
        compiled(CODE, "mul").launch_metadata((1,), 0, x, weight, out, 7)

    found = seen(run)
    assert [(launch.op, launch.source, len(launch.reads), launch.unknown) for launch in found] == [
        ("wide", "declared", 2, None),
        ("wide", "declared", 1, None),
        ("mul", "triton", 2, None),
    ]


def test_the_interpreter_knows_better_than_an_announcement():
    x, out = torch.randn(20), torch.zeros(10)

    def call():
        if cached.LISTENERS:
            cached.announce(Launched(halve, (2,), {"x": x}, {"out": out}))
        halve[(2,)](x, out, 10, BLOCK=8)

    assert [launch.source for launch in watched(call, x=x).launches] == ["interpreter"]
