"""What follows from the rows beyond their times: what bounds a call, what it copies, and all notes of the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion import units
from mlpfusion.report.page.cases import tokens
from mlpfusion.report.profile.columns.clocks import has_spread
from mlpfusion.report.profile.notes import notes
from mlpfusion.report.profile.row import verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mlpfusion.records.profile import Row
    from mlpfusion.report.page.cases import Case


def findings(cases: Sequence[Case]) -> tuple[str, ...]:
    """Each sentence once, with the cases that it is of."""
    where: dict[str, list[str]] = {}
    for case in cases:
        for sentence in (*_of_rows(case), *notes(case.rows)):
            where.setdefault(" ".join(sentence.split()), []).append(tokens(case.tokens))
    several = len(cases) > 1
    return tuple(
        f"{sentence} ({_shown(counts, len(cases))})" if several else sentence for sentence, counts in where.items()
    )


def _shown(where: Sequence[str], cases: int) -> str:
    each = list(dict.fromkeys(where))
    if len(where) == cases:
        return "all cases"
    return ", ".join(each[:4]) + (f" and {len(each) - 4} more" if len(each) > 4 else "")


def _of_rows(case: Case) -> Iterator[str]:
    right = [row for row in case.rows if verdict(row)[0] == "ok"]
    host = [row for row in right if row.bound is not None and row.bound.by == "cpu" and has_spread(row.bound)]
    if host:
        said = ", ".join(f"{row.backend} {units.times(row.bound.margin)}" for row in host if row.bound is not None)
        yield (
            "bound by the host, which takes longer to issue a call than the device to run it (median host over device "
            f"time): {said}"
        )
    for what in ("memcpys", "memsets"):
        found = [f"{row.backend} {count}" for row in right if (count := _launched(row, what))]
        if found:
            yield f"{what} of one call: {', '.join(found)}"
    queries = [row.backend for row in right if row.launches is not None and row.launches.syncs]
    if queries:
        yield f"synchronises inside a call: {', '.join(queries)}"


def _launched(row: Row, what: str) -> int:
    return getattr(row.launches, what) if row.launches is not None else 0
