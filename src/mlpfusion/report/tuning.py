"""Renders a search for configurations as text, Markdown, CSV or JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import msgspec

from mlpfusion.report import speedup
from mlpfusion.report.grid import FORMATS, Grid, clock_time, csv_text
from mlpfusion.spec import one_of
from mlpfusion.storage.letters import escaped, markdown, printable
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from mlpfusion.records.tuning import Answer, Tuning

_HEADS: Final = (
    "kernels",
    "tokens",
    "shipped",
    "graph µs [p20–p80]",
    "best other",
    "graph µs [p20–p80]",
    "speedup",
    "kept",
)
_RIGHT: Final = (False, True, False, True, False, True, True, False)


def render(tuning: Tuning, fmt: str = "text") -> str:
    """A run of the search in one of `grid.FORMATS`; ends with a newline unless it is empty.

    Raises:
        UsageError: no such format.
    """
    one_of("format", fmt, FORMATS)
    if fmt == "json":
        return escaped(json.dumps(msgspec.to_builtins(tuning), indent=1, ensure_ascii=False)) + "\n"
    if fmt == "csv":
        return csv_text([_flat(tuning, answer) for answer in tuning.answers])
    github = fmt == "github"
    table = answers(tuning).text(github=github)
    blocks = [_header(tuning, github=github), table]
    notes = [f"{_name(each)}: {text}" for each in tuning.answers for text in _notes(each)]
    if notes:
        blocks.append("\n".join(f"- {markdown(note)}" if github else note for note in notes))
    return printable("\n\n".join(blocks) + "\n")


def answers(tuning: Tuning) -> Grid:
    """The shipped configuration of each question, and the best other one."""
    return Grid("Configurations", list(_HEADS), [_cells(each) for each in tuning.answers], list(_RIGHT))


def _header(tuning: Tuning, *, github: bool) -> str:
    where, ask = tuning.environment, tuning.answers[0].question
    ratios = [answer.ratio for answer in tuning.answers if answer.ratio is not None]
    lines = [
        ("device", tuning.device.name),
        (
            "shape",
            f"hidden_size {ask.hidden_size}, intermediate_size {ask.intermediate_size}, {ask.activation}, {ask.dtype}",
        ),
        ("versions", f"torch {where.torch}, triton {where.triton}, driver {where.driver or 'unknown'}"),
        ("measured", tuning.created),
        ("graph µs", "replay of a CUDA graph of these kernels alone, L2 cold, interleaved"),
    ]
    if ratios:
        rounds, confidence = ratios[0].n, ratios[0].confidence
        meaning = f"shipped / best other, median of {rounds} paired rounds that picked nothing"
        interval = f"[interval of {confidence:.0%} confidence]; kept where all of it is above 1: faster"
        lines.append(("speedup", f"{meaning}, {interval}"))
    lines.append(("file", tuning.file))
    if github:
        return "\n".join(f"- **{markdown(name)}**: {markdown(text)}" for name, text in lines)
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines)


def _cells(answer: Answer) -> list[str]:
    return [
        answer.question.direction,
        str(answer.question.tokens),
        answer.shipped or ABSENT,
        clock_time(answer.shipped_us),
        answer.best or ABSENT,
        clock_time(answer.best_us),
        speedup.cell(answer.ratio),
        ABSENT if answer.reason is not None else "best" if answer.kept else "shipped",
    ]


def _notes(answer: Answer) -> list[str]:
    if answer.reason is not None:
        return [f"failed: {' '.join(answer.reason.split())}"]
    notes = [f"{answer.candidates} candidates"]
    if answer.untried:
        notes[0] += f", {answer.untried} of them not tried for want of time"
    return [*notes, *(f"left out: {one.config}: {' '.join(one.reason.split())}" for one in answer.left_out)]


def _name(answer: Answer) -> str:
    return f"{answer.question.direction}, {answer.question.tokens} tokens"


def _flat(tuning: Tuning, answer: Answer) -> dict[str, object]:
    """One answer as plain values; the machine and the versions travel with every line."""
    shipped, best = answer.shipped_us, answer.best_us
    return {
        "device": tuning.device.name,
        "torch": tuning.environment.torch,
        "triton": tuning.environment.triton,
        "created": tuning.created,
        **msgspec.to_builtins(answer.question),
        "shipped": answer.shipped,
        "shipped_us": shipped and shipped.median,
        "shipped_us_p20": shipped and shipped.p20,
        "shipped_us_p80": shipped and shipped.p80,
        "best": answer.best,
        "best_us": best and best.median,
        "best_us_p20": best and best.p20,
        "best_us_p80": best and best.p80,
        **speedup.fields("speedup_vs_shipped", answer.ratio),
        "rounds": shipped and shipped.n,
        "kept": answer.kept,
        "candidates": answer.candidates,
        "left_out": len(answer.left_out),
        "untried": answer.untried,
        "reason": answer.reason,
    }
