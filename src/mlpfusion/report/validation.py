"""Renders verdicts as text, Markdown, CSV or JSON: the word and why, what was found and follows, and the baselines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mlpfusion.report import github_comment, speedup, validation_since
from mlpfusion.report.grid import FORMATS, Grid, csv_text, shorten, tabulated
from mlpfusion.spec import DTYPES, one_of
from mlpfusion.storage import results
from mlpfusion.storage.letters import code, markdown, printable
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.records.validation import Checked, Since, Validation, Verdict

_SHOWN: Final = {"pass": "pass", "fail": "FAIL", "reported": "see below", "not decidable here": "not here"}
_DTYPES: Final = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_SIZES: Final = {"hidden_size": "hidden", "intermediate_size": "intermediate"}
_TARGET: Final = 160  # letters of a target's name in Markdown
_KERNELS: Final = 12  # kernels of a call that are named
_SHAPES: Final = 12  # shapes that are named of a check
_SHAPE: Final = re.compile(r"\d+(x\d+)*")
_KINDS: Final = {"act_mul": "act·mul", "mlp": "gated MLP", None: "not loaded"}


def render(found: Validation, fmt: str = "text", *, everything: bool = False, since: Since | None = None) -> str:
    """A validation in one of `grid.FORMATS`; ends with a newline. Markdown fits a comment on GitHub.

    `everything` is the table of all checks as well, and each fault that follows from another. What changed `since` an
    earlier one comes first.

    Raises:
        UsageError: no such format.
    """
    one_of("format", fmt, FORMATS)
    if fmt == "json":
        return results.encode(found)
    if fmt == "csv":
        return csv_text([_row(verdict, check) for verdict in found.verdicts for check in verdict.checks])
    pages = [page(verdict, github=fmt == "github", everything=everything) for verdict in found.verdicts]
    if since is not None:
        pages.insert(0, validation_since.page(since, github=fmt == "github"))
    if found.not_judged:
        line = f"NOT JUDGED, since it was interrupted: {', '.join(found.not_judged)}"
        pages.append(markdown(line) if fmt == "github" else line)
    text = github_comment.fitting(pages) if fmt == "github" else "\n\n\n".join(pages)
    return printable(f"{text}\n")


def page(verdict: Verdict, *, github: bool = False, everything: bool = False) -> str:
    """One verdict: its word and headline, for what it was judged, each cause with what follows, and the baselines.

    With `everything` there is the table of all checks, and what follows is told in full.
    """
    name = f"**{code(github_comment.cut(verdict.target, _TARGET))}**" if github else verdict.target
    lines = [
        f"{verdict.word.upper()}: {verdict.headline}",
        *_extent(verdict),
        *([f"left out by --quick: {_left_out(verdict, everything=everything)}"] if verdict.left_out else []),
    ]
    parts = [f"{name} ({_KINDS[verdict.kind]}, {verdict.activation})", *(map(markdown, lines) if github else lines)]
    if everything and verdict.checks:
        parts.append(_table(verdict.checks, github=github))
    told = [check for check in verdict.checks if _is_told(check) and (everything or check.follows is None)]
    said = [_said(check, [] if everything else _following(verdict, check, told)) for check in told]
    if said:
        parts.append("\n".join(f"- {markdown(line)}" for line in said) if github else "\n".join(said))
    passed = sum(check.status == "pass" for check in verdict.checks)
    if passed and not everything:
        parts.append(f"{passed} check{'s' * (passed != 1)} passed; --all shows each")
    if verdict.peers:
        parts.append(_peers(verdict, github=github))
    return "\n\n".join(parts)


def _left_out(verdict: Verdict, *, everything: bool) -> str:
    """What a quick validation did not judge; shapes, which are dozens, by their number alone."""
    shapes = [name for name in verdict.left_out if _SHAPE.fullmatch(name)]
    if everything or len(shapes) < 4:
        return ", ".join(verdict.left_out)
    others = [name for name in verdict.left_out if name not in shapes]
    return ", ".join([*others, f"{len(shapes)} shapes (--all names them)"])


def _is_told(check: Checked) -> bool:
    """Whether a check has found something to be told: anything but a plain pass."""
    return check.status != "pass" or bool(check.figures.get("excused") or check.refused)


def _following(verdict: Verdict, cause: Checked, told: Sequence[Checked]) -> list[Checked]:
    """What follows from a cause; of one in several dtypes, only the first that is told has it."""
    first = next(each for each in told if each.name == cause.name)
    return [check for check in verdict.checks if check.follows == cause.name] if cause is first else []


def _extent(verdict: Verdict) -> list[str]:
    """Up to which sizes and in which dtypes it was judged, and which it refused."""
    sizes = [f"{_SIZES.get(name, name)} ≤ {size:,}" for name, size in verdict.judged_for.items()]
    if not verdict.taken or not sizes:
        return []
    runs = [check for check in verdict.checks if check.name == "runs"]
    refused = [_DTYPES[check.dtype] for check in runs if check.dtype and check.status == "reported"]
    said = f"judged for {', '.join([*sizes, *(_DTYPES[dtype] for dtype in verdict.taken)])}"
    return [f"{said}; refused: {', '.join(refused)}" if refused else said]


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


def _said(check: Checked, following: Sequence[Checked]) -> str:
    status = "hazard" if check.hazard else check.status
    shape = f" at shape {'x'.join(map(str, check.shape)) or 'scalar'}" if check.shape is not None else ""
    lines = [f"{_named(check)}, {status}{shape}: {check.sentence}"]
    if check.hazard or check.status == "fail":
        lines.append(f"again: {check.repro}")
    elif check.status == "pass" and check.refused and "refuse" not in check.sentence:
        lines.append(f"refused: {', '.join(check.refused[:_SHAPES])}{_more(check.refused, _SHAPES)}")
    if following:
        checks = f"{len(following)} check{'s follow' if len(following) != 1 else ' follows'}"
        lines.append(f"{checks} from this: {', '.join(map(_named, following))}")
    return "\n    ".join(lines)


def _named(check: Checked) -> str:
    return f"{check.name} [{check.dtype}]" if check.dtype else check.name


def _more(items: Sequence[object], shown: int) -> str:
    return f" and {len(items) - shown} more" if len(items) > shown else ""


def _peers(verdict: Verdict, *, github: bool) -> str:
    cells, notes = [], []
    for peer in verdict.peers:
        speed = ABSENT if peer.ratio is None else f"{peer.speed}: {speedup.cell(peer.ratio)} by {peer.clock}"
        kernels = "; ".join(
            f"{shorten(kernel.name)} ({_known('registers', kernel.registers)}, "
            f"{_known('B shared', kernel.shared_bytes)})"
            for kernel in peer.kernels[:_KERNELS]
        ) + _more(peer.kernels, _KERNELS)
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
    return "\n".join([table, *(map(markdown, notes) if github else notes)])


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
        "follows": check.follows or "",
        "repro": check.repro,
    }
