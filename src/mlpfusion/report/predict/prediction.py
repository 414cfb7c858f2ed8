"""Renders predictions as text: the time of each launch and each call on a card that is not here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion import units
from mlpfusion.report.grid import shorten, tabulated, titled
from mlpfusion.storage.letters import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.prediction import Predicted, PredictedStep


def render(predicted: Sequence[Predicted], fmt: str, notes: Sequence[str] = (), *, explain: bool = False) -> str:
    """Predictions for one card as text or GitHub Markdown; ends with a newline.

    `explain` adds the measured products that each launch rests on.
    """
    github = fmt == "github"
    first = predicted[0]
    rates = f"{units.teraflops(first.peaks.flops_16bit)}, {units.gigabytes_per_second(first.peaks.bandwidth)}"
    assumed = first.efficiency
    head = "\n".join(
        [
            f"predicted, not measured, for {first.card} ({rates}; {first.peaks.source})",
            f"scaled: from the share of the datasheet that a launch reaches where it was timed; else "
            f"{assumed.compute:.0%} of the matrix rate and {assumed.memory:.0%} of the bandwidth, as {assumed.n} "
            f"kernels reach on {assumed.source}",
            "interval: 80%, of ten such times eight are expected in it; without the time between launches",
            *notes,
        ]
    )
    calls = [[one.backend, units.plain(one.predicted_us), _interval(one)] for one in predicted]
    heads = ["backend", "predicted µs", "80% interval"]
    launches = [
        [
            one.backend if index == 0 else "",
            str(index + 1),
            name,
            units.plain(step.predicted_us),
            _interval(step),
            step.bound,
            _origin(step),
        ]
        for one in predicted
        for index, step in enumerate(one.steps)
        for name in [step.role if step.role not in (None, "other") else shorten(step.op)]
    ]
    blocks = [
        head,
        titled("Calls", tabulated(calls, heads, [False, True, True], github=github), github=github),
        titled(
            "Launches",
            tabulated(
                launches,
                ["backend", "#", "kernel", "predicted µs", "80% interval", "bound by", "from"],
                [False, True, False, True, True, False, False],
                github=github,
            ),
            github=github,
        ),
        *([titled("Nearest measured products", _nearest(predicted, github=github), github=github)] if explain else []),
        *(
            f"{one.backend}: at least this long; how many operations {one.incomplete} takes is not known"
            for one in predicted
            if one.incomplete is not None
        ),
    ]
    return printable("\n\n".join(blocks) + "\n")


def _interval(one: Predicted | PredictedStep) -> str:
    if one.low_us is None or one.high_us is None:
        return units.ABSENT
    return f"{units.plain(one.low_us)}–{units.plain(one.high_us)}"


def _origin(step: PredictedStep) -> str:
    """Where a launch's time comes from, whether its shape lies outside the table, and what raised it."""
    said: str = step.source
    if step.nearest:
        said += f", {len(step.nearest)} nearest" + (", extrapolated" if step.extrapolated else "")
    return said if step.guard is None else f"{said}; {step.guard}"


def _nearest(predicted: Sequence[Predicted], *, github: bool) -> str:
    cells = [
        [one.backend, str(index + 1), f"{near.m} x {near.n} x {near.k}", units.plain(near.us), near.source]
        for one in predicted
        for index, step in enumerate(one.steps)
        for near in step.nearest
    ]
    heads = ["backend", "#", "m x n x k", "measured µs", "by"]
    if not cells:
        return "no launch rests on measured products of this card"
    return tabulated(cells, heads, [False, True, True, True, False], github=github)
