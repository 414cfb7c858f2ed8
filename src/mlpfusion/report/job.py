"""Renders the traces of a job as text or Markdown, or as CSV with a line for each rank."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from mlpfusion import units
from mlpfusion.report.grid import csv_text, middle_out, tabulated, titled
from mlpfusion.storage.letters import markdown, printable
from mlpfusion.trace.words import counted, numbers
from mlpfusion.units import ABSENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records.job import Job, Rank, RankSpread, Refused

_LABEL: Final = 12
_WIDTH: Final = 160
# More ranks than this are shown by the median, and only those that differ from it by a line each.
_SINGLY: Final = 32
_ODD: Final = 24
_LISTED: Final = 8  # files that are damaged, or left out
# A rank is like the others if none of its times is further from the median than this, and this part of a call.
_NEAR: Final = 0.05
_MATTERS: Final = 0.01
_PARTS: Final = ("call", "compute", "communication", "both", "idle")
_HEADS: Final = {
    "call": "call µs",
    "compute": "compute",
    "communication": "exposed comm.",
    "both": "both",
    "idle": "idle",
}
_MEANINGS: Final = {
    "call": "a call, on host and device",
    "compute": "only compute ran",
    "communication": "only communication ran: exposed",
    "both": "both ran",
    "idle": "the device idled",
}


def render(job: Job, fmt: str = "text", *, everything: bool = False) -> str:
    """A job as text, github or csv; ends with a newline. With `everything` each rank has a line."""
    if fmt == "csv":
        return csv_text([_fields(job, rank) for rank in job.ranks])
    github = fmt == "github"
    blocks = [_header(job, github=github)]
    tables = _tables(job, github=github, everything=everything)
    blocks += [titled(title, table, github=github) for title, table in tables]
    return printable("\n\n".join(block for block in blocks if block) + "\n")


# ---- above the tables ------------------------------------------------------------------------------------------------


def _header(job: Job, *, github: bool) -> str:
    lines = [("job", _what(job)), ("device", _devices(job)), ("call", _calls(job))]
    lines += [("figures", "medians of each rank's calls, in µs, with the profiler on")] if job.spreads else []
    lines += [("summary", text) for text in job.summary]
    lines += [("missing", f"no trace of {_ranks(job.missing)}")] if job.missing else []
    lines += [("damaged", text) for text in _refused(job.damaged)]
    lines += [("left out", text) for text in _refused(job.left_out)]
    lines += [("note", text) for text in job.notes]
    if github:
        return "\n".join(f"- **{markdown(label)}**: {markdown(text)}" for label, text in lines)
    return "\n".join(_wrapped(label, text) for label, text in lines)


def _wrapped(label: str, text: str) -> str:
    """A label and its text, which goes on below its beginning where it is long."""
    indent = " " * _LABEL
    return "\n".join(textwrap.wrap(f"{label:<{_LABEL}}{text}", _WIDTH, subsequent_indent=indent, drop_whitespace=True))


def _ranks(known: Sequence[int | str]) -> str:
    return f"rank{'s' * (len(known) > 1)} {numbers(known)}"


def _what(job: Job) -> str:
    """`8 traces, ranks 0–7 of 8 (the traces say so), nccl`."""
    known = [rank.rank for rank in job.ranks if rank.rank is not None]
    size = f" of {job.world_size}" if job.world_size is not None else ""
    words = {
        "trace": "as the traces say",
        "name": "by their names",
        "number": "by the numbers of their names",
        "device": "by their devices in one file",
        "unknown": "",
    }
    how = ", ".join(words[by] for by in dict.fromkeys(rank.by for rank in job.ranks) if words[by])
    parts = [
        counted(len(job.ranks), "trace"),
        f"{_ranks(known)}{size} ({how})" if known else f"ranks not known{size}",
        *([job.backend] if job.backend else []),
        *([f"{job.collectives} collectives of a rank matched"] if job.collectives else []),
    ]
    return ", ".join(parts)


def _devices(job: Job) -> str:
    names = Counter(rank.gpu or ("a GPU without a name" if rank.device == "cuda" else "CPU") for rank in job.ranks)
    return ", ".join(f"{count}x {name}" for name, count in names.most_common(_LISTED)) or ABSENT


def _calls(job: Job) -> str:
    kinds = Counter((rank.call or "the whole trace", rank.calls) for rank in job.ranks)
    shown = [
        f"{middle_out(name)}, {calls} of them on {counted(count, 'rank')}"
        for (name, calls), count in kinds.most_common(3)
    ]
    left = len(kinds) - len(shown)
    return "; ".join(shown) + (f" and {left} more kinds" if left else "") if shown else ABSENT


def _refused(found: Sequence[Refused]) -> Iterable[str]:
    """A line for each file; of many only the first, and the number of the others."""
    for one in found[:_LISTED]:
        named = one.source in one.reason
        yield one.reason if named else f"{middle_out(one.source)!r} {one.reason}"
    if len(found) > _LISTED:
        ranks = [one.rank for one in found[_LISTED:] if one.rank is not None]
        yield f"and {len(found) - _LISTED} more files" + (f", of {_ranks(ranks)}" if ranks else "")


# ---- tables ----------------------------------------------------------------------------------------------------------


class _Line(NamedTuple):
    """A row of the table of ranks: a rank of its own, or the median of those that are like it."""

    name: str
    times: dict[str, float]
    late: float | None
    last: str
    calls: str
    kernels: str
    file: str


def _tables(job: Job, *, github: bool, everything: bool) -> Iterable[tuple[str, str]]:
    if job.spreads and len(job.ranks) > 1:
        cells = [_spread(one, job.spreads[0].median) for one in job.spreads]
        heads = ["time", "what it is", "lowest", "of rank", "median", "highest", "of rank", "apart, of a call"]
        right = [False, False, True, True, True, True, True, True]
        yield "Spread over the ranks, µs of a call", tabulated(cells, heads, right, github=github)
    if job.ranks:
        lines = list(_lines(job, everything=everything))
        shown = [name for name in _PARTS if any(line.times.get(name) for line in lines)]
        late = any(line.late is not None for line in lines)
        heads = ["rank", *(_HEADS[name] for name in shown), *(["behind the first", "last at"] if late else [])]
        right = [True] * (len(heads) + 2) + [False]
        cells = [
            [
                line.name,
                *(units.plain(line.times[name]) if name in line.times else ABSENT for name in shown),
                *([units.plain(line.late) if line.late is not None else ABSENT, line.last] if late else []),
                line.calls,
                line.kernels,
                line.file,
            ]
            for line in lines
        ]
        yield "Ranks, µs of a call", tabulated(cells, [*heads, "calls", "kernels", "trace"], right, github=github)


def _spread(one: RankSpread, call_us: float) -> list[str]:
    apart = f"{(one.high - one.low) / call_us:.1%}" if call_us else ABSENT
    return [
        one.name,
        _MEANINGS.get(one.name, "sum of their times"),
        units.plain(one.low),
        _short(one.low_rank),
        units.plain(one.median),
        units.plain(one.high),
        _short(one.high_rank),
        apart,
    ]


def _short(name: int | str) -> str:
    return str(name) if isinstance(name, int) else middle_out(name, 24)


def _lines(job: Job, *, everything: bool) -> Iterable[_Line]:
    """A line for each rank; of many, one for all that are alike and one for each other, those furthest off first."""
    if everything or len(job.ranks) <= _SINGLY:
        yield from (_line(rank) for rank in job.ranks)
        return
    medians = {one.name: one.median for one in job.spreads}
    off = {at: _off(rank, medians) for at, rank in enumerate(job.ranks)}
    near = [rank for at, rank in enumerate(job.ranks) if off[at] is not None and off[at] <= 0]  # type: ignore[operator]
    odd = sorted((at for at in off if job.ranks[at] not in near), key=lambda at: -(off[at] or float("inf")))
    if near:
        known: list[int | str] = [rank.rank if rank.rank is not None else middle_out(rank.source, 24) for rank in near]
        yield _Line(
            numbers(known),
            {name: medians[name] for name in _PARTS if name in medians},
            None,
            "",
            "",
            "",
            f"{counted(len(near), 'rank')} within {_NEAR:.0%} of the median",
        )
    yield from (_line(job.ranks[at]) for at in odd[:_ODD])
    if len(odd) > _ODD:
        rest = [job.ranks[at] for at in odd[_ODD:]]
        left: list[int | str] = [rank.rank if rank.rank is not None else middle_out(rank.source, 24) for rank in rest]
        yield _Line(numbers(left), {}, None, "", "", "", f"{counted(len(rest), 'rank')} more; --all shows them")


def _off(rank: Rank, medians: dict[str, float]) -> float | None:
    """How much further a rank's times are from the median ones than is near, in µs; None where it has no times."""
    if not rank.times or not medians.get("call"):
        return None
    call = medians["call"]
    return max(
        abs(one.us - medians[one.name]) - max(_NEAR * medians[one.name], _MATTERS * call)
        for one in rank.times
        if one.name in medians
    )


def _line(rank: Rank) -> _Line:
    late = rank.late
    return _Line(
        str(rank.rank) if rank.rank is not None else "?",
        {one.name: one.us for one in rank.times if one.name in _PARTS},
        late.us if late else None,
        f"{late.last} of {late.of}" if late else "",
        str(rank.calls),
        str(rank.kernels),
        middle_out(rank.source, 48) + (f": incomplete: {middle_out(rank.incomplete, 48)}" if rank.incomplete else ""),
    )


# ---- for programs ----------------------------------------------------------------------------------------------------


def _fields(job: Job, rank: Rank) -> dict[str, object]:
    times = {one.name: one.us for one in rank.times}
    return {
        "rank": rank.rank,
        "by": rank.by,
        "source": rank.source,
        "world_size": rank.world_size,
        "backend": rank.backend,
        "device": rank.gpu or rank.device,
        "call": rank.call,
        "calls": rank.calls,
        "kernels": rank.kernels,
        "incomplete": rank.incomplete,
        **{f"{one.name.replace(' ', '_')}_us": times.get(one.name) for one in job.spreads},
        "late_us": rank.late.us if rank.late else None,
        "held_us": rank.late.held_us if rank.late else None,
        "last_at": rank.late.last if rank.late else None,
        "collectives": rank.late.of if rank.late else None,
        "findings": " ".join(rank.findings),
    }
