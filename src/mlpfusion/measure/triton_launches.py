"""Sees the launches of handwritten Triton kernels, and says from each kernel's own code what it reads and writes.

Triton asks a compiled kernel for its launch metadata with the bound arguments, on every path that starts one. Where the
arguments do not tell (descriptors made beforehand) the launcher announces the launch with its tensors.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from mlpfusion.measure import ttir
from mlpfusion.measure.interpreted import tensors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlpfusion.measure.ledger import Ledgers


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
    modules = [module for name, module in list(sys.modules.items()) if name.endswith(".cached_kernel")]
    return [module.LISTENERS for module in modules if isinstance(getattr(module, "LISTENERS", None), list)]


def _is_interpreted(kernel: Any) -> bool:
    from triton.runtime.jit import JITFunction

    return not isinstance(kernel, JITFunction)


def _write_down(ledgers: Ledgers, kernel: Any, args: tuple[Any, ...]) -> None:
    given = list(tensors(args))
    reads, writes, unknown = [], [], None
    try:
        code = kernel.asm.get("ttir")
        if not isinstance(code, str):
            raise ttir.UnreadableError("Triton keeps no intermediate code of it")
        found = ttir.touched(code)
        if len(found.reads) != len(given):
            raise ttir.UnreadableError(f"its code has {len(found.reads)} pointers, its launch {len(given)} tensors")
        reads = [tensor for tensor, read in zip(given, found.reads, strict=True) if read]
        writes = [tensor for tensor, written in zip(given, found.writes, strict=True) if written]
    except ttir.UnreadableError as error:
        unknown = str(error)
    ledgers.launch(kernel.name, "triton", kernel=kernel.name, reads=reads, writes=writes, unknown=unknown)
