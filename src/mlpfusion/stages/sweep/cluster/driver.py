"""Hands the cells of a study out to the nodes of a cluster, and writes what comes back."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mlpfusion.environment import machine
from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.records.sweep.study import Attempt
from mlpfusion.stages.sweep import cells, measure, plan
from mlpfusion.stages.sweep.cluster import census
from mlpfusion.stages.sweep.cluster.pool import LostError, UnplacedError
from mlpfusion.storage import private, results

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlpfusion.records.choice import Conditions
    from mlpfusion.records.profile import HostClocks, Profile
    from mlpfusion.records.sweep.study import Kept
    from mlpfusion.stages.sweep.cluster.census import Census, Node
    from mlpfusion.stages.sweep.cluster.pool import Handle
    from mlpfusion.stages.sweep.ledger import Ledger

_LOST = "its worker was lost"


def run(
    ledger: Ledger,
    found: Census,
    reference: Conditions,
    *,
    host_clocks: HostClocks,
    tell: Callable[[str], None] = lambda said: None,
) -> None:
    """Measure all cells that wait on nodes with the reference's versions; a lost node's cells go to others, once.

    Raises:
        MlpfusionError: no node is left for cells that wait, or a result cannot be written.
    """
    try:
        _Driver(ledger, found, reference, host_clocks, tell).run()
    finally:
        ledger.save()


class _Task(NamedTuple):
    """A cell that a node has, since when by the clock and in UTC."""

    kept: Kept
    node: Node
    name: str
    began: float
    started: str


class _Driver:
    """One run: the nodes by name, what they have, and the cells that wait for one."""

    def __init__(
        self, ledger: Ledger, found: Census, reference: Conditions, host_clocks: HostClocks, tell: Callable[[str], None]
    ) -> None:
        self._ledger, self._census, self._reference = ledger, found, reference
        self._host_clocks, self._tell = host_clocks, tell
        self._names: dict[str, str] = {}  # by Ray's, of all that were ever there
        self._left_out: set[str] = set()
        self._tasks: dict[Handle, _Task] = {}
        self._lost: dict[str, str] = {}  # by digest of a cell, on which node it was lost
        self._waiting = ledger.waiting()
        self._total, self._done = len(self._waiting), 0

    def run(self) -> None:
        idle = time.monotonic()
        while self._waiting or self._tasks:
            self._census.look()
            self._give()
            handles = [*self._tasks, *self._census.asked]
            if handles:
                idle = time.monotonic()
                for handle in self._census.pool.ended(handles, census.POLL_S):
                    if handle in self._tasks:
                        self._ended(handle)
                    else:
                        self._census.hear(handle)
            elif time.monotonic() - idle > census.PATIENCE_S:
                break
            else:
                time.sleep(census.POLL_S)
        if self._waiting:
            raise MlpfusionError(
                f"{len(self._waiting)} cells are left without a node for {census.PATIENCE_S:g} s; there is "
                f"{self._census.there()}; the same command goes on"
            )

    # -- nodes

    def _usable(self) -> list[tuple[str, Node]]:
        """Those with the right versions, by name; a node that is seen for the first time gets one."""
        found = []
        for each in self._census.nodes.values():
            new = each.machine.id not in self._names
            if new:
                self._names[each.machine.id] = self._ledger.named(each.holds, self._names.values())
                other = census.differences(each.holds, self._reference)
                if other:
                    self._left_out.add(each.machine.id)
                    self._tell(f"{self._names[each.machine.id]} is left out: {'; '.join(other)}")
            if each.machine.id not in self._left_out:
                found.append((self._names[each.machine.id], each))
        return found

    def _give(self) -> None:
        nodes = self._usable()
        for name, node in nodes:
            free = node.machine.gpus - sum(task.name == name for task in self._tasks.values())
            for _ in range(free):
                kept = self._next(name, node, [each for other, each in nodes if other != name])
                if kept is None:
                    break
                self._start(kept, name, node)

    def _next(self, name: str, node: Node, others: list[Node]) -> Kept | None:
        """The next cell for a node; one that was lost there goes to another that can take it."""
        for each in self._waiting:
            if not plan.is_kind(each.cell.gpu, node.device):
                continue
            if self._lost.get(each.digest) == name and any(plan.is_kind(each.cell.gpu, one.device) for one in others):
                continue
            self._waiting.remove(each)
            return each
        return None

    def _start(self, kept: Kept, name: str, node: Node) -> None:
        order = measure.order(kept.cell, self._ledger.study.settings, node.device.kind, self._host_clocks)
        handle = self._census.pool.start(node.machine, "measure", msgspec.json.encode(order), packages=node.packages)
        self._tasks[handle] = _Task(kept, node, name, time.monotonic(), machine.now())
        self._tell(f"{name} ({node.device.name}): {cells.title(kept.cell)} [{self._left()}]")

    # -- what comes back

    def _ended(self, handle: Handle) -> None:
        task = self._tasks.pop(handle)
        try:
            said, value = self._census.pool.result(handle)
            reason, found = _read(*value) if said == "done" else (f"mlpfusion {value} is there now", None)
        except UnplacedError:
            self._waiting.insert(0, task.kept)
            self._census.forget(task.node)
            return
        except LostError:
            self._was_lost(task)
            return
        except MlpfusionError as error:
            reason, found = str(error), None
        attempt = self._over(task, reason)
        title = f"{task.name}: {cells.title(task.kept.cell)}"
        if found is None:
            self._ledger.fail(task.kept.digest, attempt)
            self._tell(f"{title}: failed: {reason} [{self._left()}]")
        else:
            self._ledger.finish(task.kept.digest, found, attempt)
            good = sum(row.status == "ok" for row in found.rows)
            self._tell(f"{title}: {good} of {len(found.rows)} backends ok [{self._left()}]")

    def _was_lost(self, task: _Task) -> None:
        """A cell whose worker was lost waits for another node; one that was lost before has failed."""
        before = self._lost.get(task.kept.digest)
        title = f"{task.name}: {cells.title(task.kept.cell)}"
        if before is None:
            self._lost[task.kept.digest] = task.name
            self._ledger.lose(task.kept.digest, self._attempt(task, _LOST))
            self._waiting.insert(0, task.kept)
            self._tell(f"{title}: {_LOST}; it runs again elsewhere [{self._left()}]")
            return
        reason = f"{_LOST} twice, on {before} and {task.name}"
        self._ledger.fail(task.kept.digest, self._over(task, reason))
        self._tell(f"{title}: failed: {reason} [{self._left()}]")

    def _over(self, task: _Task, reason: str | None) -> Attempt:
        self._done += 1
        return self._attempt(task, reason)

    def _attempt(self, task: _Task, reason: str | None) -> Attempt:
        seconds = time.monotonic() - task.began
        return Attempt(node=task.name, started=task.started, seconds=seconds, reason=reason)

    def _left(self) -> str:
        running = [task.kept for task in self._tasks.values()]
        left = [each.cell for each in (*self._waiting, *running)]
        time_left = plan.estimate(left, self._ledger.study.settings, self._ledger.cells)
        return plan.said(self._done, self._total, time_left, sum(node.machine.gpus for _, node in self._usable()))


def _read(reason: str | None, data: bytes) -> tuple[str | None, Profile | None]:
    if reason is not None:
        return reason, None
    with tempfile.TemporaryDirectory(prefix="mlpfusion-") as folder:
        path = Path(folder) / "answer.json"
        path.write_bytes(data)
        try:
            return None, results.load(path)
        except UsageError as error:
            return f"its answer cannot be read: {private.text(str(error))}", None
