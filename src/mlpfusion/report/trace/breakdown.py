"""Says in a few lines where the time of a call went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion import units
from mlpfusion.report.grid import middle_out
from mlpfusion.trace.names.shown import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mlpfusion.records.breakdown import Breakdown, Category, IdleCauses, MLPShare, Queue, Split

SHOWN: Final[dict[Category, str]] = {"gemm": "GEMM"}
FASTER: Final = 1.2  # times: the example that a share of the MLPs is shown by
_IDLES: Final = 0.05  # below that a device has work all the time
_SMALL: Final = 0.005  # a share that would be shown as 0%


def breakdown_lines(breakdown: Breakdown, what: str = "call") -> Iterable[tuple[str, str]]:
    """The lines of a page's header, each with its label; `what` is the word for a call."""
    if breakdown.mlp is not None:
        yield "MLP", _mlp(breakdown.mlp, breakdown.split, what)
    if breakdown.categories and breakdown.kernel_us:
        yield "time", _categories(breakdown)
    if breakdown.split is not None and breakdown.split.communication_us + breakdown.split.both_us > 0:
        yield "step", _split(breakdown.split)
    if breakdown.idle is not None and breakdown.split is not None and breakdown.idle.idle_us > 0:
        yield "idle", _idle(breakdown.idle, breakdown.split.length_us)
    if breakdown.queue is not None:
        yield "queue", _queue(breakdown.queue)


def _mlp(mlp: MLPShare, split: Split | None, what: str) -> str:
    """`the 6 MLPs are 38% of this step (41% of its kernels' time); a backend 1.2x faster there gains 6.8% at most`."""
    subject = f"the {mlp.layers} MLPs are" if mlp.layers > 1 else "the MLP is"
    text = (
        f"{subject} {_percent(mlp.call_share)} of this {what} ({_percent(mlp.kernel_share)} of its kernels' time"
        f"{_of_backward(mlp)}); a backend {FASTER:g}x faster there gains {mlp.gain(FASTER):.1%} at most"
    )
    idle = split.idle_us / split.length_us if split and split.length_us else 0.0
    if idle < _IDLES:
        return text
    return f"{text}; the device idles {idle:.0%}, and kernels hidden behind the host gain nothing"


def _of_backward(mlp: MLPShare) -> str:
    if mlp.backward_layers is None:
        return ""
    if mlp.backward_layers == mlp.layers:
        return ", with the backward"
    if not mlp.backward_layers:
        return ", the forward alone: its backward is not recognised"
    return f", with the backward of {mlp.backward_layers} of {mlp.layers}"


def _categories(breakdown: Breakdown) -> str:
    """`GEMM 72%, elementwise 28%, copies below 0.5% of 234 µs`."""
    shown = [f"{SHOWN.get(one.category, one.category)} {_percent(one.share)}" for one in breakdown.categories]
    more = ", a sum of kernels of which some ran at the same time" if breakdown.overlapping else ""
    return f"{', '.join(shown)} of {units.plain(breakdown.kernel_us)} µs{more}"


def _split(split: Split) -> str:
    of = split.length_us or 1.0
    parts = (
        (split.compute_us, "compute"),
        (split.both_us, "compute and communication at once"),
        (split.communication_us, "communication alone"),
        (split.idle_us, "idle"),
    )
    return ", ".join(f"{_percent(us / of)} {what}" for us, what in parts) + f" of {units.plain(of)} µs"


def _idle(idle: IdleCauses, length_us: float) -> str:
    """`50% next work launched late, 2% gaps below 5 µs, 1% unknown`."""
    parts = (
        (idle.host_late_us, "next work launched late"),
        (idle.host_waits_us, "host waiting for the device"),
        (idle.stream_us, "waiting for another stream"),
        (idle.short_us, "gaps below 5 µs"),
        (idle.unknown_us, "unknown"),
    )
    return ", ".join(f"{_percent(us / length_us)} {what}" for us, what in parts if us)


def _queue(queue: Queue) -> str:
    """`7.2 µs from launch to start, at worst 80.1 (Memset (Device)); 2 queued at a launch, at most 6`."""
    return (
        f"{units.plain(queue.delay_us)} µs from launch to start, at worst {units.plain(queue.worst_us)} "
        f"({middle_out(shown(queue.worst))}); {queue.queued:g} queued at a launch, at most {queue.most_queued}"
    )


def _percent(share: float) -> str:
    return "below 0.5%" if 0 < share < _SMALL else f"{share:.0%}"
