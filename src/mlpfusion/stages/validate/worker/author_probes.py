"""The worker's probes of who computes a result, and when: launches, threads and streams, results of earlier calls."""

from __future__ import annotations

import ctypes
import random
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from mlpfusion.stages.validate.channel import PATTERNS
from mlpfusion.stages.validate.worker import guard, launches
from mlpfusion.stages.validate.worker.results import named, plain
from mlpfusion.stages.validate.worker.targets.loader import OPERANDS

if TYPE_CHECKING:
    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.worker.probes import Probe, Run
    from mlpfusion.stages.validate.worker.targets.loader import Bound

LATE_S: Final = 0.05  # a thread or stream that is still at work after a call has this long
REPEATS: Final = 2
# What moves, makes or views tensors without computing anything of them.
_MOVING: Final = frozenset(
    (
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "set_", "resize_", "lift_fresh"),
        *("zeros", "zeros_like", "new_zeros", "zero_", "full", "full_like", "fill_", "arange", "scalar_tensor"),
        *("view", "_unsafe_view", "reshape", "clone", "copy_", "_to_copy", "detach", "alias", "expand", "as_strided"),
        *("slice", "select", "unsqueeze", "squeeze", "t", "transpose", "permute", "contiguous", "split", "unbind"),
        *("cat", "item", "_local_scalar_dense", "resolve_conj", "resolve_neg", "to", "type_as", "promote_types"),
    )
)


def ablated(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """y of a call, and "without PATTERN" of one whose launches do nothing and whose memory has that pattern.

    "exchanged" is y of one whose launches write what those of a call on `other:NAME` wrote, if that is given. They are
    missing where such a call raises, or where that is not known. With `grad` operands need gradients.

    Facts: `tried` and `launched` count launches, `replays` those of CUDA graphs, `operators` are those of PyTorch that
    computed something, where neither was launched; `raised` is why one is missing.
    """
    grad = options.get("grad", False)
    bound = run.target.bind(run.operands(given, options, grad=grad))
    others = {name: given[f"other:{name}"] for name in OPERANDS[run.target.kind] if f"other:{name}" in given}
    other = run.target.bind(run.operands(others, options, grad=grad)) if others else None
    results = {}
    with torch.set_grad_enabled(grad), guard.watch("nan"):
        with launches.counted() as made:
            results["y"] = _called(run, bound)
        facts = {"launched": made.count, "tried": made.tried, "replays": made.replays, "operators": []}
        if not made.count:
            facts["operators"] = [] if made.replays else _operators(bound)
            return results, facts
        try:
            # What is multiplied by 0 is nan of one pattern, and nothing of the other.
            for pattern in PATTERNS:
                with launches.counted(off=True), guard.watch(pattern):
                    results[f"without {pattern}"] = _called(run, bound)
        except Exception as error:  # whatever a third-party call makes of a launch that gave nothing
            facts["raised"] = type(error).__name__
        try:
            results |= {} if other is None else _exchanged(run, bound, other, launched=made.count)
        except Exception as error:  # or of numbers of other operands
            facts["raised"] = type(error).__name__
    return results, facts


def _called(run: Run, bound: Bound) -> Tensor:
    y = plain(bound()).detach().clone()
    run.synchronize()
    return y


def _exchanged(run: Run, bound: Bound, other: Bound, *, launched: int) -> Tensors:
    """y of a call whose launches, as many as `launched`, write what those of another call wrote, if that is known."""
    _called(run, other)  # what is launched once is none of a call's
    theirs = launches.Written()
    with launches.counted(written=theirs):
        _called(run, other)
    own = launches.Written(theirs)
    with launches.counted(written=own):
        y = _called(run, bound)
    return {"exchanged": y} if own.is_known and len(own.launches) == launched else {}


def _operators(bound: Bound) -> list[str]:
    """What PyTorch's profiler sees compute in a call. (A dispatch mode would keep it from running compiled code.)"""
    profiler: Any = torch.autograd.profiler
    with profiler.profile(use_cpu=True) as profile:
        bound()
    shown = (_shown(str(event.name)) for event in profile.function_events)
    return [name for name in dict.fromkeys(shown) if name is not None]


def _shown(event: str) -> str | None:
    """An operator without PyTorch's namespace, or a compiled region without its number; None for all else."""
    if event.startswith("Torch-Compiled Region"):
        return "a region compiled by torch.compile"
    name = event.removeprefix("aten::")
    return name if "::" in event and " " not in event and name not in _MOVING else None


def late(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """y of calls as soon as each returns (`first`) and some time later (`last`), [repeats, ..]; with `grad` d:NAME too.

    Facts: `threads`, the names of those that a call started and that had not ended.
    """
    names = OPERANDS[run.target.kind]
    found: dict[str, list[Tensor]] = {}
    left: set[str] = set()
    for trains in (False, True) * REPEATS if options["grad"] else (False,) * REPEATS:
        bound = run.target.bind(run.operands(given, options, grad=trains))
        dy = guard.place(given["dy"], run.device)
        before = set(threading.enumerate())
        with torch.set_grad_enabled(trains), guard.watch("nan"):
            interval = sys.getswitchinterval()
            sys.setswitchinterval(1e3)  # no other thread gets its turn unless this one waits
            try:
                made = {"y": plain(bound())}
                first = {"y": _taken(made["y"])}
                if made["y"].requires_grad:
                    grads = named(names, torch.autograd.grad(made["y"], bound.leaves, dy, allow_unused=True))
                    first |= {name: _taken(grad) for name, grad in grads.items()}
                    made |= grads
            finally:
                sys.setswitchinterval(interval)
            started = [each for each in threading.enumerate() if each not in before]
            left.update(each.name for each in started)
            for each in started:
                each.join(LATE_S)
            time.sleep(LATE_S)
            run.synchronize()
        for name, tensor in made.items():
            found.setdefault(f"first {name}", []).append(first[name])
            found.setdefault(f"last {name}", []).append(tensor.detach().clone())
    return {name: torch.stack(each) for name, each in found.items()}, {"threads": sorted(left)}


def _taken(tensor: Tensor) -> Tensor:
    """A copy that lets no other thread of Python run meanwhile, or that the current stream alone makes."""
    if tensor.device.type != "cpu" or not tensor.is_contiguous() or not tensor.numel():
        return tensor.detach().clone()
    data = bytearray(ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()))
    return torch.frombuffer(data, dtype=tensor.dtype).view(tensor.shape)


def many(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """y of the first call on each of `sets` sets of operands, INDEX:NAME: y:INDEX, and of one that differs later.

    `calls` calls in all, or as many as `seconds` allow, without gradients: new values are put where old ones were, and
    old ones where none were. Facts: `done` calls; where one differs `at`, which call it was, `index`, of which set,
    and `moved`, whether its operands were in new memory.
    """
    names = OPERANDS[run.target.kind]
    varied = names if run.target.kind == "act_mul" else names[:1]
    sets = [{name: given[f"{index}:{name}"].to(run.device) for name in varied} for index in range(options["sets"])]
    bound = run.target.bind(run.operands({name: given[f"0:{name}"] for name in names}, options))
    places = dict(zip(names, bound.leaves, strict=True))
    order = random.Random(options["seed"])
    expected: dict[int, Tensor] = {}
    end = time.monotonic() + options["seconds"]
    done = 0
    with torch.no_grad():
        while done < options["calls"] and (time.monotonic() < end or len(expected) < len(sets)):
            index = done if done < len(sets) else order.randrange(len(sets))
            moved = done % 5 == 4
            own = dict(places)
            for name in varied:
                if moved:
                    own[name] = sets[index][name].clone()
                elif done % 2:
                    places[name].copy_(sets[index][name])
                else:
                    places[name].data.copy_(sets[index][name])  # which raises no version
            y = plain(bound.function(*tuple(own.values())[: len(bound.arguments)]))
            done += 1
            if index not in expected:
                expected[index] = y.clone()
            elif not _alike(y, expected[index]):
                facts = {"done": done, "at": done, "index": index, "moved": moved}
                return {**{f"y:{each}": one for each, one in expected.items()}, "y": y.clone()}, facts
    return {f"y:{each}": one for each, one in expected.items()}, {"done": done}


def timed(run: Run, given: Tensors, options: Facts) -> tuple[Tensors, Facts]:
    """y of the last of `calls` calls on the same operands (`timed`), and of one on new values there (`fresh`).

    As many calls as `seconds` allow. Fact: `calls`, how many there were.
    """
    bound = run.target.bind(run.operands(given, options))
    end = time.monotonic() + options["seconds"]
    done = 0
    with torch.no_grad():
        while not done or (done < options["calls"] and time.monotonic() < end):
            y = plain(bound())
            done += 1
    run.synchronize()
    return {"timed": y.clone(), "fresh": renewed(run, bound, given)}, {"calls": done}


def renewed(run: Run, bound: Bound, given: Tensors) -> Tensor:
    """y of a call on what `other:NAME` holds, which is put where the operands of earlier calls are."""
    with torch.no_grad():
        for name, leaf in zip(OPERANDS[run.target.kind], bound.leaves, strict=False):
            if f"other:{name}" in given:
                leaf.copy_(given[f"other:{name}"])
        y = plain(bound())
    run.synchronize()
    return y


def _alike(y: Tensor, expected: Tensor) -> bool:
    """Equal but for the order of sums: within 8 eps of the largest value."""
    if y.shape != expected.shape or y.dtype != expected.dtype:
        return False
    allowed = 8 * torch.finfo(y.dtype).eps * float(expected.abs().max())
    return bool(((y - expected).abs() <= allowed).all())


AUTHOR_PROBES: Final[dict[str, Probe]] = {"ablated": ablated, "late": late, "many": many, "timed": timed}
