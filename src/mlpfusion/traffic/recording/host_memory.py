"""Detects writes to host memory outside any launch: by NumPy, another thread, or a pointer.

A trace of a GPU shows all its work, whoever starts it; that of a CPU shows PyTorch's operators on one thread. So there
the memory itself is compared: what a launch left must be what the next one finds.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch
from torch.multiprocessing.reductions import StorageWeakRef

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Known:
    """One storage object: its addresses, the number of its buffer, and whether it is still there.

    `is_foreign` says that its memory is not of PyTorch's allocator (numpy's, a file's) and may outlive it.
    """

    __slots__ = ("_held", "_reference", "is_foreign", "number", "start", "stop")

    def __init__(self, storage: torch.UntypedStorage, number: int) -> None:
        self._reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
        self._held: NDArray[np.uint8] | None = None
        self.number = number
        self.start = storage.data_ptr()
        self.stop = self.start + storage.nbytes()
        self.is_foreign = not storage.resizable()

    def is_there(self) -> bool:
        """Whether its memory is still its own: a storage can be resized."""
        storage = self.storage()
        return storage is not None and self.is_of(storage)

    def storage(self) -> torch.UntypedStorage | None:
        """The storage object; None once it is gone."""
        if self._reference.expired():  # type: ignore[no-untyped-call]
            return None
        found: torch.UntypedStorage | None = torch.UntypedStorage._new_with_weak_ptr(self._reference.cdata)
        return found

    def is_of(self, storage: torch.UntypedStorage) -> bool:
        """Whether its addresses are those of the storage."""
        try:
            return (self.start, self.stop - self.start) == (storage.data_ptr(), storage.nbytes())
        except RuntimeError:  # a result of a CUDA graph that has run again since: its memory is another's
            return False

    def overlaps(self, start: int, stop: int) -> bool:
        """Whether it shares an address with [start, stop)."""
        return start < self.stop and self.start < stop

    def hold(self, *, anew: bool) -> None:
        """Store its current bytes; `anew` replaces stored ones."""
        if (anew or self._held is None) and self._is_readable():
            self._held = _memory(self.start, self.stop).copy()

    def let_go(self) -> None:
        """Forget the bytes of memory that is gone for good."""
        if not self.is_foreign and not self.is_there():
            self._held = None

    def is_held(self) -> bool:
        """Whether its bytes are remembered."""
        return self._held is not None

    def has_changed(self) -> bool:
        """Whether its bytes differ from those stored."""
        return self._held is not None and self._is_readable() and not self.lies_at(self.start, self.stop)

    def lies_at(self, start: int, stop: int) -> bool:
        """Whether the bytes remembered of what it shares with [start, stop), which must be readable, are unchanged."""
        if self._held is None:
            return False
        first, last = max(start, self.start), min(stop, self.stop)
        return _equal(_memory(first, last), self._held[first - self.start : last - self.start])

    def _is_readable(self) -> bool:
        if self.start == self.stop or not self.start:
            return False
        storage = self.storage()
        return storage is not None and storage.device.type == "cpu" and self.is_of(storage)


def _memory(start: int, stop: int) -> NDArray[np.uint8]:
    """The host memory [start, stop), as it is and not a copy."""
    import numpy as np

    return np.ctypeslib.as_array((ctypes.c_uint8 * (stop - start)).from_address(start))


def _equal(one: NDArray[np.uint8], other: NDArray[np.uint8]) -> bool:
    import numpy as np

    if len(one) % 8 == 0:  # eight at a time
        one, other = one.view(np.uint64), other.view(np.uint64)
    return bool(np.array_equal(one, other))
