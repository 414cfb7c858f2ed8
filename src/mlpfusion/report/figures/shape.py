"""What a figure is of: the rows of one workload, from whichever file they were read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mlpfusion.device import Device
    from mlpfusion.records.environment import Environment, Process
    from mlpfusion.records.profile import Profile, Row
    from mlpfusion.records.traffic import Ceilings
    from mlpfusion.spec import MLPSpec, Workload


class Shape(NamedTuple):
    """The rows of one workload of one file, and what they were measured with.

    `model` is a name that a file has for the MLP. `profile` is the record that the rows are of, where they are of one.
    """

    path: str
    workload: Workload
    rows: tuple[Row, ...]
    device: Device
    created: str | None = None
    model: str | None = None
    environment: Environment | None = None
    processes: tuple[Process, ...] = ()
    ceilings: Ceilings | None = None
    profile: Profile | None = None

    @property
    def key(self) -> tuple[MLPSpec, int, str]:
        """What another file's shape has in common if it is of the same MLP, tokens and mode."""
        return self.workload.spec, self.workload.tokens, self.workload.mode
