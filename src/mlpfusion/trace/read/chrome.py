"""The file format under a trace: its bytes, its JSON, its category names and its exact times."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from mlpfusion.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

Category: TypeAlias = Literal[
    "annotation", "op", "api", "kernel", "memcpy", "memset", "sync", "overhead", "python", "device_annotation", "other"
]

# Spellings of torch 2.x first, then those of 1.8 to 1.12. HIP traces use the cuda_* names as well.
CATEGORIES: Final[dict[str, Category]] = {
    "user_annotation": "annotation",
    "cpu_op": "op",
    "cuda_runtime": "api",
    "cuda_driver": "api",
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "gpu_memset": "memset",
    "cuda_sync": "sync",
    "overhead": "overhead",
    "python_function": "python",
    "gpu_user_annotation": "device_annotation",
    "operator": "op",
    "runtime": "api",
    "memcpy": "memcpy",
    "memset": "memset",
    "hip_runtime": "api",
    "hip_driver": "api",
    "xpu_runtime": "api",
    "xpu_driver": "api",
    "xpu_sync": "sync",
    "privateuse1_runtime": "api",
    "privateuse1_driver": "api",
}
# Categories of devices and profilers that are not read, and what a trace of them is.
FOREIGN: Final = {
    "mtia_ccp_events": "of MTIA's devices, whose work is not read",
    "mtia_insight": "of MTIA's devices, whose work is not read",
    "mtia_runtime": "of MTIA's devices, whose work is not read",
    "hpu_op": "of Habana's devices, whose work is not read",
    "cuda_profiler_range": "of CUPTI's range profiler, which counts what kernels do and not when they run",
}
DEVICE_WORK: Final[frozenset[Category]] = frozenset({"kernel", "memcpy", "memset"})

# Beyond this a time is damage, not a time: 2^62 ns are 146 years.
_LIMIT_NS: Final = 2**62


def load_json(data: bytes, path: str | Path, kind: Any) -> Any:
    """`data` as `kind`. A value of another type than `kind` has raises `msgspec.ValidationError`, broken JSON does not.

    Raises:
        UsageError: the text is not JSON; the message gives the byte where reading stopped, if known.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UsageError(f"trace {str(path)!r} is not valid JSON: {reason}") from error


def nanoseconds(raw: bytes | msgspec.Raw) -> int | None:
    """Integer nanoseconds from the decimal text of a time in µs; None if it is not a plausible number.

    Absolute times (1.7e15 µs with three decimals) do not fit a float64, hence the text.
    """
    text = bytes(raw).strip(b'" ')
    whole, _, fraction = text.partition(b".")
    if whole.isdigit() and (fraction.isdigit() or not fraction) and len(whole) <= 15:
        # The fourth digit rounds: some writers print the nearest float64, 0.29999 for 0.3.
        carry = len(fraction) > 3 and fraction[3:4] >= b"5"
        return int(whole) * 1000 + int(fraction[:3].ljust(3, b"0")) + carry
    try:
        number = Decimal(text.decode("ascii"))
    except (InvalidOperation, UnicodeDecodeError):
        return None
    if not number.is_finite() or number.adjusted() > 18:
        return None
    value = round(number * 1000)
    return value if abs(value) < _LIMIT_NS else None


def integer(value: object) -> int | None:
    """An id as an int: traces write ids as numbers, strings or, from some tools, whole floats."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    text = str(value)
    return int(text) if len(text) <= 20 and text.isascii() and text.removeprefix("-").isdigit() else None
