"""Records of a comparison: what a candidate's measurements say beside a baseline's, row by row."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from mlpfusion.records.base import Record
from mlpfusion.spec import MLPSpec, Mode

SCHEMA: Final = 1

Word = Literal["slower", "faster", "same", "inconclusive"]
# What may differ between two files: a setting that makes times incomparable, the versions that are the question, or
# what one of the files does not record.
Weight = Literal["refused", "question", "unrecorded"]


class ClockChange(Record, frozen=True, kw_only=True):
    """One clock of one row: medians in µs, and the ratio of the times, baseline over candidate.

    Above 1 the candidate is faster. The control's change is taken out of `ratio`, `low` and `high`, the ends of the
    interval of 99% confidence. `spread` is the standard deviation between processes, a share of the time, and `source`
    says where it is from. `word` is None, and `reason` says why, where the clock was not compared or decides nothing;
    else `reason` names what the word rests on. `needed` is how many processes a side would decide.
    """

    clock: str
    baseline_us: float | None
    candidate_us: float | None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    processes: tuple[int, int] = (0, 0)
    spread: float | None = None
    source: str | None = None
    word: Word | None = None
    reason: str | None = None
    needed: int | None = None


class FactChange(Record, frozen=True, kw_only=True):
    """A fact that needs no statistics and differs; `worse` makes it a regression."""

    name: str
    baseline: str
    candidate: str
    worse: bool


class RowChange(Record, frozen=True, kw_only=True):
    """Two matched rows. `word` is the times' verdict, None where no clock decides; `facts` are those that differ."""

    baseline: str
    candidate: str
    word: Word | None
    times: tuple[ClockChange, ...] = ()
    facts: tuple[FactChange, ...] = ()
    note: str | None = None

    @property
    def is_regression(self) -> bool:
        """Whether the candidate is slower, or a fact is worse."""
        return self.word == "slower" or any(fact.worse for fact in self.facts)

    @property
    def is_undecided(self) -> bool:
        """Whether it has times, and none of them tells."""
        return self.word == "inconclusive" or (self.word is None and bool(self.times))


class GroupChange(Record, frozen=True, kw_only=True):
    """The rows of one workload, and the control's own change by each clock, which is taken out of theirs.

    `spec`, `tokens` and `mode` are None where what was compared has none, as of verdicts.
    """

    title: str
    rows: tuple[RowChange, ...]
    spec: MLPSpec | None = None
    tokens: int | None = None
    mode: Mode | None = None
    control: str | None = None
    control_times: tuple[ClockChange, ...] = ()
    notes: tuple[str, ...] = ()


class SettingChange(Record, frozen=True, kw_only=True):
    """A setting or version that differs between the two files."""

    name: str
    baseline: str
    candidate: str
    weight: Weight


class Comparison(Record, frozen=True, kw_only=True):
    """What `mlpfusion compare` found. `only` are rows of one side alone, `threshold` a share of the time."""

    schema: int
    kind: Literal["comparison"]
    mlpfusion: str
    baseline: str
    candidate: str
    threshold: float
    confidence: float
    groups: tuple[GroupChange, ...]
    settings: tuple[SettingChange, ...] = ()
    only_baseline: tuple[str, ...] = ()
    only_candidate: tuple[str, ...] = ()
    geometric_means: dict[str, float] = msgspec.field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> tuple[RowChange, ...]:
        """All matched rows."""
        return tuple(row for group in self.groups for row in group.rows)


class SelfRow(Record, frozen=True, kw_only=True):
    """One clock of one row of a file against itself: `alarms` are splits of its processes that got a verdict.

    `splits` is 0 where the clock has the host in it and half of the processes are too few to judge it by.
    """

    group: str
    backend: str
    clock: str
    processes: int
    spread: float
    splits: int
    alarms: int
    largest: float


class SelfComparison(Record, frozen=True, kw_only=True):
    """What `mlpfusion compare --self` found: `sampled` says that not every split was made."""

    schema: int
    kind: Literal["self-comparison"]
    mlpfusion: str
    source: str
    threshold: float
    confidence: float
    rows: tuple[SelfRow, ...]
    sampled: bool = False
    notes: tuple[str, ...] = ()

    @property
    def alarms(self) -> int:
        """False alarms of all rows."""
        return sum(row.alarms for row in self.rows)

    @property
    def splits(self) -> int:
        """Splits of all rows."""
        return sum(row.splits for row in self.rows)
