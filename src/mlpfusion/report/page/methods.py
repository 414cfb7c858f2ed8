"""How each file was measured, what its terms mean, and how it is measured again and cited."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mlpfusion.records.choice import Choice
from mlpfusion.records.profile import Profile
from mlpfusion.report import choice
from mlpfusion.report.page.cases import cases as cases_of
from mlpfusion.report.page.cases import default_clock
from mlpfusion.report.page.verdicts import is_judged
from mlpfusion.report.profile.columns.every import all_columns
from mlpfusion.report.profile.legend import legend
from mlpfusion.report.publish import citation, reproduction
from mlpfusion.report.table import result as shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.report.page.sources import Source


class Method(NamedTuple):
    """One file: its name, kind, size and digest, how it was measured, its citation, and what measures it again."""

    name: str
    kind: str
    size: int
    digest: str
    measured: str
    cite: str
    again: str | None


class Other(NamedTuple):
    """A file that no table of the page is made of, as `mlpfusion table` shows it."""

    name: str
    text: str


def methods(sources: Sequence[Source]) -> tuple[Method, ...]:
    """One of each file."""
    return tuple(_of(each) for each in sources)


def others(sources: Sequence[Source]) -> tuple[Other, ...]:
    """The files that are neither cases nor verdicts."""
    return tuple(
        Other(each.name, shown.render(each.result, source=each.name))
        for each in sources
        if not is_judged(each) and not cases_of([each])
    )


def _of(source: Source) -> Method:
    found = source.result
    measured = ""
    if isinstance(found, Profile):
        keys = [column.key for column in all_columns()]
        measured = legend(found, default_clock(cases_of([source])), keys, github=False, kernels=True)
    elif isinstance(found, Choice):
        measured = choice.header(found, github=False)
    again = None
    if isinstance(found, Profile):
        again = reproduction.render(found, source.name.rpartition("/")[2], source.digest)
    name = source.name.rpartition("/")[2]
    cite = citation.of_result(found, name, source.digest)
    return Method(source.name, found.kind, len(source.data), source.digest, measured, cite, again)
