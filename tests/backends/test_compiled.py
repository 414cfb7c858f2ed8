"""`compile` and its modes: what they need."""

from __future__ import annotations

import pytest
import torch

from mlpfusion.backends import compiled
from mlpfusion.device import Device
from mlpfusion.module import GatedMLP
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


def test_each_mode_is_the_one_that_its_name_says(monkeypatch):
    seen = []
    monkeypatch.setattr(torch, "compile", lambda call, **options: seen.append(options["mode"]) or call)
    for backend in ALL:
        backend.bind(GatedMLP(MLPSpec(hidden_size=16, intermediate_size=24)))
    assert seen == [None, "max-autotune-no-cudagraphs", "reduce-overhead"]


def test_the_output_of_a_cuda_graph_is_copied_out_of_its_buffer(monkeypatch):
    buffer = torch.ones(3)
    monkeypatch.setattr(compiled.Compile, "bind", lambda self, mlp: lambda x: buffer.fill_(x.sum()))
    call = compiled.CompileCudagraphs().bind(GatedMLP(MLPSpec(hidden_size=16, intermediate_size=24)))
    kept = call(torch.ones(2))
    call(torch.ones(5))
    assert kept.tolist() == [2, 2, 2]


@pytest.mark.skipif(compiled.Compile().unsupported(SPEC, CPU) is not None, reason="Inductor needs a C++ compiler")
@pytest.mark.full  # three compilations without a cache
def test_autocast_to_another_dtype_is_not_what_was_compiled_for_the_first(monkeypatch, tmp_path):
    """PyTorch's cache on disk would give it back before 2.13, to another process too."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    mlp = GatedMLP(SPEC, backend="compile")
    x = torch.randn(3, SPEC.hidden_size)
    for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
        torch.compiler.reset()  # as in another process
        with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
            assert mlp(x).dtype is dtype


@pytest.mark.parametrize("mixes", [True, False])
def test_the_cache_on_disk_is_left_alone_only_where_it_mixes_dtypes_of_autocast(monkeypatch, mixes):
    from torch._functorch import config

    monkeypatch.setattr(compiled, "CACHE_MIXES_AUTOCAST", mixes)
    monkeypatch.setattr(torch, "compile", lambda call, **options: lambda x: config.enable_autograd_cache)
    call, x = compiled.Compile().bind(GatedMLP(SPEC)), torch.ones(2, SPEC.hidden_size)
    with config.patch(enable_autograd_cache=True):
        assert call(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert call(x) is not mixes
        assert call(x)
