"""Records of where the time of a call went: by kind of work, and between compute, communication and idling.

Times are microseconds of one call.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from mlpfusion.records.base import Record

Category = Literal["gemm", "attention", "elementwise", "normalisation", "reduction", "communication", "copies", "other"]
CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)


class CategoryTime(Record, frozen=True, kw_only=True):
    """One category of device work in a call: how many pieces, the sum of their medians, its share of all categories.

    `unknown` of them have no known time.
    """

    category: Category
    count: int
    us: float
    share: float
    unknown: int = 0


class Split(Record, frozen=True, kw_only=True):
    """How the main device spent one call, whoever launched what ran; the four parts add up to `length_us`.

    The call and its length are those of `DeviceUse`. `compute_us` and `communication_us` are the times in which only
    the one ran, on any stream, so the latter is exposed; in `both_us` both ran. Copies and fills are compute.
    """

    call: int
    length_us: float
    compute_us: float
    communication_us: float
    both_us: float
    idle_us: float


class Breakdown(Record, frozen=True, kw_only=True):
    """Where the time of a call went.

    `categories` holds those that occur, the longest first; their times are sums of kernel time, `kernel_us` in all,
    which is more than the time in which the device worked where streams overlap (`overlapping`). On a CPU, operators
    take the place of kernels, and there is no `split`.
    """

    kernel_us: float
    categories: tuple[CategoryTime, ...]
    overlapping: bool = False
    split: Split | None = None
