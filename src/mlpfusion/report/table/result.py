"""Shows what a verb has written, of whatever kind: each as the verb itself showed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mlpfusion.errors import UsageError
from mlpfusion.records.bench import Bench, Profiles
from mlpfusion.records.choice import Choice, Plan
from mlpfusion.records.prediction import Foresight
from mlpfusion.records.profile import Profile
from mlpfusion.records.proof import Proof
from mlpfusion.records.sweep.study import Study
from mlpfusion.records.tuning import Tuning
from mlpfusion.records.validation import SelfTest
from mlpfusion.report import choice, grid, proof, self_test, tuning, validation
from mlpfusion.report.predict import foresight
from mlpfusion.report.profile import table
from mlpfusion.report.sweep import summary
from mlpfusion.report.table import bench, plan
from mlpfusion.spec import one_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mlpfusion.storage.results import Result


def render(
    found: Result, fmt: str = "text", columns: Sequence[str] | None = None, *, full: bool = False, source: str = ""
) -> str:
    """A record in one of `grid.FORMATS`; ends with a newline. `columns` and `full` are for profiles.

    Raises:
        UsageError: `fmt` is none of them; a column of that name is not there; or what was asked
            for is for profiles alone.
    """
    one_of("format", fmt, grid.FORMATS)
    if isinstance(found, Profile):
        return table.render(found, fmt, columns, full=full, source=source)
    if isinstance(found, Profiles):
        return render_all(list(found.profiles.items()), fmt, columns, full=full)
    if columns is not None or full:
        option = "--columns" if columns is not None else "--full"
        raise UsageError(f"{option} is for profiles, and {source!r} holds a {found.kind!r}")
    if isinstance(found, Choice):
        return choice.render(found, fmt)
    if isinstance(found, Foresight):
        return foresight.render(found, fmt)
    if isinstance(found, Plan):
        return plan.render(found, fmt)
    if isinstance(found, Proof):
        return proof.render(found, fmt)
    if isinstance(found, Study):
        return summary.render(found, fmt)
    if isinstance(found, Tuning):
        return tuning.render(found, fmt)
    if isinstance(found, SelfTest):
        return self_test.render(found, fmt)
    return bench.render(found, fmt) if isinstance(found, Bench) else validation.render(found, fmt)


def render_all(
    found: Sequence[tuple[str, Result]], fmt: str = "text", columns: Sequence[str] | None = None, *, full: bool = False
) -> str:
    """Several files, each under its name; as JSON a list, as CSV one after the other. Errors are as of `render`."""
    return _joined([(name, render(one, fmt, columns, full=full, source=name)) for name, one in found], fmt)


def _joined(each: Sequence[tuple[str, str]], fmt: str) -> str:
    if fmt == "json":
        return "[\n" + ",\n".join(text.rstrip("\n") for _, text in each) + "\n]\n"
    if fmt == "csv":
        return "\n".join(text for _, text in each)
    return "\n".join(f"{f'## {name}' if fmt == 'github' else name}\n\n{text}" for name, text in each)
