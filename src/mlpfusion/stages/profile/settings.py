"""How often a profile races, and what an earlier one was asked to measure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion.environment import again

if TYPE_CHECKING:
    from mlpfusion.device import DeviceKind
    from mlpfusion.records.profile import Profile
    from mlpfusion.spec import Workload

ROUNDS: Final = 60
# Of a result to be published: five processes a side find 3% among the noise between processes, three do not.
PUBLISHED_PROCESSES: Final = 5


class Settings(NamedTuple):
    """What a profile measures: the workload, the backends, and how often."""

    workload: Workload
    device: DeviceKind
    backends: tuple[str, ...]
    rounds: int
    processes: int


def of(profile: Profile) -> Settings:
    """The settings of a profile that is there; the usual number of rounds where nothing in it was raced.

    Raises:
        UsageError: the file of a loose backend is not in the working folder or below, or may be one of several.
    """
    raced = [
        clock.rounds
        for row in profile.rows
        if row.clocks is not None
        for clock in (row.clocks.wall_us, row.clocks.event_us, row.clocks.graph_us)
        if clock is not None and clock.rounds
    ]
    return Settings(
        workload=profile.workload,
        device=profile.device.kind,
        backends=tuple(
            again.found(row.backend, row.distributions.get(row.backend), [Path.cwd()]) for row in profile.rows
        ),
        rounds=max((len(rounds[0]) for rounds in raced), default=ROUNDS),
        processes=max(len(profile.processes), 1),
    )
