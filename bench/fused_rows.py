"""The rows that bench/fused.py measures, with the targets of each and their evaluation."""

from __future__ import annotations

import statistics
from typing import Final, Literal

import msgspec

from mlpfusion.device import Device
from mlpfusion.records.base import Record
from mlpfusion.records.clocks import Ratio, Samples
from mlpfusion.records.environment import Environment
from mlpfusion.spec import Activation, MLPSpec, Mode, Workload
from mlpfusion.stats import summarise

Verdict = Literal["reached", "missed", "not measured"]
PeerStatus = Literal["ok", "unavailable", "failed", "left out"]

# Baselines that are no backends, or more than one.
PRODUCTS: Final = "limit"  # the name in result files of the matrix products alone, by cuBLAS, with no activation
FREEZING: Final = "compile-max-autotune, freezing"
OWN_DOWN: Final = "quack, own down"
LIGER_MLP: Final = "LigerMLP"

QUACK: Final = ("quack", OWN_DOWN)
LIGER: Final = ("liger", LIGER_MLP)
COMPILED: Final = ("compile", "compile-max-autotune", FREEZING)
PEERS: Final = ("eager", *COMPILED, *LIGER, "triton", "packed", *QUACK)
OURS: Final = ("fused", "fused-graph")
GRAPH: Final = "graph_us"
HOST: Final = "host_us"
SAVED: Final = "saved_bytes"


class Target(Record, frozen=True, kw_only=True):
    """A bound: the least figure of `against` over that of `subject`, on one clock, must be at least `at_least`.

    Without `against` the figure of `subject` itself, in µs, must be at most `at_most`. `noise` accepts a ratio whose
    interval reaches the bound.
    """

    says: str
    subject: str
    against: tuple[str, ...] = ()
    at_most: float | None = None
    at_least: float | None = None
    clock: str = GRAPH
    noise: bool = False


class Planned(Record, frozen=True, kw_only=True):
    """One row before it is measured: a shape, its baselines in order of importance, and its targets.

    A baseline in `wanted` is always set up; the others are for runs that have time left.
    """

    workload: Workload
    wanted: tuple[str, ...]
    optional: tuple[str, ...]
    targets: tuple[Target, ...]

    @property
    def key(self) -> str:
        """Names the row on the command line and in the file, such as `8192x768x3072` or `8192x768x3072-training`."""
        spec = self.workload.spec
        parts = [f"{self.workload.tokens}x{spec.hidden_size}x{spec.intermediate_size}"]
        parts += ["silu"] if spec.activation == "silu" else []
        parts += [spec.dtype] if spec.dtype != "bfloat16" else []
        parts += ["training"] if self.workload.mode == "training" else []
        return "-".join(parts)


class Peer(Record, frozen=True, kw_only=True):
    """What one implementation did in one row: its samples by clock, in the order of the rounds, or why there are none.

    `reasons` says the same of single figures. `error` is its error against fp64 over eager's own.
    """

    name: str
    status: PeerStatus
    reason: str | None = None
    setup_s: float | None = None
    error: float | None = None
    saved_bytes: int | None = None
    samples: dict[str, tuple[float | None, ...]] = msgspec.field(default_factory=dict)
    reasons: dict[str, str] = msgspec.field(default_factory=dict)

    def median(self, clock: str) -> float | None:
        """The figure of a clock, or of the bytes that are saved for backward."""
        if clock == SAVED:
            return self.saved_bytes
        values = [value for value in self.samples.get(clock, ()) if value is not None]
        return statistics.median(values) if values else None


class Row(Record, frozen=True, kw_only=True):
    """One row as it was measured, in one process and one race."""

    key: str
    workload: Workload
    created: str
    seconds: float
    peers: tuple[Peer, ...]


class Result(Record, frozen=True, kw_only=True):
    """A result file of bench/fused.py."""

    schema: int = 1
    kind: Literal["fused"] = "fused"
    device: Device
    environment: Environment
    packages: dict[str, str]
    rows: tuple[Row, ...]


class Judged(Record, frozen=True, kw_only=True):
    """What came of a target: the figure that was reached, its interval where it has one, and what it is relative to."""

    target: Target
    verdict: Verdict
    reached: float | None = None
    low: float | None = None
    high: float | None = None
    baseline: str | None = None


# ---- what is measured ------------------------------------------------------------------------------------------------


def _workload(
    tokens: int, hidden: int, inner: int, *, mode: Mode = "inference", activation: Activation = "gelu_tanh"
) -> Workload:
    spec = MLPSpec(hidden_size=hidden, intermediate_size=inner, activation=activation)
    return Workload(spec=spec, batch=1, seq=tokens, mode=mode)


def _never_slower(*ours: str) -> tuple[Target, ...]:
    return tuple(
        Target(
            says="no slower than the best baseline, within noise", subject=one, against=PEERS, at_least=1.0, noise=True
        )
        for one in ours
    )


def _large(hidden: int, inner: int, most_time: float, speedups: tuple[Target, ...]) -> Planned:
    targets = (
        _near_products("first step: near the products alone", most_time),
        Target(says="goal: no slower than quack", subject="fused", against=QUACK, at_least=1.0, noise=True),
        *speedups,
        *_never_slower("fused"),
    )
    wanted = (PRODUCTS, "eager", "triton", "packed", "fused", "liger", "compile", "quack", "compile-max-autotune")
    return Planned(
        workload=_workload(8192, hidden, inner), wanted=wanted, optional=(OWN_DOWN, FREEZING), targets=targets
    )


def _near_products(says: str, most_time: float) -> Target:
    return Target(says=says, subject="fused", against=(PRODUCTS,), at_least=1 / most_time)


def _faster(against: tuple[str, ...], at_least: float, says: str) -> Target:
    return Target(says=f"faster than {says}", subject="fused", against=against, at_least=at_least)


def _medium(hidden: int, inner: int, speedup: float) -> Planned:
    wanted = (PRODUCTS, "eager", "triton", "packed", *OURS, "liger", "compile", "compile-max-autotune")
    return Planned(
        workload=_workload(256, hidden, inner),
        wanted=wanted,
        optional=("quack", FREEZING, OWN_DOWN),
        targets=(_faster(PEERS, speedup, "the best baseline"), *_never_slower("fused")),
    )


def _decode(tokens: int, hidden: int, inner: int, speedup: Target) -> Planned:
    targets: tuple[Target, ...] = (speedup, *_never_slower("fused"))
    if tokens == 1:
        targets += (
            *(
                Target(says="host cost near eager's", subject=one, against=("eager",), at_least=1 / 1.1, clock=HOST)
                for one in ("triton", "fused")
            ),
            Target(says="host cost of a call in µs", subject="fused-graph", at_most=10.0, clock=HOST),
        )
    return Planned(
        workload=_workload(tokens, hidden, inner),
        wanted=(PRODUCTS, "eager", "triton", "packed", *OURS, "liger", "compile"),
        optional=("quack", "compile-max-autotune", FREEZING, OWN_DOWN),
        targets=targets,
    )


def _training(hidden: int, inner: int, speedup: float) -> Planned:
    peers = ("eager", "compile", "liger")
    targets = (
        _near_products("near the products alone", 1.04),
        _faster(peers, speedup, "the best of eager, compile and liger"),
        Target(
            says="fewer bytes saved for backward", subject="fused", against=("liger",), at_least=1 / 0.70, clock=SAVED
        ),
        *_never_slower("fused"),
    )
    return Planned(
        workload=_workload(8192, hidden, inner, mode="training"),
        wanted=(PRODUCTS, "eager", "triton", "packed", "fused", "liger", "compile"),
        optional=("quack",),
        targets=targets,
    )


def _silu() -> Planned:
    return Planned(
        workload=_workload(8192, 2048, 16384, activation="silu"),
        wanted=(PRODUCTS, "eager", "triton", "packed", "fused", *LIGER, "compile"),
        optional=("quack", "compile-max-autotune"),
        targets=(_faster(LIGER, 1.0, "Liger's fused MLP"), *_never_slower("fused")),
    )


COMPILE_OR_LIGER: Final = ("compile", "compile-max-autotune", "liger")
ARTICLES: Final = (
    _faster(("compile",), 1.45, "compile"),
    _faster(("compile-max-autotune",), 1.35, "max-autotune"),
    _faster(("liger",), 1.40, "liger"),
)
ROWS: Final = (
    _large(768, 3072, 1.03, ARTICLES),
    _large(2048, 16384, 1.015, (_faster(COMPILE_OR_LIGER, 1.14, "the best of compile, max-autotune and liger"),)),
    _large(4096, 14336, 1.012, (_faster(COMPILE_OR_LIGER, 1.06, "the best of compile, max-autotune and liger"),)),
    *(_decode(m, 2048, 16384, _faster(PEERS, 1.10, "the best baseline")) for m in (1, 4, 16)),
    *(_decode(m, 768, 3072, _faster(("compile",), 1.6, "compile")) for m in (1, 4, 16)),
    _medium(768, 3072, 1.25),
    _medium(2048, 16384, 1.12),
    _training(768, 3072, 1.08),
    _training(2048, 16384, 1.05),
    _silu(),
)


# ---- what samples say ------------------------------------------------------------------------------------------------


def judge(row: Row, target: Target) -> Judged:
    """The verdict on one target: medians of paired ratios, both sides from the same race."""
    peers = {peer.name: peer for peer in row.peers}
    subject = peers.get(target.subject)
    mine = None if subject is None else subject.median(target.clock)
    if subject is None or mine is None:
        return Judged(target=target, verdict="not measured")
    if not target.against:
        return _against_bound(target, mine, None, None)
    figures = ((peers[name], peers[name].median(target.clock)) for name in target.against if name in peers)
    rivals = [(figure, peer) for peer, figure in figures if figure is not None]
    if not rivals:
        return Judged(target=target, verdict="not measured")
    theirs, best = min(rivals, key=lambda rival: rival[0])
    paired = speedup(subject, best, target.clock)
    if paired is None:
        return _against_bound(target, theirs / mine, None, best.name)
    return _against_bound(target, paired.median, paired, best.name)


def _against_bound(target: Target, reached: float, paired: Ratio | None, baseline: str | None) -> Judged:
    low, high = (None, None) if paired is None else (paired.low, paired.high)
    if target.at_least is not None:
        best = high if target.noise and high is not None else reached
        good = best >= target.at_least
    else:
        good = target.at_most is not None and reached <= target.at_most
    verdict: Verdict = "reached" if good else "missed"
    return Judged(target=target, verdict=verdict, reached=reached, low=low, high=high, baseline=baseline)


def speedup(subject: Peer, baseline: Peer, clock: str) -> Ratio | None:
    """baseline / subject round by round: above 1 `subject` is faster; None where a clock has no or too few samples."""
    pair = (baseline, subject)
    if not all(peer.samples.get(clock) for peer in pair):
        return None
    series = [Samples(backend=peer.name, clock=clock, l2="cold", values=peer.samples[clock]) for peer in pair]
    return summarise(*series).ratio_to_eager


# ---- what there is time for ------------------------------------------------------------------------------------------

# Seconds to set a baseline up in one row. compile and max-autotune took 5.7 and 12.1 at their first shape on an H200
# (bench/results/h200-article.json), its imports included; the others are estimates. A run writes down what it took.
SETUP_S: Final = {
    "compile": 4.0,
    "compile-max-autotune": 14.0,
    FREEZING: 14.0,
    "quack": 25.0,
    OWN_DOWN: 20.0,
    LIGER_MLP: 25.0,
    "fused": 3.0,
}
OTHERS_SETUP_S: Final = 0.5
TRAINING_SETUP_FACTOR: Final = 3  # forward and backward are tuned and compiled apart, and there are more products


def setup_s(planned: Planned, peer: str) -> float:
    """Seconds that it takes to set this baseline up."""
    return SETUP_S.get(peer, OTHERS_SETUP_S) * (TRAINING_SETUP_FACTOR if planned.workload.mode == "training" else 1)


def race_s(planned: Planned, rounds: int) -> float:
    """Seconds of the race: 11 calls of each baseline in each round, at about 600 TFLOP/s, and their cache flushes."""
    call = planned.workload.flops / 600e12 + 300e-6
    return 11 * rounds * call * len(planned.wanted) + 2


def worth_it(planned: Planned, peer: str, later: tuple[Planned, ...], left_s: float, rounds: int) -> bool:
    """Whether there is time to set this baseline up, beside what this row and the later ones want."""
    if peer in planned.wanted:
        return setup_s(planned, peer) + race_s(planned, rounds) <= left_s
    reserved = race_s(planned, rounds)
    reserved += sum(race_s(row, rounds) + sum(setup_s(row, one) for one in row.wanted) for row in later)
    return setup_s(planned, peer) + reserved <= left_s
