"""Observes the launches of handwritten Triton kernels, and derives from their code what they read and write.

Triton asks a compiled kernel for its launch metadata with the bound arguments, on every path that starts one. Where the
arguments do not tell (descriptors made beforehand) the launcher announces the launch with its tensors.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor

from mlpfusion.traffic.recording import ttir

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mlpfusion.records.traffic import Access
    from mlpfusion.traffic.recording.ledger import Ledgers


@contextmanager
def watched(ledgers: Ledgers) -> Iterator[None]:
    """Write down every launch of a compiled Triton kernel in this process while the context lasts."""
    from triton.compiler import CompiledKernel

    original: Any = CompiledKernel.launch_metadata
    announced: list[str] = []

    def launch_metadata(self: Any, grid: Any, stream: Any, *args: Any) -> Any:
        if announced and announced[0] == self.name:
            announced.clear()  # the same launch, which was announced with more than its arguments say
        elif not ledgers.quiet:
            announced.clear()
            _write_down(ledgers, self, args)
        return original(self, grid, stream, *args)

    def listen(launched: Any) -> None:
        if ledgers.quiet or _is_interpreted(launched.kernel):
            return
        name = launched.kernel.__name__
        announced[:] = [name]
        ledgers.launch(name, "declared", kernel=name, reads=launched.reads.values(), writes=launched.writes.values())

    listeners = _listeners()
    for one in listeners:
        one.append(listen)
    CompiledKernel.launch_metadata = launch_metadata
    try:
        yield
    finally:
        CompiledKernel.launch_metadata = original
        for one in listeners:
            one.remove(listen)


def _listeners() -> list[list[Any]]:
    """The lists of listeners of every loaded copy of our kernels: the Hub's library loads it under another name."""
    modules = [module for name, module in list(sys.modules.items()) if name.endswith(".launching.cached")]
    return [module.LISTENERS for module in modules if isinstance(getattr(module, "LISTENERS", None), list)]


def _is_interpreted(kernel: Any) -> bool:
    from triton.runtime.jit import JITFunction

    return not isinstance(kernel, JITFunction)


def _write_down(ledgers: Ledgers, kernel: Any, args: tuple[Any, ...]) -> None:
    given = list(_pointers(args))
    reads: list[Access] = []
    writes: list[Access] = []
    unknown = None
    try:
        code = kernel.asm.get("ttir")
        if not isinstance(code, str):
            raise ttir.UnreadableError("Triton keeps no intermediate code of it")
        found = ttir.touched(code)
        if len(found.reads) != len(given):
            raise ttir.UnreadableError(f"its code has {len(found.reads)} pointers, its launch {len(given)} tensors")
        for value, read, written in zip(given, found.reads, found.writes, strict=True):
            touched = _accesses(ledgers, value) if read or written else []
            reads += touched if read else []
            writes += touched if written else []
    except (ValueError, RuntimeError, NotImplementedError) as error:  # the last two: a tensor without storage
        unknown = str(error).splitlines()[0]
    ledgers.add(kernel.name, "triton", reads, writes, kernel=kernel.name, unknown=unknown)


def _pointers(values: Iterable[Any]) -> Iterator[Any]:
    """The tensors and tensor descriptors among a launch's arguments."""
    for value in values:
        if isinstance(value, tuple | list):
            yield from _pointers(value)
        elif isinstance(value, Tensor) or isinstance(getattr(value, "base", None), Tensor):
            yield value


def _accesses(ledgers: Ledgers, value: Any) -> list[Access]:
    """The bytes of a tensor, or of what a descriptor describes: it may reach beyond the tensor that it starts from."""
    if not isinstance(value, Tensor):
        return ledgers.span(value.base, value.shape, value.strides)
    found = ledgers.access(value)
    return [] if found is None else [found]
