"""The rows of a choice on disk: one result file per token count, and their common plan."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from mlpfusion import spec
from mlpfusion.environment import conditions, provenance
from mlpfusion.errors import UsageError
from mlpfusion.storage import files, private, results
from mlpfusion.storage.redacted import renamed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from mlpfusion.records.choice import Plan
    from mlpfusion.records.profile import Profile, Row
    from mlpfusion.spec import Workload

CHOICE_NAME: Final = "choice.json"
PLAN_NAME: Final = "plan.json"


@contextlib.contextmanager
def planned(folder: Path | None, plan: Plan, *, fresh: bool) -> Iterator[None]:
    """Keep the plan beside the rows that are made meanwhile, in a folder if there is one; it goes again without a row.

    With `fresh` the rows that are there go first.

    Raises:
        UsageError: nothing can be written there; or rows are there that were measured for another plan.
    """
    if folder is None:
        yield
        return
    _prepare(folder, plan, fresh=fresh)
    try:
        yield
    finally:
        if not _row_files(folder):
            (folder / PLAN_NAME).unlink(missing_ok=True)


def _prepare(folder: Path, plan: Plan, *, fresh: bool) -> None:
    files.check_directory("output directory", folder)
    folder.mkdir(parents=True, exist_ok=True)
    path, rows = folder / PLAN_NAME, _row_files(folder)
    with _named():
        results.check_file(folder / CHOICE_NAME, kind="choice", what=results.CHOICE, advice="")
        results.check_file(path, kind="choice plan", what=results.PLAN, advice="")
        if fresh:
            for each in rows:
                _check_ours(each)
    if fresh:
        for each in rows:
            each.unlink()
    elif rows:
        if not path.exists():
            raise UsageError(f"{str(folder)!r} holds rows but no {PLAN_NAME}; {_WAY_OUT}")
        with _named():
            before = results.load_plan(path)
        plan = _joined(folder, before, plan)
    results.save(plan, path)


def earlier(folder: Path | None, work: Workload) -> Profile | None:
    """What an earlier run left of this workload; None without one, or without a folder.

    Raises:
        UsageError: another workload is in its file.
    """
    path = path_of(folder, work)
    if path is None or not path.exists():
        return None
    with _named():
        found = results.load(path)
    if found.workload != work:
        raise UsageError(f"{str(path)!r} holds another workload; {_WAY_OUT}")
    return found


def as_typed(found: Profile | None, names: Sequence[str]) -> Profile | None:
    """The rows with the names that were typed in the place of those in the file, which have no folders.

    A row of a file with other contents keeps its name, as it is none of these backends.
    """
    if found is None:
        return None
    typed = {short: name for name, short in private.last_parts(names).items() if short != name}
    behind = {name: version for short in typed for name, version in provenance.installed(typed[short]).items()}
    same = {
        row.backend: typed[row.backend]
        for row in found.rows
        if row.backend in typed and row.distributions.get(row.backend) in (None, behind.get(typed[row.backend]))
    }
    return renamed(found, same)


def check_kept(found: Profile | None, names: Sequence[str], path: Path | None) -> None:
    """Rows of other backends are not raced away: a race without them would replace all rows.

    Raises:
        UsageError: rows of backends that are not among `names` are there.
    """
    others = [row.backend for row in found.rows if row.backend not in names] if found is not None else []
    if others:
        raise UsageError(
            f"{str(path)!r} holds rows of {', '.join(others)} too, which a race without them would replace; name them "
            f"in --backends as well, or {_WAY_OUT}"
        )


def path_of(folder: Path | None, work: Workload) -> Path | None:
    """The file of a workload's rows."""
    return None if folder is None else folder / f"{work.mode}-{work.tokens}.json"


def is_whole(found: Profile | None, names: Sequence[str]) -> bool:
    """Whether nothing is left to measure for these backends."""
    return found is not None and found.complete and [row.backend for row in found.rows] == list(names)


def finished(found: Profile | None) -> tuple[Row, ...]:
    """The rows that need no second qualification: all but those that failed in a run that came to its end."""
    if found is None:
        return ()
    return tuple(row for row in found.rows if not (found.complete and row.status == "failed"))


_WAY_OUT: Final = "name another folder, or --fresh to measure them again"


def _joined(folder: Path, before: Plan, now: Plan) -> Plan:
    """The plan for the rows that are there and those to come, which may be of other backends."""
    other = []
    if before.spec != now.spec:
        other.append("they are of another MLP")
    if before.rounds != now.rounds:
        other.append(f"they took {before.rounds} rounds, not {now.rounds}")
    then, here = before.holds.versions, now.holds.versions
    both = {name: version for name, version in then.items() if name in here}
    other += conditions.differences(replace(before.holds, versions=both), now.holds)
    if other:
        raise UsageError(f"{str(folder)!r} holds rows that do not go with this run: {'; '.join(other)}; {_WAY_OUT}")
    return replace(now, holds=replace(now.holds, versions={**then, **here}))


def _check_ours(path: Path) -> None:
    """A file that is none of ours is not deleted."""
    try:
        results.check_file(path)
    except UsageError:
        raise UsageError(f"{str(path)!r} is not a result file of mlpfusion") from None


@contextlib.contextmanager
def _named() -> Iterator[None]:
    """What is wrong with a file of the folder, and the way out, which is not `--fresh`: it may be somebody else's."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{error}; delete it, or name another folder") from None


def _row_files(folder: Path) -> list[Path]:
    return [path for mode in spec.MODES for path in sorted(folder.glob(f"{mode}-*.json"))]
