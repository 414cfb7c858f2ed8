"""`compile` and its modes: what they need."""

from __future__ import annotations

import pytest

from mlpfusion.backends import compiled
from mlpfusion.device import Device
from mlpfusion.spec import MLPSpec

SPEC = MLPSpec(hidden_size=16, intermediate_size=24)
CPU = Device(kind="cpu", name="some CPU")
ALL = (compiled.Compile(), compiled.CompileMaxAutotune(), compiled.CompileCudagraphs())


def gpu(capability, runtime="cuda") -> Device:
    return Device(kind="cuda", name="a card", runtime=runtime, capability=capability)


@pytest.mark.parametrize("backend", ALL)
def test_old_cards_are_refused_with_their_capability(backend):
    assert backend.unsupported(SPEC, gpu((9, 0))) is None
    assert backend.unsupported(SPEC, gpu((7, 0))) is None
    assert "a card has 6.1" in backend.unsupported(SPEC, gpu((6, 1)))
    assert backend.unsupported(SPEC, gpu((6, 1), "rocm")) is None  # AMD counts its architectures differently


def test_the_cpu_needs_a_compiler(monkeypatch):
    assert compiled.Compile().unsupported(SPEC, CPU) is None
    monkeypatch.setenv("PATH", "")
    assert "none of g++, clang++, c++ is on the PATH" in compiled.Compile().unsupported(SPEC, CPU)


def test_cuda_graphs_need_a_gpu():
    assert compiled.CompileCudagraphs().unsupported(SPEC, CPU) == "CUDA graphs need a GPU; this run is on the CPU"
