"""Observes the operators of a call, in compiled code too, with what each reads and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mlpfusion.traffic.recording import operands

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mlpfusion.traffic.recording.ledger import Ledgers
    from mlpfusion.traffic.recording.operands import Operand

    _States = Sequence[tuple[Tensor, "_State"]]

# The namespaces whose schemas and aliases PyTorch itself tests.
_OWN: Final = frozenset({"aten", "prims", "prim", "inductor", "mkldnn"})


class Operators(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that lets compiled code run compiled.

    An ordinary mode makes code under torch.compile run eager without a word; one that calls itself infrastructure does
    not, and then sees only the operators between the compiled kernels.
    """

    supports_higher_order_operators = True

    def __init__(self, ledgers: Ledgers) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ledgers = ledgers

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Whether torch.compile may ignore this mode."""
        return True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Whether this mode stays out of compilation, and in when the result runs."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operator and write it down."""
        kwargs = kwargs or {}
        if self._ledgers.quiet or not isinstance(func, torch._ops.OpOverload):
            return func(*args, **kwargs)
        if func.namespace not in _OWN:
            return self._foreign(func, args, kwargs)
        if _is_composite(func):  # it is what it is made of
            with self:
                made = func.decompose(*args, **kwargs)
            if made is not NotImplemented:
                return made
        return self._own(func, args, kwargs)

    def _own(self, func: Any, args: Any, kwargs: Any) -> Any:
        with self._ledgers.running(tree_leaves((args, kwargs))):
            out = func(*args, **kwargs)
            self._write_down(func, args, kwargs, out)
        return out

    def _foreign(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A custom operator: the observed launches inside it, else the operator as one launch.

        What its schema says is checked: a tensor that it says is only read, and that changed, was written.
        """
        ledgers = self._ledgers
        before = len(ledgers.launches)
        given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor) and value.numel()]
        # A graph that is being captured would get the copies of this check, and may not be waited for.
        capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
        state = [] if capturing else [(value, _State(value)) for value in given]
        body = _body(func, given)
        if body is None:
            ledgers.opaque.append(func._schema.name)
            with ledgers.running(given):
                out = func(*args, **kwargs)
                self._after(func, args, kwargs, out, before=before, state=state)
            return out
        outer = ledgers.inside
        ledgers.inside = outer or (func._schema.name, before)
        try:
            with self:
                out = body(*args, **kwargs)
        finally:
            ledgers.inside = outer
        with ledgers.running(given):
            self._after(func, args, kwargs, out, before=before, state=state)
        return out

    def _after(self, func: Any, args: Any, kwargs: Any, out: Any, *, before: int, state: _States) -> None:
        """Write down a custom operator that ran, unless its launches, those from number `before` on, say it all."""
        ledgers = self._ledgers
        changed = [value for value, was in state if was.changed(value)]
        inside = ledgers.launches[before:]
        if not inside:
            self._write_down(func, args, kwargs, out, changed)
            return
        written = {access.buffer for launch in inside for access in launch.writes}
        behind = [value for value in changed if (found := ledgers.access(value)) and found.buffer not in written]
        if behind:
            reason = "it writes to a tensor without an observable launch"
            ledgers.launch(func._schema.name, "operator", writes=behind, unknown=reason)

    def _write_down(self, func: Any, args: Any, kwargs: Any, out: Any, changed: Sequence[Tensor] = ()) -> None:
        name = func._schema.name
        if operands.allocates(func):
            return
        reads, writes = operands.of(func, args, kwargs)
        sources = {_storage(operands.whole(one)) for one in (*reads, *writes)} - {None}
        results = [value for value in tree_leaves(out) if isinstance(value, Tensor)]
        fresh = [value for value in results if _storage(value) not in sources]
        writes = [*writes, *fresh, *changed]
        if not writes and results:
            return  # a view, or several
        reads, writes = (
            [one for one in some if self._ledgers.is_here(operands.whole(one))] for some in (reads, writes)
        )
        if all(operands.whole(one).numel() == 0 for one in writes) and (writes or not _leaves_the_device(reads)):
            return
        flops = operands.flops(func, args, kwargs, out)
        unknown = operands.copied(func, args)
        self._ledgers.launch(name, "operator", reads=reads, writes=writes, flops=flops, unknown=unknown)


class _State:
    """A tensor's contents before an operator ran."""

    def __init__(self, tensor: Tensor) -> None:
        self._version = None if tensor.is_inference() else tensor._version
        self._copy = tensor.detach().clone()

    def changed(self, tensor: Tensor) -> bool:
        """Whether it was written since: its version is another, or, where a kernel raised none, its bytes are."""
        if self._version is not None and tensor._version != self._version:
            return True
        return not torch.equal(_bits(tensor), _bits(self._copy))


def _bits(tensor: Tensor) -> Tensor:
    """The tensor as integers of its width: nan is then equal to itself."""
    width = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}.get(tensor.element_size())
    return tensor.detach() if width is None else tensor.detach().view(width)


def _body(func: Any, given: Sequence[Tensor]) -> Callable[..., Any] | None:
    """The Python function behind a custom operator, in which this mode sees what is called; None for any other."""
    from torch._library.custom_ops import OPDEFS

    functions = getattr(OPDEFS.get(func._schema.name), "_backend_fns", {})
    kind = given[0].device.type if given else "cpu"
    body: Callable[..., Any] | None = functions.get(kind, functions.get(None))
    return body


def _is_composite(func: Any) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


def _storage(tensor: Tensor) -> int | None:
    """The identity of a tensor's storage; None for one without plain memory."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):  # sparse, or a wrapper around others
        return None


def _leaves_the_device(reads: Sequence[Operand]) -> bool:
    """Whether an operator without a tensor as result (a comparison, a scalar's value) moves bytes off a device."""
    return any(operands.whole(one).is_cuda for one in reads)
