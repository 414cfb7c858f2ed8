"""The valid range of every number that a caller may pass, for the command line and the Python functions."""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple

from mlpfusion.errors import UsageError


class Whole(NamedTuple):
    """Integers from `least` to `most`, both among them."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"an integer from {self.least} to {self.most}"


class Share(NamedTuple):
    """Shares from `least` to `most`, 1 being all, both among them."""

    least: float
    most: float

    def __str__(self) -> str:
        return f"a share from {self.least:g} to {self.most:g}"


class Seconds(NamedTuple):
    """Times from `least` to `most` seconds, both among them."""

    least: float
    most: float

    def __str__(self) -> str:
        return f"a number of seconds from {self.least:g} to {self.most:g}"


# Kernels index with 32 bits, one of them for the sign; what does not fit into memory is refused on top of that.
SIZE: Final = Whole(1, 2**31 - 1)
TOKENS: Final = Whole(1, 2**31 - 1)
# Tokens are rounded up to a power of two, which has to fit as well.
TUNED_TOKENS: Final = Whole(1, 2**30)
# A shape to be validated: one fp64 tensor of that many elements has 1 GiB, and the judge holds several.
SHAPE: Final = Whole(0, 2**27)
LAYERS: Final = Whole(1, 100_000)
CARDS: Final = Whole(1, 65_536)
ROUNDS: Final = Whole(1, 100_000)
ROUNDS_OR_NONE: Final = Whole(0, ROUNDS.most)
PROCESSES: Final = Whole(1, 30)  # as many as Student's t is known for
CALLS: Final = Whole(1, 100_000)
SEED: Final = Whole(0, 2**63 - 1)
RANK: Final = Whole(0, 10_000_000)
PORT: Final = Whole(0, 65_535)
VERSION: Final = Whole(1, 2**31 - 1)
BYTES: Final = Whole(1, 2**63 - 1)
# A week: nobody waits longer, and the system's own timers overflow at 2**31 milliseconds, which is 25 days.
SECONDS: Final = Seconds(0.001, 604_800.0)

# The smallest change of a time that counts: less than a tenth of a percent is no kernel's.
THRESHOLD: Final = Share(0.001, 0.5)

_MOST_BITS: Final = 10_000  # Python refuses to write or read an integer of more than 4300 digits, which has 14_000
_DECIMAL: Final = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def whole(name: str, value: object, limit: Whole) -> int:
    """`value` if it is an integer within `limit`; else a `UsageError` that names it and the limit."""
    if isinstance(value, int) and not isinstance(value, bool) and limit.least <= value <= limit.most:
        return value
    raise refusal(name, value, limit)


def seconds(name: str, value: object, limit: Seconds = SECONDS) -> float:
    """`value` if it is a number within `limit`; else a `UsageError` that names it and the limit."""
    return _number(name, value, limit)


def share(name: str, value: object, limit: Share) -> float:
    """`value` if it is a number within `limit`; else a `UsageError` that names it and the limit."""
    return _number(name, value, limit)


def _number(name: str, value: object, limit: Seconds | Share) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and limit.least <= value <= limit.most:
        return float(value)
    raise refusal(name, value, limit)


def whole_in(name: str, text: str, limit: Whole) -> int:
    """The integer in `text`, which is plain decimal digits; errors are as of `whole`."""
    digits = text.lstrip("0") or text[-1:]
    if text.isascii() and text.isdigit() and len(digits) <= len(str(limit.most)):
        value = int(digits)
        if limit.least <= value <= limit.most:
            return value
    raise refusal(name, text, limit)


def seconds_in(name: str, text: str, limit: Seconds = SECONDS) -> float:
    """The number in `text`, decimal digits with or without a power of ten; errors are as of `seconds`."""
    if _DECIMAL.fullmatch(text):
        value = float(text)
        if limit.least <= value <= limit.most:
            return value
    raise refusal(name, text, limit)


def refusal(name: str, value: object, limit: Whole | Seconds | Share) -> UsageError:
    """The error for a value that is not within `limit`."""
    return UsageError(f"{name} must be {limit}, got {shown(value)}")


def shown(value: object) -> str:
    """The value as a message has it; an integer of thousands of digits, which Python refuses to write, by its size."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > _MOST_BITS:
        return f"an integer of about {math.ceil(value.bit_length() * math.log10(2))} digits"
    return repr(value)
