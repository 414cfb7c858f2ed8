"""Renders verdicts as text, Markdown, CSV or JSON: the word and why, every check, and the baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mlpfusion.report import speedup
from mlpfusion.report.grid import FORMATS, Grid, csv_text, markdown, printable, shorten, tabulated
from mlpfusion.spec import DTYPES, one_of
from mlpfusion.storage import results
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.validation import Checked, Validation, Verdict

_SHOWN: Final = {"pass": "pass", "fail": "FAIL", "reported": "see below", "not decidable here": "not here"}
_KINDS: Final = {"act_mul": "act·mul", "mlp": "gated MLP", None: "not loaded"}


def render(found: Validation, fmt: str = "text") -> str:
    """A validation in one of `grid.FORMATS`; ends with a newline.

    Raises:
        UsageError: no such format.
    """
    one_of("format", fmt, FORMATS)
    if fmt == "json":
        return results.encode(found)
    if fmt == "csv":
        return csv_text([_row(verdict, check) for verdict in found.verdicts for check in verdict.checks])
    pages = [page(verdict, github=fmt == "github") for verdict in found.verdicts]
    if found.not_judged:
        pages.append(f"NOT JUDGED, since it was interrupted: {', '.join(found.not_judged)}")
    return printable("\n\n\n".join(pages) + "\n")


def page(verdict: Verdict, *, github: bool = False) -> str:
    """One verdict: its word and headline, then a table of checks, what they found, and the baselines."""
    title = f"{verdict.target} ({_KINDS[verdict.kind]}, {verdict.activation})"
    parts = [
        f"**`{verdict.target}`** ({_KINDS[verdict.kind]}, {verdict.activation})" if github else title,
        f"{verdict.word.upper()}: {verdict.headline}",
        _table(verdict.checks, github=github),
    ]
    said = [_said(check) for check in verdict.checks if check.status != "pass" or check.figures.get("excused")]
    if said:
        parts.append("\n".join(f"- {markdown(line)}" for line in said) if github else "\n".join(said))
    if verdict.peers:
        parts.append(_peers(verdict, github=github))
    return "\n\n".join(parts)


def summary(verdict: Verdict) -> str:
    """Why a target is not accepted: the headline, each fault with its shape, and how to see it again."""
    lines = [f"{verdict.target} is {verdict.word}: {verdict.headline}"]
    for check in (*verdict.failed, *verdict.hazards):
        where = f" [{check.dtype}]" if check.dtype else ""
        shape = f" at shape {'x'.join(map(str, check.shape)) or 'scalar'}" if check.shape is not None else ""
        lines += [f"  {check.name}{where}{shape}: {check.sentence}", f"    {check.repro}"]
    return "\n".join(lines)


def matrix(verdicts: Sequence[Verdict], *, github: bool) -> str:
    """One line per target: its word and what decided it."""
    return words(verdicts).text(github=github)


def words(verdicts: Sequence[Verdict]) -> Grid:
    """The same as cells."""
    cells = [[v.target, _KINDS[v.kind], v.activation, v.word, v.headline, f"{v.seconds:.1f}"] for v in verdicts]
    heads = ["target", "kind", "activation", "verdict", "why", "s"]
    return Grid("Verdicts", heads, cells, [False] * 5 + [True])


def _table(checks: Sequence[Checked], *, github: bool) -> str:
    names = list(dict.fromkeys(check.name for check in checks))
    cells = []
    for name in names:
        own = [check for check in checks if check.name == name]
        by_dtype = {check.dtype: _status(check) for check in own}
        values = [by_dtype.get(dtype, by_dtype.get(None, ABSENT)) for dtype in DTYPES]
        cells.append([name, *values, own[0].looked_at])
    return tabulated(cells, ["check", *DTYPES, "looks at"], [False] * 5, github=github)


def _status(check: Checked) -> str:
    return "HAZARD" if check.hazard else _SHOWN[check.status]


def _said(check: Checked) -> str:
    where = f" [{check.dtype}]" if check.dtype else ""
    status = "hazard" if check.hazard else check.status
    again = f"\n    again: {check.repro}" if check.hazard or check.status == "fail" else ""
    return f"{check.name}{where}, {status}: {check.sentence}{again}"


def _peers(verdict: Verdict, *, github: bool) -> str:
    cells, notes = [], []
    for peer in verdict.peers:
        speed = ABSENT if peer.ratio is None else f"{peer.speed}: {speedup.cell(peer.ratio)} by {peer.clock}"
        kernels = "; ".join(
            f"{shorten(kernel.name)} ({_known('registers', kernel.registers)}, "
            f"{_known('B shared', kernel.shared_bytes)})"
            for kernel in peer.kernels
        )
        scores = [ABSENT if (score := peer.scores.get(dtype)) is None else f"{score:.3g}" for dtype in DTYPES]
        moved = ABSENT if peer.moved_bytes is None else f"{peer.moved_bytes / 1e6:.1f} MB"
        cells.append(
            [peer.name, *scores, str(len(peer.kernels)) if peer.kernels else ABSENT, kernels or ABSENT, moved, speed]
        )
        if peer.reason is not None:
            notes.append(f"{peer.name}: {peer.reason}")
        if peer.source is not None:
            notes.append(f"{peer.name}: its generated code is in {peer.source}")
    judged = "score" if verdict.kind == "act_mul" else "error"
    heads = [
        "against",
        *(f"{judged} {dtype}" for dtype in DTYPES),
        "kernels",
        "which",
        "operands",
        "this target's speedup",
    ]
    table = tabulated(cells, heads, [False, True, True, True, True, False, True, False], github=github)
    return "\n".join([table, *notes])


def _known(unit: str, value: int | None) -> str:
    return f"{ABSENT if value is None else value} {unit}"


def _row(verdict: Verdict, check: Checked) -> dict[str, object]:
    return {
        "target": verdict.target,
        "verdict": verdict.word,
        "check": check.name,
        "dtype": check.dtype or "",
        "status": "hazard" if check.hazard else check.status,
        "sentence": check.sentence,
        "repro": check.repro,
    }
