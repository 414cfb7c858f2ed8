"""`compile` and its two modes: the eager forward through torch.compile."""

from __future__ import annotations

import functools
import shutil
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Final

import torch

from mlpfusion.backend import release
from mlpfusion.backends.eager import forward_of
from mlpfusion.errors import BackendUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from mlpfusion.backend import GatedLayers
    from mlpfusion.device import Device
    from mlpfusion.spec import MLPSpec

# Before 2.13 PyTorch's cache on disk keeps that autocast was on, not to which dtype: what was compiled under autocast
# to bfloat16 comes back for float16, in bfloat16 (github.com/pytorch/pytorch/pull/181564; seen in 2.11).
CACHE_MIXES_AUTOCAST: Final = release(torch.__version__) < (2, 13)

# What Inductor looks for on the CPU when the variable CXX is not set.
CPU_COMPILERS: Final = ("g++", "clang++", "c++")


class Compile:
    """torch.compile with default settings: three GEMMs and one fused kernel."""

    name = "compile"
    mode: str | None = None
    compiles = True
    takes_packed = True

    def unsupported(self, spec: MLPSpec, device: Device) -> str | None:
        """Inductor needs a C++ compiler on the CPU, and Triton on a GPU of compute capability 7.0 or later."""
        if device.interpreted and device.kind == "cuda":
            return "Inductor's Triton kernels do not run in Triton's interpreter (TRITON_INTERPRET=1)"
        if device.kind == "cpu" and not any(shutil.which(compiler) for compiler in CPU_COMPILERS):
            return f"Inductor needs a C++ compiler on the CPU; none of {', '.join(CPU_COMPILERS)} is on the PATH"
        if device.capability is not None and device.runtime == "cuda" and device.capability < (7, 0):
            major, minor = device.capability
            return f"Inductor needs compute capability 7.0 or later; {device.name} has {major}.{minor}"
        return None

    def bind(self, mlp: GatedLayers) -> Callable[[Tensor], Tensor]:
        """Compiles at the first call of each new kind of input, not here.

        A call raises BackendUnavailableError at the kind of input at which PyTorch would give up compiling. Where
        PyTorch's cache on disk would mix up the dtypes of autocast, a call under autocast leaves it alone.
        """
        # A second of imports, which listing backends need not pay.
        from torch._dynamo.exc import FailOnRecompileLimitHit
        from torch._functorch import config as functorch_config

        forward = forward_of(mlp)
        own = FunctionType(
            _code_for(forward.__code__, mlp.spec, self.name), forward.__globals__, closure=forward.__closure__
        )
        compiled: Callable[[Tensor], Tensor] = torch.compile(own, fullgraph=True, mode=self.mode)
        name = self.name

        def call(x: Tensor) -> Tensor:
            try:
                if CACHE_MIXES_AUTOCAST and torch._C._is_any_autocast_enabled() and not torch.compiler.is_compiling():
                    with functorch_config.patch(enable_autograd_cache=False):
                        return compiled(x)
                return compiled(x)
            except FailOnRecompileLimitHit as error:
                limit = torch._dynamo.config.recompile_limit
                raise BackendUnavailableError(
                    name,
                    f"more than {limit} kinds of call (shapes, dtypes, gradient modes) of modules of one spec; PyTorch "
                    "gives up there: raise torch._dynamo.config.recompile_limit, or call torch.compiler.reset()",
                ) from error

        return call


@functools.cache
def _code_for(code: CodeType, spec: MLPSpec, backend: str) -> CodeType:
    """A code object for each kind of module.

    Dynamo counts recompilations by code object and gives up after eight: modules of one kind share what is compiled,
    and modules of another kind do not use up their limit.
    """
    return code.replace()


class CompileMaxAutotune(Compile):
    """torch.compile choosing every kernel by measuring candidates; without CUDA graphs, which have their own row."""

    name = "compile-max-autotune"
    mode = "max-autotune-no-cudagraphs"


class CompileCudagraphs(Compile):
    """torch.compile replaying CUDA graphs, its output copied out of the graph's buffer.

    Without the copy the next call would overwrite a kept y, and PyTorch 2.11 does not warn (seen on an H200). The copy
    is in the row, with its time.
    """

    name = "compile-cudagraphs"
    mode = "reduce-overhead"
    replays_graphs = True

    def unsupported(self, spec: MLPSpec, device: Device) -> str | None:
        """As `compile`, and CUDA graphs need a GPU."""
        if device.kind == "cpu":
            return "CUDA graphs need a GPU; this run is on the CPU"
        return super().unsupported(spec, device)

    def bind(self, mlp: GatedLayers) -> Callable[[Tensor], Tensor]:
        """As `compile`, and each y is the caller's to keep."""
        compiled = super().bind(mlp)
        return lambda x: compiled(x).clone()
