"""The worker's probes of what a call leaves behind: seeded generators and memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import sys
import weakref
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import torch
from torch import Tensor, nn

from mlpfusion.stages.validate.worker import settings
from mlpfusion.stages.validate.worker.results import plain
from mlpfusion.stages.validate.worker.targets.loader import OPERANDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.worker.probes import Probe, Run

WARM: Final = 4  # calls before memory is counted: what is made once is there then
HALF: Final = 4  # calls between two counts
SMALLEST: Final = 16  # bytes of a small object of Python's, whose number alone it tells
_VARIED: Final = frozenset(("gate", "up", "x"))  # operands that a model makes anew for each call


def state(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """Calls, with `grad` and their backwards, from two states of all generators and of autocast's dtypes.

    Facts: `seeded` are the generators that the calls left in one state, `drawn` others that they changed.
    """
    ends = []
    for seed, dtype in ((1, torch.bfloat16), (2, torch.float16)):
        call = _once(run, given, grad=options["grad"])
        with settings.own_generators(seed), settings.autocast_to(dtype):
            before = settings.read(settings.GENERATORS)
            call()
            ends.append((before, settings.read(settings.GENERATORS)))
    (first, after_first), (second, after_second) = ends
    seeded = [name for name, end in after_first.items() if end == after_second[name] and first[name] != second[name]]
    drawn = [name for name, end in after_first.items() if name not in seeded and end != first[name]]
    return {}, {"seeded": seeded, "drawn": drawn}


def _once(
    run: Run,
    given: Tensors,
    *,
    grad: bool,
    varied: bool = False,
    dropped: bool = False,
    autocast: bool = False,
    in_eval: bool = False,
) -> Callable[[], None]:
    """A call, with its backward where there is one, of which nothing is kept; each has operands of its own.

    The graph of one that is `dropped` goes without a backward, as that of a validation or of a skipped step does.

    Each of `varied` calls has one row less than the last, and the first one row less than are given: a buffer as large
    as the largest call is there then.
    """
    names = OPERANDS[run.target.kind]
    bound = run.target.bind(run.operands(given, {}, grad=grad))
    if in_eval and bound.module is not None:
        bound.module.eval()
    fixed = dict(zip(names, bound.leaves, strict=True))
    dy = given["dy"].to(run.device)
    left = itertools.count(1) if varied else itertools.repeat(0)

    def call() -> None:
        rows = slice(dy.shape[0] - next(left))
        own = {name: fixed[name][rows].detach().clone().requires_grad_(grad) for name in names if name in _VARIED}
        leaves = tuple((fixed | own).values())
        # Not in bfloat16, which Triton's interpreter multiplies wrongly; what is not enabled puts settings back too.
        cast = torch.autocast(run.device.type, dtype=torch.float16) if autocast else contextlib.nullcontext()
        with torch.set_grad_enabled(grad), cast:
            y = plain(bound.function(*leaves[: len(bound.arguments)]))
        if y.requires_grad and not dropped:
            torch.autograd.grad(y, leaves, dy[rows].to(y.dtype), allow_unused=True)
        run.synchronize()

    return call


class Held(NamedTuple):
    """What is alive: tensors, the bytes of their memory, all bytes of the allocator, and small objects of Python's."""

    tensors: int
    tensor_bytes: int
    host_bytes: int
    objects: int


def _held(run: Run) -> Held:
    storages = {}
    count = 0
    for each in gc.get_objects():
        if type(each) in {Tensor, nn.Parameter}:  # a compiler keeps some that stand for others
            count += 1
            if each.layout is torch.strided and each.device.type == run.device.type:
                storage = each.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
    size = torch.cuda.memory_allocated() if run.device.type == "cuda" else sum(storages.values())
    return Held(count, size, _allocated(), sys.getallocatedblocks())


class _MallInfo(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_: ClassVar = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def _allocated() -> int:
    """The bytes in use of what malloc gave, NumPy's and other libraries' too, and at least of Python's small objects.

    Those of malloc are 0 where glibc does not tell.
    """
    small = sys.getallocatedblocks() * SMALLEST  # which Python keeps in memory that is not malloc's
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return small
    mallinfo.restype = _MallInfo
    found = mallinfo()
    return int(found.uordblks + found.hblkhd) + small


def growth(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """What is alive after some calls, `half` more and `half` more again: each time before and after a collection.

    The collector is off otherwise: what it has to free lies in a cycle of references. An interpreter leaves 200 KB of
    these in each call, among which what stays would be lost. With `varied` each call has one row less than the last,
    with `dropped` it has no backward; with `autocast` it is under that, with `in_eval` in eval mode.
    `before` more calls come first.
    """
    half = options.get("half", HALF)
    which = {name: options.get(name, False) for name in ("varied", "dropped", "autocast", "in_eval")}
    call = _once(run, given, grad=options["grad"], **which)
    was_on, was_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    gc.disable()
    # Neither a count nor a collection looks at what was there before, garbage or not, which a collection of its own
    # would take a sixth of a second for.
    gc.freeze()
    try:
        counts = []
        for calls in (WARM + options.get("before", 0), half, half):
            for _ in range(calls):
                call()
            counts.append([list(_held(run))])
            gc.collect()
            counts[-1].append(list(_held(run)))
    finally:
        if not was_frozen:
            gc.unfreeze()
        if was_on:
            gc.enable()
    return {}, {"held": counts, "calls": half}


def deleted(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """Modules that are built one after the other, called, with `grad` trained, and deleted.

    Facts: how many were `built`, and how many are "kept" by somebody, or a weight of theirs is; or "skipped", where the
    target is no module.
    """
    names = OPERANDS[run.target.kind]
    alive: list[list[weakref.ref[Any]]] = []
    for _ in range(options["built"]):
        bound = run.target.bind(run.operands(given, {}, grad=options["grad"]))
        if bound.module is None or bound.function is not bound.module:
            return {}, {"skipped": True}
        with torch.no_grad():
            bound()
        if options["grad"]:
            torch.autograd.grad(bound(), bound.leaves, given["dy"].to(run.device), allow_unused=True)
        run.synchronize()
        alive.append([weakref.ref(each) for each in (bound.module, *bound.leaves[1 : len(names)])])
        del bound
    gc.collect()
    return {}, {"built": options["built"], "kept": sum(any(one() is not None for one in each) for each in alive)}


STATE_PROBES: Final[dict[str, Probe]] = {"state": state, "growth": growth, "deleted": deleted}
