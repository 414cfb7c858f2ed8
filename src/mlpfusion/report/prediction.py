"""Renders predictions as text: the time of each launch and each call on a card that is not here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion import units
from mlpfusion.report.grid import printable, shorten, tabulated, titled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.prediction import Predicted


def render(predicted: Sequence[Predicted], fmt: str) -> str:
    """Predictions for one card as text or GitHub Markdown; ends with a newline."""
    github = fmt == "github"
    first = predicted[0]
    rates = f"{units.teraflops(first.peaks.flops_16bit)}, {units.gigabytes_per_second(first.peaks.bandwidth)}"
    assumed = first.efficiency
    head = (
        f"predicted, not measured, for {first.card} ({rates}; {first.peaks.source})\n"
        f"assumes {assumed.compute:.0%} of its matrix rate and {assumed.memory:.0%} of its bandwidth, as {assumed.n} "
        f"kernels reach on {assumed.source}"
    )
    calls = [
        [one.backend, units.plain(one.predicted_us), units.percent(one.error), units.percent(one.worst_error)]
        for one in predicted
    ]
    heads = ["backend", "predicted µs", "error here, median", "error here, worst"]
    launches = [
        [one.backend if index == 0 else "", str(index + 1), name, units.plain(step.predicted_us), step.bound]
        for one in predicted
        for index, step in enumerate(one.steps)
        for name in [step.role if step.role not in (None, "other") else shorten(step.op)]
    ]
    blocks = [
        head,
        titled("Calls", tabulated(calls, heads, [False, True, True, True], github=github), github=github),
        titled(
            "Launches",
            tabulated(
                launches,
                ["backend", "#", "kernel", "predicted µs", "bound by"],
                [False, True, False, True, False],
                github=github,
            ),
            github=github,
        ),
        *(
            f"{one.backend}: at least this long; how many operations {one.incomplete} takes is not known"
            for one in predicted
            if one.incomplete is not None
        ),
    ]
    return printable("\n\n".join(blocks) + "\n")
