"""Keeps what became of each cell of a study, in memory and in its folder, so that the same command goes on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from mlpfusion.environment import conditions, machine
from mlpfusion.errors import UsageError
from mlpfusion.records.sweep.study import SCHEMA, Attempt, Kept, Study
from mlpfusion.stages.sweep import cells, folder, plan
from mlpfusion.stages.sweep.outcome import outcome
from mlpfusion.storage import results
from mlpfusion.storage.redacted import redacted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from pathlib import Path

    from mlpfusion.records.choice import Conditions
    from mlpfusion.records.profile import HostClocks, Profile
    from mlpfusion.records.sweep.cells import Cell
    from mlpfusion.stages.sweep.study import Definition

# `study.json` can be made again from the cells but for attempts: it may take this share of the time, and no more.
_SHARE: Final = 0.01


class Ledger:
    """The cells of one study in one folder that is held."""

    def __init__(
        self,
        study: Definition,
        planned: Sequence[plan.Planned],
        holds: Conditions,
        *,
        out: Path,
        shard: cells.Shard | None = None,
        fresh: bool = False,
        host_clocks: HostClocks = "exclusive",
        tell: Callable[[str], None] = lambda said: None,
    ) -> None:
        self.out, self.study, self._tell = out, study, tell
        before = folder.before(out, study.name)
        mine = [each for each in planned if shard is None or shard.has(study.settings, each.cell)]
        earlier = _away(before, mine, study) if fresh else before
        self._nodes = dict(earlier.nodes) if earlier is not None else {}
        self.node = self.named(holds)
        found = {each.digest: each for each in earlier.cells} if earlier is not None else {}
        digests = _digests(study, mine, holds, earlier)
        if fresh:
            made = [self._file(each.cell, digest) for each, digest in zip(mine, digests, strict=True)]
            self._forget(before, made, keep={each.file for each in found.values()})
        self._kept = {
            digest: self._start(each, digest, found.get(digest)) for each, digest in zip(mine, digests, strict=True)
        }
        if earlier is not None:
            self._check_versions(earlier, holds)
        self._whole = Study(
            schema=SCHEMA,
            kind="study",
            mlpfusion=holds.versions.get("mlpfusion") or "",
            created=before.created if before is not None else machine.now(),
            name=study.name,
            definition=cells.definition_digest(study.settings, study.work),
            settings=study.settings,
            models=study.models,
            cells=(),
            host_clocks=host_clocks,
        )
        self._saved_at, self._saving_s, self._changed = 0.0, 0.0, True
        self.save()

    # -- what is there

    @property
    def cells(self) -> tuple[Kept, ...]:
        """Every cell of this run."""
        return tuple(self._kept.values())

    @property
    def record(self) -> Study:
        """The study as its file has it."""
        used = {each.node for each in self._kept.values()} | {
            attempt.node for each in self._kept.values() for attempt in each.attempts
        }
        nodes = {name: holds for name, holds in self._nodes.items() if name in used or name == self.node}
        return redacted(replace(self._whole, cells=self.cells, nodes=nodes))

    def waiting(self) -> list[Kept]:
        """What is still to be measured here, longest first."""
        left = [each for each in self._kept.values() if each.state == "waiting" and each.reason is None]
        order = {id(cell): place for place, cell in enumerate(plan.longest_first([each.cell for each in left]))}
        return sorted(left, key=lambda each: order[id(each.cell)])

    def named(self, holds: Conditions, others: Collection[str] = ()) -> str:
        """The name of a node with these conditions beside `others`; one that has none gets the next."""
        for name, known in self._nodes.items():
            if known == holds and name not in others:
                return name
        name = f"node {len(self._nodes) + 1}"
        self._nodes[name] = holds
        return name

    # -- what becomes of a cell

    def finish(self, digest: str, found: Profile, attempt: Attempt) -> None:
        """Write a cell's result, whole, and keep what it says in short."""
        before = self._kept[digest]
        path = self.out / folder.CELLS / self._file(before.cell, digest)
        results.save(found, path)
        self._kept[digest] = replace(
            before,
            state="finished",
            reason=None,
            file=path.name,
            stamp=folder.stamp(path),
            node=attempt.node,
            attempts=(*before.attempts, attempt),
            outcome=outcome(found),
        )
        self.save(due=True)

    def fail(self, digest: str, attempt: Attempt) -> None:
        """Keep why a cell has no result."""
        before = self._kept[digest]
        self._kept[digest] = replace(
            before, state="failed", reason=attempt.reason, attempts=(*before.attempts, attempt)
        )
        self.save(due=True)

    def lose(self, digest: str, attempt: Attempt) -> None:
        """Keep that a worker was lost with a cell, which waits for another."""
        before = self._kept[digest]
        self._kept[digest] = replace(before, attempts=(*before.attempts, attempt))
        self.save(due=True)

    def save(self, *, due: bool = False) -> None:
        """Write `study.json`; if it is only `due`, not so often that it costs more than a share of the time."""
        now = time.monotonic()
        self._changed = self._changed or due
        if due and now - self._saved_at < self._saving_s / _SHARE:
            return
        if not self._changed:
            return
        results.save(self.record, self.out / folder.STUDY_NAME)
        self._changed = False
        self._saved_at = time.monotonic()
        self._saving_s = self._saved_at - now

    # -- the start

    def _file(self, cell: Cell, digest: str) -> str:
        return cells.file_name(cell, digest)

    def _start(self, each: plan.Planned, digest: str, before: Kept | None) -> Kept:
        fresh = Kept(cell=each.cell, digest=digest, state="waiting", attempts=before.attempts if before else ())
        name = before.file if before is not None and before.file is not None else self._file(each.cell, digest)
        path = self.out / folder.CELLS / name
        stamp = folder.stamp(path)
        if stamp is not None:
            if before is not None and before.state == "finished" and before.stamp == stamp:
                return replace(before, cell=each.cell)
            found = self._read(path, each.cell)
            if found is not None:
                node = before.node if before is not None and before.node is not None else self.node
                return replace(fresh, state="finished", file=name, stamp=stamp, node=node, outcome=outcome(found))
        if each.refused is not None:
            return replace(fresh, state="waiting" if each.away else "refused", reason=each.refused)
        return fresh

    def _read(self, path: Path, cell: Cell) -> Profile | None:
        """A cell's result; one that is damaged is set aside, to be measured anew."""
        try:
            return folder.load_cell(path, cell, self.study.settings)
        except UsageError as error:
            kept = folder.set_aside(path)
            self._tell(f"{error}; measured anew, the old file is kept as {kept.name!r}")
            return None

    def _forget(self, before: Study | None, names: Sequence[str], *, keep: Collection[str | None]) -> None:
        listed = [each.file for each in before.cells if each.file is not None] if before is not None else []
        for name in {*listed, *names}.difference(keep):
            (self.out / folder.CELLS / name).unlink(missing_ok=True)

    def _check_versions(self, earlier: Study, holds: Conditions) -> None:
        """Raise a UsageError if a cell that is still to be measured was finished with other versions."""
        missing = {
            cells.identity(self.study.settings, each.cell, {})
            for each in self._kept.values()
            if each.state == "waiting" and each.reason is None
        }
        for each in earlier.cells:
            if each.state != "finished" or each.node not in earlier.nodes:
                continue
            if cells.identity(earlier.settings, each.cell, {}) in missing and each.digest not in self._kept:
                then = replace(earlier.nodes[each.node], device=holds.device, capability=holds.capability)
                other = conditions.differences(then, holds)
                if other:
                    raise UsageError(
                        f"study folder {str(self.out)!r} holds cells measured with other versions: "
                        f"{'; '.join(other)}; --fresh measures them anew, or name another folder by --out"
                    )


def _away(before: Study | None, mine: Sequence[plan.Planned], study: Definition) -> Study | None:
    """Of an earlier run what is of kinds of GPU that are not here: nothing here can measure it anew."""
    if before is None:
        return None
    away = {cells.identity(study.settings, each.cell, {}) for each in mine if each.away}
    kept = tuple(each for each in before.cells if cells.identity(before.settings, each.cell, {}) in away)
    nodes = {name: node for name, node in before.nodes.items() if any(each.node == name for each in kept)}
    return replace(before, cells=kept, nodes=nodes)


def _digests(study: Definition, mine: Sequence[plan.Planned], holds: Conditions, earlier: Study | None) -> list[str]:
    """The digest of each cell; versions of here are none of a cell's that another kind of GPU finished earlier."""
    then: dict[str, str] = {}
    if earlier is not None and any(each.away for each in mine):
        finished = [each for each in earlier.cells if each.state == "finished"]
        then = {cells.identity(earlier.settings, each.cell, {}): each.digest for each in finished}
    found = []
    for each in mine:
        known = then.get(cells.identity(study.settings, each.cell, {})) if each.away and then else None
        found.append(known or cells.identity(study.settings, each.cell, holds.versions))
    return found
