"""Types of numbers in files, which refuse values that no measurement can produce."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

_MOST: Final = 2**63 - 1  # what 64 bits hold
_LONGEST: Final = 1e15  # µs, or seconds; the first are thirty years

# How many, of bytes, operations or kernels: a file that says less than none is damaged.
Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
Some = Annotated[int, msgspec.Meta(ge=1, le=_MOST)]
# A time, in the unit of its field. A kernel may be shorter than the clock's tick; a call takes longer than none.
Time = Annotated[float, msgspec.Meta(ge=0, le=_LONGEST)]
PositiveTime = Annotated[float, msgspec.Meta(gt=0, le=_LONGEST)]
# One time over another, or one error over another; errors themselves are relative ones.
Factor = Annotated[float, msgspec.Meta(ge=1e-30, le=1e30)]
Error = Annotated[float, msgspec.Meta(ge=0, le=1e300)]
Rate = Annotated[float, msgspec.Meta(gt=0, le=1e30)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
