"""Records of a study's file: every cell and what became of it."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from mlpfusion.records.base import Record
from mlpfusion.records.choice import ClockName, Conditions, Model
from mlpfusion.records.profile import HostClocks
from mlpfusion.records.sweep.cells import Cell, Settings
from mlpfusion.units import Count, Factor, Time

SCHEMA: Final = 1

State = Literal["waiting", "finished", "failed", "refused"]


class Attempt(Record, frozen=True, kw_only=True):
    """One time that a cell was given to a worker: on which node, when (UTC), for how long, and why it failed."""

    node: str
    started: str
    seconds: Time | None = None
    reason: str | None = None


class OverEager(Record, frozen=True, kw_only=True):
    """A backend's time over eager's in one cell, with its interval where there is one."""

    median: Factor
    low: Factor | None = None
    high: Factor | None = None


class Outcome(Record, frozen=True, kw_only=True):
    """What a finished cell says in short: winner and ties by one clock, times over eager's, why backends failed."""

    clock: ClockName
    winner: str | None = None
    tied: tuple[str, ...] = ()
    speeds: dict[str, OverEager] = msgspec.field(default_factory=dict)
    failed: dict[str, str] = msgspec.field(default_factory=dict)


class Stamp(Record, frozen=True, kw_only=True):
    """The size in bytes and the time of change in ns by which a file is known not to have changed."""

    bytes: Count
    mtime_ns: Count


class Kept(Record, frozen=True, kw_only=True):
    """A cell and what became of it. `file` is its result's, in the folder `cells`; `reason` says why there is none."""

    cell: Cell
    digest: str
    state: State
    reason: str | None = None
    file: str | None = None
    stamp: Stamp | None = None
    node: str | None = None
    attempts: tuple[Attempt, ...] = ()
    outcome: Outcome | None = None


class Study(Record, frozen=True, kw_only=True):
    """A study's folder in one file. `definition` is a digest of what it is to measure, equal for all of its shards.

    `nodes` are the conditions of each machine that measured, by a name that is none of its own.
    """

    schema: int
    kind: Literal["study"]
    mlpfusion: str
    created: str
    name: str
    definition: str
    settings: Settings
    models: tuple[Model, ...]
    cells: tuple[Kept, ...]
    nodes: dict[str, Conditions] = msgspec.field(default_factory=dict)
    host_clocks: HostClocks = "exclusive"
