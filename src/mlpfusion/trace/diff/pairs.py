"""Pairs the kernels of two calls launch by launch, and describes how a pair differs."""

from __future__ import annotations

from collections import defaultdict, deque
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final

from mlpfusion.records.trace import FieldChange, KernelPair
from mlpfusion.trace.names import ops
from mlpfusion.trace.names.decode import parse
from mlpfusion.trace.names.same import compared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from mlpfusion.records.profile import Decoded, Kernel

_Found = list[tuple[int | None, int | None]]

# Roles that a kernel has by itself; the others differ by name and kind only.
_NO_PLACE: Final = frozenset({"other", "memset", "memcpy"})
# A sequence matcher compares every element with every other; beyond this, names are matched in order alone.
_MATCHED: Final = 3000


def pair(a: Sequence[Kernel], b: Sequence[Kernel]) -> tuple[KernelPair, ...]:
    """The kernels of two calls, paired: first by role, then what is left by name, then by kind of work."""
    found: _Found = []
    left_a, left_b = list(range(len(a))), list(range(len(b)))
    for role in dict.fromkeys(kernel.role for kernel in a if kernel.role not in _NO_PLACE):
        ours = [index for index in left_a if a[index].role == role]
        theirs = [index for index in left_b if b[index].role == role]
        matched = [each for each in _align(a, b, ours, theirs, _step) if None not in each]
        found += matched
        left_a = _without(left_a, (first for first, _ in matched if first is not None))
        left_b = _without(left_b, (second for _, second in matched if second is not None))
    found += _align(a, b, left_a, left_b, _kin)
    return tuple(_pair(a, b, first, second) for first, second in _ordered(found))


def _align(
    a: Sequence[Kernel],
    b: Sequence[Kernel],
    ours: Sequence[int],
    theirs: Sequence[int],
    key: Callable[[Kernel], object],
) -> _Found:
    """Pairs of equal names in order, then of equal keys in the gaps between them, and then the rest alone."""
    names_a, names_b = [compared(a[index].name) for index in ours], [compared(b[index].name) for index in theirs]
    found: _Found = []
    alone_a: list[int] = []
    alone_b: list[int] = []
    for _, start_a, stop_a, start_b, stop_b in _blocks(names_a, names_b):
        gap_a, gap_b = list(ours[start_a:stop_a]), list(theirs[start_b:stop_b])
        if names_a[start_a:stop_a] == names_b[start_b:stop_b]:
            kept = [(x, y) for x, y in zip(gap_a, gap_b, strict=True) if _may_move(a[x], b[y])]
        else:
            kept = _by_key(gap_a, gap_b, lambda x: key(a[x]), lambda y: key(b[y]))
        found += kept
        alone_a += _without(gap_a, (first for first, _ in kept))
        alone_b += _without(gap_b, (second for _, second in kept))
    # What changed its place: the same name elsewhere, unless both have places of their own in an MLP.
    for places_a, places_b in ((_NO_PLACE, None), (None, _NO_PLACE)):
        moved = _by_key(
            [x for x in alone_a if places_a is None or a[x].role in places_a],
            [y for y in alone_b if places_b is None or b[y].role in places_b],
            lambda x: compared(a[x].name),
            lambda y: compared(b[y].name),
        )
        found += moved
        alone_a = _without(alone_a, (first for first, _ in moved))
        alone_b = _without(alone_b, (second for _, second in moved))
    return [*found, *((index, None) for index in alone_a), *((None, index) for index in alone_b)]


def _blocks(a: Sequence[str], b: Sequence[str]) -> Iterable[tuple[str, int, int, int, int]]:
    if len(a) > _MATCHED or len(b) > _MATCHED:
        common = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        return [("equal", 0, common, 0, common), ("replace", common, len(a), common, len(b))]
    return SequenceMatcher(None, a, b, autojunk=False).get_opcodes()


def _without(indices: Iterable[int], taken: Iterable[int]) -> list[int]:
    gone = set(taken)
    return [index for index in indices if index not in gone]


def _by_key(
    a: Iterable[int], b: Iterable[int], key_a: Callable[[int], object], key_b: Callable[[int], object]
) -> list[tuple[int, int]]:
    """Each of `a` with the first of `b` that has its key and no partner yet; None is no key."""
    waiting: dict[object, deque[int]] = defaultdict(deque)
    for index in b:
        waiting[key_b(index)].append(index)
    waiting.pop(None, None)
    found = []
    for index in a:
        partners = waiting.get(key_a(index))
        if partners:
            found.append((index, partners.popleft()))
    return found


def _step(kernel: Kernel) -> object:
    """What kernels of one role have in common if they do the same step of it: a product, or its split-K reduction."""
    return kernel.decoded.kind


def _kin(kernel: Kernel) -> object:
    """What kernels without a role have in common if they do the same work; None if that is not known."""
    if kernel.decoded.kind in ("gemm", "memset", "memcpy"):
        return kernel.role, kernel.decoded.kind
    work = tuple(work_of(kernel))
    return (kernel.role, kernel.decoded.kind, work) if work else None


def _may_move(a: Kernel, b: Kernel) -> bool:
    return a.role == b.role or a.role in _NO_PLACE or b.role in _NO_PLACE


def work_of(kernel: Kernel) -> list[str]:
    """What a kernel computes: its operators without those that move no data."""
    return [op for op in kernel.decoded.fused_ops if op not in ops.VIEWS]


def _ordered(found: _Found) -> _Found:
    """In a's order, what is new behind the pair that it follows in b's order."""
    place = {second: float(first) for first, second in found if first is not None and second is not None}
    last = -1.0
    for second in sorted(index for _, index in found if index is not None):
        last = max(last, place[second]) if second in place else last
        place.setdefault(second, last + 0.5)
    return sorted(found, key=lambda each: (float(each[0]) if each[0] is not None else place[each[1]], each[1] or 0))  # type: ignore[index]


def _pair(a: Sequence[Kernel], b: Sequence[Kernel], first: int | None, second: int | None) -> KernelPair:
    ours = a[first] if first is not None else None
    theirs = b[second] if second is not None else None
    if ours is None or theirs is None:
        alone = ours or theirs
        return KernelPair(
            change="new" if ours is None else "gone", role=alone.role if alone else "other", a=ours, b=theirs
        )
    times = ours.time_us, theirs.time_us
    same = compared(ours.name) == compared(theirs.name)
    return KernelPair(
        change="same" if same else "changed",
        role=ours.role if ours.role != "other" else theirs.role,
        a=ours,
        b=theirs,
        changes=tuple(_launches(ours, theirs) if same else [*changes(ours, theirs), *_launches(ours, theirs)]),
        difference_us=times[1] - times[0] if times[0] is not None and times[1] is not None else None,
    )


def changes(a: Kernel, b: Kernel) -> list[FieldChange]:
    """What two names say differently, field by field, and the words of them whose meaning is not established."""
    found = [
        FieldChange(field=field, a=_text(a.decoded, field), b=_text(b.decoded, field))
        for field in a.decoded.__struct_fields__
        if getattr(a.decoded, field) != getattr(b.decoded, field)
    ]
    words = [[token.text for token in parse(kernel.name).tokens if token.certainty == "unknown"] for kernel in (a, b)]
    only = [[word for word in words[side] if word not in words[1 - side]] for side in (0, 1)]
    if any(only):
        found.append(FieldChange(field="not established", a=" ".join(only[0]) or None, b=" ".join(only[1]) or None))
    return found or [FieldChange(field="name", a=a.name, b=b.name)]


def _launches(a: Kernel, b: Kernel) -> list[FieldChange]:
    """How two were launched, where both say it and it differs: one name may stand for two choices of a tuner."""
    if a.launch is None or b.launch is None or a.launch == b.launch:
        return []
    return [FieldChange(field="launch", a=str(a.launch), b=str(b.launch))]


def _text(decoded: Decoded, field: str) -> str | None:
    value = getattr(decoded, field)
    if value is None or value == ():
        return None
    return "+".join(value) if isinstance(value, tuple) else str(value)
