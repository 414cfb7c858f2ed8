"""Records of a search for faster configurations of the fused kernels."""

from __future__ import annotations

from typing import Final, Literal, get_args

from mlpfusion.device import Device
from mlpfusion.records.base import Record
from mlpfusion.records.clocks import Clock, Ratio
from mlpfusion.records.environment import Environment
from mlpfusion.spec import Activation, Dtype

SCHEMA: Final = 2

# What a configuration is for: the gate/up kernel, the one that also stores gate and up, the backward kernel, and both
# kernels for a few tokens.
Direction = Literal["forward", "training", "backward", "decode"]
DIRECTIONS: Final[tuple[Direction, ...]] = get_args(Direction)


class Question(Record, frozen=True, kw_only=True):
    """One search: the fastest configuration of these kernels at this shape."""

    direction: Direction
    tokens: int
    hidden_size: int
    intermediate_size: int
    dtype: Dtype
    activation: Activation


class LeftOut(Record, frozen=True, kw_only=True):
    """A candidate that failed, and why."""

    config: str
    reason: str


class Answer(Record, frozen=True, kw_only=True):
    """What a search found, or the reason why it found nothing.

    `ratio` is the fastest other configuration's time over the shipped one's, from rounds of which none was used to pick
    it; `kept` says that it was faster beyond the noise and is what calls get from now on. Clocks replay CUDA graphs
    with a cold L2 cache. Of `candidates`, `left_out` were wrong or failed and for `untried` there was no time.
    """

    question: Question
    shipped: str
    best: str | None = None
    kept: bool = False
    shipped_us: Clock | None = None
    best_us: Clock | None = None
    ratio: Ratio | None = None
    candidates: int = 0
    left_out: tuple[LeftOut, ...] = ()
    untried: int = 0
    reason: str | None = None


class Tuning(Record, frozen=True, kw_only=True):
    """Searches of one run, on one device."""

    schema: int
    kind: Literal["tuning"]
    created: str
    device: Device
    environment: Environment
    file: str
    answers: tuple[Answer, ...]
