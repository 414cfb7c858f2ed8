"""Launches a Triton kernel at the lowest host cost that this Triton version allows."""

# Kernels are called by position.
# ruff: noqa: PLR0917

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
from triton import knobs
from triton.compiler import CompiledKernel
from triton.knobs import HookChain
from triton.runtime.jit import JITFunction

if TYPE_CHECKING:
    from collections.abc import Callable

# Distinct (device, dtypes, tile, flags) combinations kept per kernel. A process that uses more starts over.
CACHE_LIMIT = 512

_NO_OPTIONS: dict[str, Any] = {}

_STOCK_MODULE = "triton.compiler.compiler"


def _triton_release() -> tuple[int, int]:
    major, minor = triton.__version__.split(".")[:2]
    return int(major), int(minor)


# CompiledKernel.run(grid0, grid1, grid2, stream, function, packed_metadata, launch_metadata, enter_hook, exit_hook,
# *arguments) was read in these releases, for CUDA. Every other one launches through `kernel[grid]`.
DIRECT_LAUNCH: bool = torch.version.cuda is not None and _triton_release() in ((3, 6), (3, 7))


class Launched(NamedTuple):
    """One launch as a listener gets it: the tensors that the kernel reads and those that it writes, by their roles."""

    kernel: Any
    grid: tuple[int, ...]
    reads: dict[str, torch.Tensor]
    writes: dict[str, torch.Tensor]


# A profiler that wants to know what launches touch adds itself here. Launches whose arguments say it, as those of
# `CachedKernel` do, need no word; one with ready-made descriptors, or with one tensor's address taken for two, does:
#     if LISTENERS:
#         announce(Launched(kernel, grid, {"x": x, "gate": gate, "up": up}, {"out": out}))
# right before it. While nobody listens that costs the look at an empty list.
LISTENERS: list[Callable[[Launched], None]] = []


def announce(launched: Launched) -> None:
    """Tell every listener of a launch that is about to happen."""
    for listener in LISTENERS:
        listener(launched)


def is_interpreted(kernel: Any) -> bool:
    """Whether TRITON_INTERPRET was set when the kernel was defined."""
    return not isinstance(kernel, JITFunction)


def launch_on_host(kernel: Any, device: torch.device) -> None:
    """Raise for a CPU tensor unless Triton's interpreter runs the kernel."""
    if device.type == "cpu" and not is_interpreted(kernel):
        raise RuntimeError(
            "mlpfusion_kernels: a Triton kernel cannot run on a CPU tensor; move it to a GPU, or set "
            "TRITON_INTERPRET=1 before importing this package to run in Triton's interpreter"
        )


def may_launch_directly(kernel: Any) -> bool:
    """Whether a launch past `kernel[grid]` does all that one through it would do now."""
    return (
        DIRECT_LAUNCH
        and not kernel.pre_run_hooks
        and not knobs.runtime.debug
        and not knobs.compilation.instrumentation_mode
        and knobs.runtime.add_stages_inspection_hook is None
    )


def launch_hooks() -> tuple[Any, Any]:
    """The enter and exit hooks. Triton's default ones are empty chains; None saves two Python calls per launch."""
    enter, leave = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    if type(enter) is HookChain and not enter.calls:
        enter = None
    if type(leave) is HookChain and not leave.calls:
        leave = None
    return enter, leave


def is_watched(enter: Any, leave: Any) -> bool:
    """Whether someone sees each launch with its arguments: by a hook, or by an instrumented `launch_metadata`."""
    return enter is not None or leave is not None or CompiledKernel.launch_metadata.__module__ != _STOCK_MODULE


class CachedKernel:
    """A JIT kernel that remembers what it compiled.

    `kernel[grid](...)` spends 17-32 us on the host (triton 3.6, slow host) to find the compiled kernel from its
    arguments. The caller here passes a key that already decides it; the second launch under one key goes straight to
    `CompiledKernel.run`. Launch hooks and launch metadata are honoured, so a profiler sees every launch.

    Rules for the kernel: pointers come first, every scalar is annotated and in `do_not_specialize`, so that dtypes,
    pointer alignment, constants and device are all that Triton specialises on.
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.interpreted = is_interpreted(kernel)
        self._compiled: dict[tuple[object, ...], CompiledKernel] = {}

    def __call__(
        self,
        key: tuple[object, ...],
        programs: int,
        tensors: tuple[torch.Tensor, ...],
        rest: tuple[Any, ...],
        warps: int,
        options: dict[str, Any] = _NO_OPTIONS,
    ) -> None:
        """Launch `programs` programs on the current stream of the tensors' own device.

        `key` must contain the device index, the dtypes, the constants and `warps`; `rest` holds scalars and constants.
        `options` are further compile options, `launch_pdl` say, decided by `key` too.
        """
        first = tensors[0]
        if not first.is_cuda:
            launch_on_host(self.kernel, first.device)
            if first.device.type == "cpu" or self.interpreted:
                self._launch_by_jit(programs, tensors, rest, warps, options)
            else:
                with torch.get_device_module(first.device).device(first.device):
                    self._launch_by_jit(programs, tensors, rest, warps, options)
            return
        index = first.get_device()
        if torch._C._cuda_getDevice() == index:
            self._launch_on_current(key, index, programs, tensors, rest, warps, options)
        else:
            with torch.cuda.device(index):
                self._launch_on_current(key, index, programs, tensors, rest, warps, options)

    def _launch_by_jit(
        self,
        programs: int,
        tensors: tuple[torch.Tensor, ...],
        rest: tuple[Any, ...],
        warps: int,
        options: dict[str, Any],
    ) -> Any:
        return self.kernel[(programs,)](*tensors, *rest, num_warps=warps, **options)

    def _launch_on_current(
        self,
        key: tuple[object, ...],
        index: int,
        programs: int,
        tensors: tuple[torch.Tensor, ...],
        rest: tuple[Any, ...],
        warps: int,
        options: dict[str, Any],
    ) -> None:
        addresses = [tensor.data_ptr() for tensor in tensors]
        low = 0
        for address in addresses:
            low |= address
        # Triton specialises each pointer on 16-byte alignment. Only "all aligned" is cached: fresh tensors always
        # are, and mixing cases up would make a misaligned vector access.
        if low & 15 or self.interpreted or not may_launch_directly(self.kernel):
            self._launch_by_jit(programs, tensors, rest, warps, options)
            return
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._launch_by_jit(programs, tensors, rest, warps, options)
            if type(compiled) is CompiledKernel:  # not a future of Triton's asynchronous compilation mode
                if len(self._compiled) >= CACHE_LIMIT:
                    self._compiled.clear()
                self._compiled[key] = compiled
            return
        enter, leave = launch_hooks()
        stream = torch._C._cuda_getCurrentRawStream(index)
        metadata = None
        if is_watched(enter, leave):
            metadata = compiled.launch_metadata((programs, 1, 1), stream, *tensors, *rest)
        compiled.run(
            programs,
            1,
            1,
            stream,
            compiled.function,
            compiled.packed_metadata,
            metadata,
            enter,
            leave,
            *addresses,
            *rest,
        )
