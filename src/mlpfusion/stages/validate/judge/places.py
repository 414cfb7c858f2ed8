"""Says where wrong elements are: in which rows and columns, and in which widths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

    from torch import Tensor

NAMED: Final = 6  # widths that are listed
FILLED: Final = 0.5  # of the elements of a part are wrong where the part is


def within(wrong: Tensor) -> str:
    """In which columns or rows of a result the wrong elements are, if they fill these; `wrong` is a mask."""
    if wrong.dim() < 2 or not bool(wrong.any()):
        return ""
    flat = wrong.reshape(-1, wrong.shape[-1])
    for what, shares in (("columns", flat.double().mean(0)), ("rows", flat.double().mean(1))):
        some = shares > 0
        first, last, n = int(some.nonzero()[0]), int(some.nonzero()[-1]), some.numel()
        if last - first + 1 == n or float(shares[first : last + 1].mean()) < FILLED:
            continue
        if last == n - 1:
            return f"all in the last {n - first} of {n} {what}"
        return f"all in the first {last + 1} of {n} {what}" if first == 0 else f"all in {what} {first} to {last} of {n}"
    return ""


def by_width(wrong: Collection[int], right: Collection[int]) -> str:
    """That a fault is one of widths, and of which; nothing where the widths do not differ in it."""
    bad, good = sorted(set(wrong)), sorted(set(right) - set(wrong))
    if len(bad) < 2 or not good:
        return ""
    factor = max(1 << k for k in range(13) if all(width % (1 << k) == 0 for width in bad))
    like = f" (multiples of {factor})" if factor > 1 else ""
    return f"it depends on the width: wrong with {_listed(bad)} columns{like}, right with {_listed(good)}"


def _listed(widths: list[int]) -> str:
    return ", ".join(map(str, widths[:NAMED])) + (", …" if len(widths) > NAMED else "")
