"""Observes the launches of Triton's interpreter, with the exact bytes that each loads and stores."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor

from mlpfusion.traffic import byte_ranges

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mlpfusion.records.traffic import Access
    from mlpfusion.traffic.recording.ledger import Ledgers


@contextmanager
def watched(ledgers: Ledgers) -> Iterator[None]:
    """Write down every launch of the interpreter in this process while the context lasts."""
    from triton.runtime import interpreter

    executor: Any = interpreter.GridExecutor
    run, memory = executor.__call__, interpreter._interpreter

    def launch(self: Any, *args: Any, **kwargs: Any) -> None:
        if ledgers.quiet:
            run(self, *args, **kwargs)
            return
        seen = _Seen(memory)
        given = list(tensors((*args, *kwargs.values())))
        with ledgers.running(given):
            ledgers.quiet += 1  # the interpreter's own copies are operators too
            interpreter._interpreter = seen
            try:
                run(self, *args, **kwargs)
            finally:
                interpreter._interpreter = memory
                ledgers.quiet -= 1
            _write_down(ledgers, self.fn.__name__, seen, given)

    executor.__call__ = launch
    try:
        yield
    finally:
        executor.__call__ = run


def tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among a launch's arguments; a tensor descriptor stands for the tensor below it."""
    for value in values:
        if isinstance(value, tuple | list):
            yield from tensors(value)
        elif isinstance(value, Tensor):
            yield value
        elif isinstance(base := getattr(value, "base", None), Tensor):
            yield base


class _Seen:
    """The interpreter's memory, with the addresses of every access by element size; everything else as it is."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory
        self.loaded: dict[int, list[Any]] = {}
        self.stored: dict[int, list[Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def load(self, addresses: Any, mask: Any, other: Any, dtype: Any) -> Any:
        _keep(self.loaded, addresses, mask, dtype.itemsize if hasattr(dtype, "itemsize") else dtype().itemsize)
        return self._memory.load(addresses, mask, other, dtype)

    def store(self, addresses: Any, value: Any, mask: Any) -> Any:
        _keep(self.stored, addresses, mask, value.dtype.itemsize)
        return self._memory.store(addresses, value, mask)

    def atomic_cas(self, addresses: Any, expected: Any, value: Any, order: Any) -> Any:
        for kind in (self.loaded, self.stored):
            _keep(kind, addresses, None, value.dtype.itemsize)
        return self._memory.atomic_cas(addresses, expected, value, order)

    def atomic_rmw(self, op: Any, addresses: Any, value: Any, mask: Any, order: Any) -> Any:
        for kind in (self.loaded, self.stored):
            _keep(kind, addresses, mask, value.dtype.itemsize)
        return self._memory.atomic_rmw(op, addresses, value, mask, order)


def _keep(kind: dict[int, list[Any]], addresses: Any, mask: Any, itemsize: int) -> None:
    """Remember the addresses that the mask lets through, as intervals: a kernel touches each more than once."""
    import numpy as np

    addresses = np.asarray(addresses)
    if mask is not None:
        addresses = addresses[np.broadcast_to(np.asarray(mask, dtype=bool), addresses.shape)]
    if addresses.size:
        kind.setdefault(itemsize, []).append(byte_ranges.of_addresses(addresses, itemsize))


def _write_down(ledgers: Ledgers, name: str, seen: _Seen, among: list[Tensor]) -> None:
    unknown = None
    reads: list[Access] = []
    writes: list[Access] = []
    try:
        reads = ledgers.at(_all(seen.loaded), among)
        writes = ledgers.at(_all(seen.stored), among)
    except ValueError as error:
        unknown = str(error)
    ledgers.add(name, "interpreter", reads, writes, kernel=name, unknown=unknown)


def _all(kind: dict[int, list[Any]]) -> Any:
    import numpy as np

    parts = [pieces for found in kind.values() for pieces in found]
    return byte_ranges.joined(np.concatenate(parts)) if parts else np.empty((0, 2), dtype=np.int64)
