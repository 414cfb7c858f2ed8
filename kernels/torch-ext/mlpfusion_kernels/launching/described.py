"""Launches a kernel that takes tensor descriptors, and caches their encoded form."""

# Kernels are called by position.
# ruff: noqa: PLR0917

from __future__ import annotations

import copy
import inspect
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from triton.compiler import CompiledKernel

from .cached import CACHE_LIMIT, is_interpreted, is_watched, launch_hooks, launch_on_host, may_launch_directly

if TYPE_CHECKING:
    from collections.abc import Callable


class Box(NamedTuple):
    """A strided tensor as a descriptor sees it: read or written in blocks of one shape."""

    tensor: torch.Tensor  # any tensor that starts at the first element; its own shape does not matter
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[int, ...]


def box_of(tensor: torch.Tensor, *block: int) -> Box:
    """The box of a whole tensor."""
    return Box(tensor, tuple(tensor.shape), tensor.stride(), block)


class Described(NamedTuple):
    """The tensors behind a launch's descriptors, and how to make their boxes, which a launch like the last spares.

    The addresses of `tensors`, the numbers in `extents` and the launch's key decide every box that `boxes` makes.
    """

    tensors: tuple[torch.Tensor, ...]
    extents: tuple[int, ...]
    boxes: Callable[[], tuple[Box, ...]]


class _Direct(NamedTuple):
    """A compiled kernel with a launcher that takes encoded descriptors, and those that it was given.

    `encoded` holds them one by one, `launches` all those of a launch: six looked up at once take 10 us less than one by
    one, and of a launch on other tensors only those that are new are encoded.
    """

    compiled: CompiledKernel
    run: Any
    metas: list[Any]
    encoded: dict[tuple[object, ...], list[Any]]
    launches: dict[tuple[int, ...], list[Any]]


class DescribedKernel:
    """A JIT kernel whose first arguments are tensor descriptors, and which remembers what it compiled and encoded.

    `kernel[grid](...)` encodes each descriptor on the host at each launch: 38-83 us a launch with three of them on a
    slow host. An encoded descriptor says where a tensor lies and what its shape is, no more, so it is kept by just
    that, together with no tensor.
    """

    def __init__(self, kernel: Any, describe: Callable[[Box], Any]) -> None:
        """`describe` makes the descriptor that the kernel's language wants from a box."""
        self.kernel = kernel
        self.describe = describe
        self.interpreted = is_interpreted(kernel)
        self._direct: dict[tuple[object, ...], _Direct] = {}

    def __call__(
        self,
        key: tuple[object, ...],
        programs: int,
        described: Described,
        tensors: tuple[torch.Tensor, ...],
        rest: tuple[Any, ...],
        options: dict[str, Any],
    ) -> None:
        """Launch `programs` programs on the current stream of the tensors' device.

        `key` must contain the device index, the dtypes, the blocks, the constants in `rest` and the compile options.
        """
        first = described.tensors[0]
        if not first.is_cuda:
            launch_on_host(self.kernel, first.device)
            self._launch_by_jit(programs, described, tensors, rest, options)
            return
        index = first.get_device()
        if torch._C._cuda_getDevice() == index:
            self._launch_on_current(key, index, programs, described, tensors, rest, options)
        else:
            with torch.cuda.device(index):
                self._launch_on_current(key, index, programs, described, tensors, rest, options)

    def _launch_by_jit(
        self,
        programs: int,
        described: Described,
        tensors: tuple[torch.Tensor, ...],
        rest: tuple[Any, ...],
        options: dict[str, Any],
    ) -> Any:
        return self.kernel[(programs,)](*map(self.describe, described.boxes()), *tensors, *rest, **options)

    def _launch_on_current(
        self,
        key: tuple[object, ...],
        index: int,
        programs: int,
        described: Described,
        tensors: tuple[torch.Tensor, ...],
        rest: tuple[Any, ...],
        options: dict[str, Any],
    ) -> None:
        addresses = [tensor.data_ptr() for tensor in tensors]
        enter, leave = launch_hooks()
        direct = self._direct.get(key)
        if (
            direct is None
            or any(address & 15 for address in addresses)
            or is_watched(enter, leave)
            or self.interpreted
            or not may_launch_directly(self.kernel)
        ):
            compiled = self._launch_by_jit(programs, described, tensors, rest, options)
            if direct is None and not any(address & 15 for address in addresses):
                self._keep(key, compiled)
            return
        where = (*[tensor.data_ptr() for tensor in described.tensors], *described.extents)
        arguments = direct.launches.get(where)
        if arguments is None:
            arguments = [each for place in enumerate(described.boxes()) for each in self._encode(direct, *place)]
            _bounded(direct.launches)[where] = arguments
        direct.run(
            programs,
            1,
            1,
            torch._C._cuda_getCurrentRawStream(index),
            direct.compiled.function,
            direct.compiled.packed_metadata,
            None,
            None,
            None,
            *arguments,
            *addresses,
            *rest,
        )

    def _keep(self, key: tuple[object, ...], compiled: Any) -> None:
        """Remember a compiled kernel, if its launcher is one that can be given encoded descriptors."""
        if type(compiled) is not CompiledKernel or not may_launch_directly(self.kernel):
            return
        metas = getattr(compiled.metadata, "tensordesc_meta", None)
        # In Triton 3.6 and 3.7 `run.launch` encodes the descriptors for the `launcher` that it closes over.
        launcher = inspect.getclosurevars(compiled.run.launch).nonlocals.get("launcher")
        if not metas or launcher is None:
            return
        run = copy.copy(compiled.run)
        run.launch = launcher
        _bounded(self._direct)[key] = _Direct(compiled, run, metas, {}, {})

    def _encode(self, direct: _Direct, position: int, box: Box) -> list[Any]:
        """The launcher's arguments for one descriptor: the encoded form, the shape and the strides."""
        from triton.backends.nvidia.driver import make_tensordesc_arg

        key = (position, box.tensor.data_ptr(), box.shape, box.strides)
        found = direct.encoded.get(key)
        if found is None:
            found = _bounded(direct.encoded)[key] = make_tensordesc_arg(self.describe(box), direct.metas[position])
        return found


def _bounded(cache: dict[Any, Any]) -> dict[Any, Any]:
    """The cache with room for one more, for which a full one starts over."""
    if len(cache) >= CACHE_LIMIT:
        cache.clear()
    return cache
