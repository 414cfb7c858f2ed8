"""What is compared, whichever file it is from: rows with clocks and facts, in groups of one workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from mlpfusion.records.comparison import SelfRow
    from mlpfusion.spec import MLPSpec, Mode
    from mlpfusion.stages.compare.difference import Rounds

CONTROL: Final = "eager"  # the row that times are relative to
NO_CONTROL: Final = "none"


class Timed(NamedTuple):
    """One clock of a row: its median in µs, and a time per process and round, None where a round was dropped.

    `paired` says that its rounds are those of the control's, `load` the background load, a share of the host's CPU time
    or None where it was not recorded, and `has_host` that what the host does is in it.
    """

    median: float
    rounds: Rounds
    paired: bool = True
    load: float | None = None
    has_host: bool = False
    l2: str = "unknown"


class Fact(NamedTuple):
    """Something that needs no statistics. A higher `rank` is worse; None has no order. `text` is what is shown."""

    name: str
    text: str
    rank: float | None = None
    value: Hashable = None


class Subject(NamedTuple):
    """One row: its backend or target, its clocks and its facts by name.

    `tokens` are those that ran, `versions` the distributions behind it, `others` how many of its processes ran other
    kernels than most of them, and `raced_others` says that most ran others than the row names.
    """

    name: str
    clocks: Mapping[str, Timed] = {}
    facts: tuple[Fact, ...] = ()
    tokens: int | None = None
    versions: Mapping[str, str | None] = {}
    ran: bool = True
    others: int = 0
    raced_others: bool = False


class Setting(NamedTuple):
    """How something was measured. `value` None is not recorded; `refuses` says that times of another are no match."""

    name: str
    value: str | None
    refuses: bool


class Group(NamedTuple):
    """The rows of one workload of one file. `key` is what a group of another file must have to be comparable.

    Of several on one side with one key, that on the other's `device` is compared. `damage` says what in its file
    contradicts another part of it, `itself` what a profile says of its processes.
    `controls` are clocks to which times are relative, of the original model of a proof; else a row is the control.
    """

    file: str
    key: Hashable
    title: str
    rows: Mapping[str, Subject]
    settings: tuple[Setting, ...] = ()
    spec: MLPSpec | None = None
    tokens: int | None = None
    mode: Mode | None = None
    controls: Mapping[str, Timed] | None = None
    device: str | None = None
    damage: str | None = None
    itself: tuple[SelfRow, ...] = ()

    def clocks_of(self, control: str) -> Mapping[str, Timed]:
        """The clocks of its control; none where it has no such row."""
        if self.controls is not None:
            return self.controls
        row = self.rows.get(control)
        return {} if row is None else row.clocks


class Source(NamedTuple):
    """One side of a comparison as it was given: its groups, and the row that was named."""

    name: str
    groups: tuple[Group, ...]
    row: str | None = None
