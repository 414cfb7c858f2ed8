"""Records of a proof: errors, time, memory and kernels of a model with and without a swap."""

from __future__ import annotations

from typing import Final, Literal

from mlpfusion.device import Device
from mlpfusion.records.base import Record
from mlpfusion.records.clocks import Clock, Ratio
from mlpfusion.records.environment import Environment
from mlpfusion.records.profile import Accuracy
from mlpfusion.spec import MLPSpec, Mode

SCHEMA: Final = 2
How = Literal["swap", "inductor"]
HOW: Final[tuple[How, ...]] = ("swap", "inductor")


class Layers(Record, frozen=True, kw_only=True):
    """A swapped module: its name in the model, its class, what it computes and its layers by role."""

    name: str
    kind: str
    spec: MLPSpec
    layers: dict[str, str]


class LeftAlone(Record, frozen=True, kw_only=True):
    """A module that looks like an MLP and was not swapped, and why."""

    name: str
    kind: str
    reason: str


class Deviation(Record, frozen=True, kw_only=True):
    """|a - b| / max(rms(b), |b|) of a swapped tensor a and the original b: largest and rms; None is nan or inf."""

    max_error: float | None
    rms_error: float | None


class Logits(Record, frozen=True, kw_only=True):
    """The logits at `positions` tokens.

    `difference` is to the unswapped model; `accuracy` compares the errors that both make against fp64. `top1` is the
    share of positions with the same most likely token, and KL is from the unswapped model's distribution to the swapped
    one's, in nats.
    """

    positions: int
    vocabulary: int
    difference: Deviation
    top1: float
    kl_mean: float
    kl_max: float
    accuracy: Accuracy | None = None
    top1_fp64: float | None = None
    top1_fp64_original: float | None = None


class Loss(Record, frozen=True, kw_only=True):
    """Cross entropy of the logits to random targets, in nats."""

    original: float
    swapped: float
    fp64: float | None = None


class Gradients(Record, frozen=True, kw_only=True):
    """The gradients of that loss for all parameters, each relative to its own rms, taken together.

    `worst` is the parameter that differs most, in its rms, from the unswapped model's.
    """

    tensors: int
    difference: Deviation
    worst: str
    worst_difference: Deviation
    accuracy: Accuracy | None = None


class LayerProof(Record, frozen=True, kw_only=True):
    """One swapped module on the inputs that it gets in the unswapped model, against its own fp64."""

    name: str
    accuracy: Accuracy


class Speed(Record, frozen=True, kw_only=True):
    """The whole model's time per call by one clock, interleaved: as it was, swapped, and with MLPs that do nothing.

    `ratio` is the swapped model's time over the original's. `without` bounds what any MLP could give: `share` is 1
    minus its ratio to the original. Both are medians of paired rounds.
    """

    clock: Literal["event_us", "wall_us"]
    original: Clock
    swapped: Clock
    without: Clock
    ratio: Ratio | None
    share: Ratio | None


class Peaks(Record, frozen=True, kw_only=True):
    """Bytes that one call needs above what was allocated before it."""

    original: int
    swapped: int


class KernelCount(Record, frozen=True, kw_only=True):
    """A kernel of a traced call of the model, and how often it ran without and with the swap."""

    name: str
    original: int
    swapped: int


class Proof(Record, frozen=True, kw_only=True):
    """A result file of `mlpfusion prove`: `reasons` says why a part is absent, `failures` what breaks the policy.

    With `how` "inductor" the model was compiled in both states, and "swapped" means with the pass that places the MLPs.
    """

    schema: int
    kind: Literal["proof"]
    mlpfusion: str
    created: str
    device: Device
    environment: Environment
    transformers: str | None
    model: str
    parameters: int
    backend: str
    mode: Mode
    inputs: dict[str, str]
    swapped: tuple[Layers, ...]
    refused: tuple[LeftAlone, ...]
    logits: Logits
    loss: Loss | None
    gradients: Gradients | None
    layers: tuple[LayerProof, ...]
    speed: Speed | None
    memory: Peaks | None
    kernels: tuple[KernelCount, ...]
    policy: str
    failures: tuple[str, ...]
    reasons: dict[str, str]
    how: How = "swap"

    @property
    def holds(self) -> bool:
        """Whether nothing breaks the policy."""
        return not self.failures
