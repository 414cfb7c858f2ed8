"""Estimates how much longer one measurement took than another: per process a median, over processes a Welch interval.

Processes are the unit of repetition: samples of one process are autocorrelated and share its addresses, its choice of
kernels and the state of the machine, so that they tell nothing of how much a second process would differ (Kalibera and
Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013; Hoefler and Belli, Scientific Benchmarking of Parallel
Computing Systems, SC 2015). All differences are of natural logarithms of times: 0.01 is 1%.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.stages.compare import student
from mlpfusion.stats import QUANTILE_SAMPLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    # One tuple per process of one time in µs per round; None where a round was dropped.
    Rounds = Sequence[Sequence[float | None]]

CONFIDENCE: Final = 0.99
LEVEL: Final = 1 - CONFIDENCE
ENOUGH: Final = 5  # processes whose own spread is used: with five a side 3% is found, with three it is not
PRIOR: Final = 0.007  # spread of processes where none was measured: of graph_us 0.05-0.4% were seen on H200s
# The same of clocks that differ more: a trace is of twenty calls (0.5-4.7%), and a host does something else in each
# process (event_us differs by 0.1-27%, wall_us by 0.3-9%), so that a clock with it decides by no assumed spread.
PRIORS: Final = {"kernel_us": 0.05, "event_us": 0.1, "wall_us": 0.1}
LEAST_ROUNDS: Final = QUANTILE_SAMPLES  # of a process, below which its median decides nothing
_PARTS: Final = 5  # consecutive parts of a process's rounds, whose medians show its noise, autocorrelation included


class Process(NamedTuple):
    """One process: the median of log(t / t of the control in the same round), its standard error, the rounds."""

    log: float
    noise: float
    rounds: int


class Side(NamedTuple):
    """The processes of one side: the mean of their logs, their spread (a standard deviation), and its source.

    `freedom` are the degrees of freedom of the spread, infinite for the prior.
    """

    mean: float
    processes: int
    spread: float
    freedom: float
    source: str

    @property
    def variance(self) -> float:
        """Of the mean."""
        return self.spread**2 / self.processes


class Difference(NamedTuple):
    """log(candidate / baseline), its standard error, and what it rests on.

    `enough` says that each side had ENOUGH processes, so that no spread is assumed. `paired` is a difference within the
    same processes, as of two rows of one file.
    """

    log: float
    error: float
    freedom: float
    spread: float
    source: str
    processes: tuple[int, int]
    paired: bool = False

    @property
    def enough(self) -> bool:
        """Whether nothing about the spread was assumed."""
        return min(self.processes) >= ENOUGH

    @property
    def p(self) -> float:
        """The probability of a difference at least as large where there is none."""
        if self.error == 0:
            return 0.0 if self.log else 1.0
        return student.two_sided(self.log / self.error, self.freedom)

    def half_width(self, level: float = LEVEL) -> float:
        """Half of the interval's width."""
        return student.quantile(level, self.freedom) * self.error


# ---- one process -----------------------------------------------------------------------------------------------------


def processes(rounds: Rounds, control: Rounds | None, least: int = LEAST_ROUNDS) -> tuple[Process, ...]:
    """Each process that has `least` rounds with a time of both, or of `rounds` if there is no control."""
    if control is None:
        logs = [[None if not t else math.log(t) for t in process] for process in rounds]
    else:
        logs = [
            [math.log(t) - math.log(c) if t and c else None for t, c in zip(process, other, strict=True)]
            for process, other in zip(rounds, control, strict=True)
        ]
    kept = [[log for log in process if log is not None] for process in logs]
    return tuple(_process(each) for each in kept if len(each) >= least)


def apart(rounds: Rounds, control: Rounds | None, least: int = LEAST_ROUNDS) -> tuple[Process, ...]:
    """As `processes` for a clock whose rows were not timed in the same rounds: the control's median is taken out."""
    if control is None:
        return processes(rounds, None, least)
    both = zip(rounds, control, strict=True)
    pairs = [(processes([one], None, least), processes([other], None, least)) for one, other in both]
    return tuple(
        Process(a.log - b.log, math.hypot(a.noise, b.noise), min(a.rounds, b.rounds))
        for first, second in pairs
        for a, b in zip(first, second, strict=False)  # none of either where a process has too few rounds of one
    )


def _process(logs: Sequence[float]) -> Process:
    n = len(logs)
    parts = [statistics.median(logs[part * n // _PARTS : (part + 1) * n // _PARTS]) for part in range(_PARTS)]
    return Process(statistics.median(logs), deviation(parts) / math.sqrt(_PARTS), n)


def deviation(values: Sequence[float]) -> float:
    """The standard deviation of two values at least; `statistics.stdev` takes ten times as long, in fractions."""
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


# ---- two sides -------------------------------------------------------------------------------------------------------


def between(baseline: Sequence[Process], candidate: Sequence[Process], prior: float = PRIOR) -> Difference:
    """The candidate's mean minus the baseline's, each of at least one process, by Welch's approximation."""
    known = next((_own(each) for each in (baseline, candidate) if len(each) >= ENOUGH), None)
    a, b = _side(baseline, prior, known), _side(candidate, prior, known)
    variance = a.variance + b.variance
    wide = max(a, b, key=lambda side: side.spread)
    return Difference(
        log=b.mean - a.mean,
        error=math.sqrt(variance),
        freedom=_welch((a.variance, a.freedom), (b.variance, b.freedom)),
        spread=math.sqrt((a.spread**2 + b.spread**2) / 2),
        source=wide.source,
        processes=(a.processes, b.processes),
    )


def within(both: Sequence[Process], prior: float = PRIOR) -> Difference:
    """The mean of differences that were each taken within one process."""
    side = _side(both, prior, None)
    return Difference(
        log=side.mean,
        error=math.sqrt(side.variance),
        freedom=side.freedom,
        spread=side.spread,
        source=side.source,
        processes=(side.processes, side.processes),
        paired=True,
    )


def _own(found: Sequence[Process]) -> tuple[float, float]:
    return deviation([each.log for each in found]), len(found) - 1


def _side(found: Sequence[Process], prior: float, known: tuple[float, float] | None) -> Side:
    """A side with its own spread or, of too few processes, the largest of those that may stand in for it."""
    mean, n = statistics.fmean(each.log for each in found), len(found)
    if n >= ENOUGH:
        return Side(mean, n, *_own(found), "measured")
    noise = math.sqrt(statistics.fmean(each.noise**2 for each in found))
    options = [(*known, "of the other side") if known else (prior, math.inf, "assumed")]
    options.append((noise, n * (_PARTS - 1), "noise within a process"))
    if n > 1:
        options.append((*_own(found), "measured"))
    return Side(mean, n, *max(options))


def _welch(*parts: tuple[float, float]) -> float:
    """Degrees of freedom of a sum of variances, each with its own: Welch 1947. Rounded down to a tenth."""
    total = sum(variance for variance, _ in parts)
    below = sum(variance**2 / freedom for variance, freedom in parts)
    return math.floor(10 * total**2 / below + 1e-6) / 10 if below and total**2 / below < 1e6 else math.inf
