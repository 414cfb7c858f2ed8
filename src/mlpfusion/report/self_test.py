"""Renders a self-test as text, Markdown, CSV or JSON: each control with its expected and actual verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.report.grid import FORMATS, Grid, csv_text
from mlpfusion.spec import one_of
from mlpfusion.storage import results
from mlpfusion.storage.letters import markdown, printable

if TYPE_CHECKING:
    from mlpfusion.records.validation import Judged, SelfTest

HEADS: Final = ("control", "what it is", "should be", "is", "seen in", "the verdict's words", "s")


def render(found: SelfTest, fmt: str = "text") -> str:
    """A self-test in one of `grid.FORMATS`; ends with a newline.

    Raises:
        UsageError: no such format.
    """
    one_of("format", fmt, FORMATS)
    if fmt == "json":
        return results.encode(found)
    grid = controls(found)
    if fmt == "csv":
        return csv_text([dict(zip(HEADS, row, strict=True)) for row in grid.cells])
    table = grid.text(github=fmt == "github")
    said = [summary(found), *_wrong(found)]
    return printable("\n\n".join([table, *(map(markdown, said) if fmt == "github" else said)]) + "\n")


def controls(found: SelfTest) -> Grid:
    """Every control with what its verdict should be and is."""
    return Grid("Controls", list(HEADS), [_cells(one) for one in found.judged], [False] * 6 + [True])


def summary(found: SelfTest) -> str:
    """How many bad controls were rejected by the right check, and how many good ones accepted."""
    ran = [one for one in found.judged if one.skipped is None]
    bad = [one for one in ran if one.control.rejected_by is not None]
    good = [one for one in ran if one.control.rejected_by is None]
    right = [sum(one.wrong is None for one in group) for group in (bad, good)]
    skipped = len(found.judged) - len(ran)
    stopped = f"{len(found.not_judged)} not judged since it was interrupted, " if found.not_judged else ""
    ran_here = f"{skipped} not run here, {stopped}in {found.seconds:.0f} s"
    return (
        f"{right[0]} of {len(bad)} bad controls rejected by the check meant for them, {right[1]} of {len(good)} good "
        f"ones accepted, {ran_here} on {found.device.name} (seed {found.seed})"
    )


def _wrong(found: SelfTest) -> list[str]:
    lines = [f"{one.control.name} {one.wrong}" for one in found.judged if one.wrong is not None]
    return ["\n".join(["WRONG", *lines])] if lines else []


def _cells(one: Judged) -> list[str]:
    control, verdict = one.control, one.verdict
    should = "accepted" if control.rejected_by is None else f"rejected by {control.rejected_by}"
    if control.hazards:
        should += f" (hazards: {', '.join(control.hazards)})"
    seen = ", ".join(control.seen_in) or "–"
    if verdict is None:
        return [control.name, control.why, should, f"not run: {one.skipped}", seen, "–", "–"]
    got = verdict.word if one.wrong is None else f"WRONG: {verdict.word}"
    return [control.name, control.why, should, got, seen, verdict.headline, f"{verdict.seconds:.1f}"]
