"""Compares a target with its baselines: errors, kernels, and the ratio of times."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Final, Literal

from mlpfusion.records.clocks import Ratio
from mlpfusion.records.validation import Launched, Peer
from mlpfusion.reference import error
from mlpfusion.stages.validate.judge import bounds
from mlpfusion.stages.validate.judge.checks import timing
from mlpfusion.stages.validate.judge.checks.shapes import SCALES
from mlpfusion.stages.validate.judge.exam import Sizes, peer_target
from mlpfusion.stages.validate.judge.worker_handle import DiedError, RaisedError, UndecidableError
from mlpfusion.stages.validate.layouts import ends
from mlpfusion.stats import median_interval

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mlpfusion.records.validation import Kind
    from mlpfusion.spec import Dtype
    from mlpfusion.stages.validate.channel import Facts, Tensors
    from mlpfusion.stages.validate.judge.exam import Exam

    Ask = Callable[..., tuple[Tensors, Facts]]

SCORED: Final = (33, 97)
# The rows and sizes of the public GeGLU tutorial.
RACED: Final[dict[Kind, tuple[int, ...]]] = {"act_mul": (8192, 3072), "mlp": (8192,)}
RACED_SIZES: Final = Sizes(768, 3072)
TRACED_CALLS: Final = 10
CONFIDENCE: Final = 0.99
BAND: Final = 0.01
NO_GPU: Final = "times are a GPU's: on this device kernels run in an interpreter, or not as they would there"


def own(exam: Exam, folder: Path) -> tuple[dict[str, float | None], tuple[Launched, ...]]:
    """The target's own worst scores by dtype, and its kernels where there is a GPU."""
    kernels: tuple[Launched, ...] = ()
    if exam.device == "cuda":
        try:
            kernels = _kernels(exam, exam.ask, folder / "target.trace.json")
        except (RaisedError, UndecidableError):
            kernels = ()
    return _scores(exam, exam.ask), kernels


def peers(exam: Exam, folder: Path, sources: Callable[[str, str], str | None]) -> tuple[Peer, ...]:
    """Each requested baseline. `sources` keeps generated code and gives the name of its file, or None."""
    found = []
    for name in exam.asked.against:

        def ask(probe: str, given: Tensors, name: str = name, **options: Any) -> tuple[Tensors, Facts]:
            return exam.ask_peer(name, probe, given, **options)

        try:
            found.append(_peer(exam, name, ask, folder, sources))
        except (RaisedError, DiedError) as failure:
            found.append(Peer(name=name, reason=f"cannot be judged here: {failure}"))
    return tuple(found)


def _peer(exam: Exam, name: str, ask: Ask, folder: Path, sources: Callable[[str, str], str | None]) -> Peer:
    scores = _scores(exam, ask)
    source = None
    if name == "inductor":
        _, facts = ask(
            "generated", exam.operands(exam.finest, SCORED[:1] if exam.kind == "mlp" else SCORED, "generated")
        )
        source = sources(exam.target, "\n\n".join(facts["sources"]))
    if exam.device != "cuda":
        return Peer(name=name, scores=scores, source=source, reason=NO_GPU)
    kernels = _kernels(exam, ask, folder / "peer.trace.json")
    given = _raced_operands(exam)
    moved = sum(tensor.numel() * tensor.element_size() for tensor in given.values())  # dy stands for y: same size
    try:
        ratio, clock = _race(exam, name, given)
    except (RaisedError, UndecidableError) as failure:
        return Peer(name=name, scores=scores, kernels=kernels, moved_bytes=moved, source=source, reason=str(failure))
    return Peer(
        name=name,
        scores=scores,
        kernels=kernels,
        moved_bytes=moved,
        speed=verdict_on(ratio),
        ratio=ratio,
        clock=clock,
        source=source,
    )


def _scores(exam: Exam, ask: Ask) -> dict[str, float | None]:
    """act·mul: the worst score of y; MLP: the largest error relative to max(rms, |y|)."""
    found: dict[str, float | None] = {}
    for dtype in exam.dtypes:
        try:
            found[dtype] = _score(exam, ask, dtype)
        except (RaisedError, UndecidableError):
            found[dtype] = None
    return found


def _score(exam: Exam, ask: Ask, dtype: Dtype) -> float | None:
    worst = 0.0
    for scale in SCALES:
        shape = SCORED if exam.kind == "act_mul" else SCORED[:1]
        given = exam.operands(dtype, shape, "elementwise", scale=scale)
        y = ask("forward", given)[0]["y"]
        if exam.kind == "mlp":
            off = error(y, exam.reference(given)["y"]).maximum
            if off is None:
                return None
            worst = max(worst, off)
        else:
            worst = max(
                worst, float(bounds.forward_scores(y, given["gate"], given["up"], exam.activation, dtype).max())
            )
    return worst if worst < float("inf") else None


def _raced_operands(exam: Exam) -> Tensors:
    dtype: Dtype = "bfloat16" if "bfloat16" in exam.dtypes else exam.dtypes[0]
    shape = exam.asked.shapes[-1] if exam.asked.shapes else RACED[exam.kind]
    sizes, exam.sizes = exam.sizes, RACED_SIZES
    try:
        return exam.operands(dtype, shape, "race")
    finally:
        exam.sizes = sizes


def _kernels(exam: Exam, ask: Ask, trace: Path) -> tuple[Launched, ...]:
    _, facts = ask("traced", _raced_operands(exam), trace=str(trace), calls=TRACED_CALLS)
    return tuple(Launched(**kernel) for kernel in facts["kernels"])


def _race(exam: Exam, name: str, given: Tensors) -> tuple[Ratio, str]:
    target = peer_target(name, exam.kind)
    other = {each: given[each].flip(0) for each in timing.varied(exam)}
    results, facts = exam.ask(
        "raced",
        given | {f"other:{each}": value for each, value in other.items()},
        peers=[target],
        rounds=exam.asked.rounds,
        seed=exam.seed,
        activation=exam.activation,
    )
    at_ends = {each: ends(given[each]) if each in other else given[each] for each in exam.names}
    renewed = {each: ends(value) for each, value in other.items()}
    shape = tuple(given[exam.names[0]].shape)
    found = timing.judged(exam, at_ends, renewed, results, calls=facts["calls"], shape=shape)
    exam.after_timing.append(found)
    samples = {(backend, clock): values for backend, clock, values in facts["samples"]}
    clock = "graph_us" if {("target", "graph_us"), (target, "graph_us")} <= samples.keys() else "event_us"
    return ratio_of(samples["target", clock], samples[target, clock], name), clock


def ratio_of(mine: list[float | None], theirs: list[float | None], baseline: str) -> Ratio:
    """The median of paired ratios of samples of the same rounds, with its interval of 99% confidence.

    Raises:
        UndecidableError: there are too few rounds for such an interval.
    """
    ratios = sorted(a / b for a, b in zip(mine, theirs, strict=True) if a is not None and b is not None)
    ranks = median_interval(len(ratios), CONFIDENCE)
    if ranks is None:
        raise UndecidableError(f"{len(ratios)} rounds are too few for an interval of {CONFIDENCE:.0%}")
    low, high = ranks
    return Ratio(
        baseline=baseline,
        median=statistics.median(ratios),
        low=ratios[low],
        high=ratios[high],
        confidence=CONFIDENCE,
        n=len(ratios),
    )


def verdict_on(ratio: Ratio) -> Literal["faster", "same within noise", "slower"]:
    """Faster or slower only if the whole interval says so and the median is more than 1% from equal."""
    if ratio.high < 1 and ratio.median < 1 - BAND:
        return "faster"
    if ratio.low > 1 and ratio.median > 1 + BAND:
        return "slower"
    return "same within noise"
