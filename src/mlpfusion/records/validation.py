"""Records of a validation: each check's result, each target's verdict, and the file of them."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from mlpfusion.device import Device, DeviceKind
from mlpfusion.records.base import Record
from mlpfusion.records.clocks import Ratio
from mlpfusion.records.environment import Environment
from mlpfusion.spec import Activation, Dtype

SCHEMA: Final = 1

Status = Literal["pass", "fail", "reported", "not decidable here"]
Word = Literal["valid", "valid with hazards", "not valid", "not decidable here"]
Kind = Literal["act_mul", "mlp"]


class Checked(Record, frozen=True, kw_only=True):
    """One check of one target, in one dtype or (None) in all.

    `sentence` says what was found, `looked_at` what the check looks at, `repro` is a command that runs it again.
    A `hazard` is right unless one does what the sentence names. `shape` is the smallest that shows a fault. `largest`
    has the largest of each size that the target took ("M" rows and "N" columns, or "M", "hidden_size" and
    "intermediate_size"), and `refused` the calls that it refused. A fault may be what `follows` from another check's.
    """

    name: str
    looked_at: str
    status: Status
    sentence: str
    repro: str
    dtype: Dtype | None = None
    hazard: bool = False
    shape: tuple[int, ...] | None = None
    figures: dict[str, float | None] = msgspec.field(default_factory=dict)
    largest: dict[str, int] = msgspec.field(default_factory=dict)
    refused: tuple[str, ...] = ()
    follows: str | None = None


class Launched(Record, frozen=True, kw_only=True):
    """One kernel of a call: registers per thread and bytes of shared memory per block where the trace has them."""

    name: str
    time_us: float | None = None
    registers: int | None = None
    shared_bytes: int | None = None


class Peer(Record, frozen=True, kw_only=True):
    """What the target was set against: its worst scores by dtype, its kernels, and the ratio of times.

    `ratio` is the target's time / the baseline's, by `clock`; `reason` says why there is none. `moved_bytes` are those
    of its operands and results. `source` names the file that holds the code that Inductor generated.
    """

    name: str
    scores: dict[str, float | None] = msgspec.field(default_factory=dict)
    kernels: tuple[Launched, ...] = ()
    moved_bytes: int | None = None
    speed: Literal["faster", "same within noise", "slower"] | None = None
    ratio: Ratio | None = None
    clock: str | None = None
    reason: str | None = None
    source: str | None = None


class Verdict(Record, frozen=True, kw_only=True):
    """All that was found on one target. `headline` is the sentence that decided the word.

    `left_out` names the checks and shapes that a quick validation did not judge.
    """

    target: str
    kind: Kind | None
    activation: Activation
    word: Word
    headline: str
    checks: tuple[Checked, ...] = ()
    peers: tuple[Peer, ...] = ()
    kernels: tuple[Launched, ...] = ()
    configurations: int = 0
    seconds: float = 0.0
    left_out: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[Checked, ...]:
        """The checks that failed, in their order."""
        return tuple(check for check in self.checks if check.status == "fail")

    @property
    def hazards(self) -> tuple[Checked, ...]:
        """The checks that found a hazard, in their order."""
        return tuple(check for check in self.checks if check.hazard)

    @property
    def taken(self) -> tuple[Dtype, ...]:
        """The dtypes in which it runs, in their order."""
        return tuple(check.dtype for check in self.checks if check.name == "runs" and check.dtype and _is_right(check))

    @property
    def judged_for(self) -> dict[str, int]:
        """The largest of each size that a check which passed has seen."""
        found: dict[str, int] = {}
        for check in self.checks:
            for name, size in check.largest.items() if _is_right(check) else ():
                found[name] = max(size, found.get(name, 0))
        return found

    def is_accepted(self, *, strict: bool) -> bool:
        """Whether the target may be used: it is valid or, unless `strict`, valid with hazards."""
        return self.word == "valid" or (self.word == "valid with hazards" and not strict)


def _is_right(check: Checked) -> bool:
    return check.status == "pass"


class Validation(Record, frozen=True, kw_only=True):
    """A file of `mlpfusion validate`: one verdict per target.

    An interrupt came before the targets `not_judged`. `bounds` are those that values were held to, by name; files that
    are older have none.
    """

    schema: int
    kind: Literal["validation"]
    mlpfusion: str
    created: str
    seed: int
    device: Device
    environment: Environment
    verdicts: tuple[Verdict, ...]
    not_judged: tuple[str, ...] = ()
    bounds: dict[str, float] = msgspec.field(default_factory=dict)


class Changed(Record, frozen=True, kw_only=True):
    """One target in two validations: its words, the faults that are `new`, `mended`, and those `not_judged` now."""

    target: str
    words: tuple[Word, Word]
    new: tuple[Checked, ...]
    mended: tuple[Checked, ...]
    not_judged: tuple[Checked, ...]


class Since(Record, frozen=True, kw_only=True):
    """What changed since a validation of the time `created`, and in what it was `made_with` the two differ."""

    created: str
    targets: tuple[Changed, ...]
    made_with: tuple[str, ...]


# ---- controls --------------------------------------------------------------------------------------------------------


class Control(Record, frozen=True, kw_only=True):
    """A kernel whose verdict is known. `rejected_by` names the check meant for its fault; None is a good one.

    `seen_in` are the dtypes that show the fault, `hazards` those that a good one has. `device` is the only
    one that shows it, and `needs` a package without which it cannot run. `only` and `dtypes` narrow what is checked.
    """

    name: str
    target: str
    why: str
    rejected_by: str | None = None
    activation: Activation = "gelu_tanh"
    seen_in: tuple[Dtype, ...] = ()
    hazards: tuple[str, ...] = ()
    device: DeviceKind | None = None
    needs: str | None = None
    dtypes: tuple[Dtype, ...] | None = None
    only: tuple[str, ...] | None = None
    time_limit_s: float = 600.0


class Judged(Record, frozen=True, kw_only=True):
    """A control and its verdict; `wrong` says in what the verdict is not the known one, `skipped` why there is none."""

    control: Control
    verdict: Verdict | None = None
    wrong: str | None = None
    skipped: str | None = None


class SelfTest(Record, frozen=True, kw_only=True):
    """A file of `mlpfusion validate --self-test`. An interrupt came before the controls `not_judged`."""

    schema: int
    kind: Literal["self-test"]
    mlpfusion: str
    created: str
    seed: int
    seconds: float
    device: Device
    environment: Environment
    judged: tuple[Judged, ...]
    not_judged: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all controls were judged, and every one that ran got the verdict that it should."""
        ran = [one for one in self.judged if one.skipped is None]
        return bool(ran) and not self.not_judged and all(one.wrong is None for one in ran)
