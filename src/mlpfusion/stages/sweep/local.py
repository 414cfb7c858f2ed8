"""Runs the cells of a study on this host: one worker for each slot, the longest cells first."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from typing import IO, TYPE_CHECKING, Final, NamedTuple

import msgspec

from mlpfusion.environment import machine
from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.measure import turns
from mlpfusion.records.sweep.study import Attempt
from mlpfusion.stages.sweep import cells, measure, plan, worker
from mlpfusion.storage import files, private, results
from mlpfusion.workers import lifetime, supervise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from mlpfusion.records.profile import HostClocks
    from mlpfusion.records.sweep.study import Kept
    from mlpfusion.stages.sweep.ledger import Ledger
    from mlpfusion.stages.sweep.slots import Slot

COMMAND: Final = (sys.executable, "-m", "mlpfusion.stages.sweep.worker")
START_S: Final = 300.0  # importing PyTorch takes 5 s alone, and a minute on a machine that is busy or cold
# Ctrl-C ends all within 5 s: a worker has END_S to end what it started, and the kernel GONE_S for what was killed.
END_S: Final = 3.0
GONE_S: Final = 1.0
_STAYS: Final = "its worker cannot be ended: the driver of its card may hang"
_POLL_S: Final = 0.5
_BLOCK: Final = 65_536


def run(
    ledger: Ledger,
    slots: Sequence[Slot],
    *,
    host_clocks: HostClocks = "exclusive",
    tell: Callable[[str], None] = lambda said: None,
) -> None:
    """Measure all cells that wait and have a slot; what fails is a failed cell, and the next gets a new worker.

    Raises:
        MlpfusionError: no slot is left for cells that wait, or a result cannot be written.
    """
    with files.scratch() as scratch:
        driver = _Driver(ledger, scratch, host_clocks, tell)
        try:
            driver.run(slots)
        finally:
            driver.end()
            ledger.save()


class _Task(NamedTuple):
    """A cell that a worker has: when it began, by the clock and in UTC, and when it counts as hung, but for waits."""

    kept: Kept
    began: float
    started: str
    late: float


class _Worker:
    """One process on one slot; a cell that it has is `task`, and `ready` says that it has answered."""

    def __init__(self, number: int, slot: Slot, scratch: Path, host_clocks: HostClocks) -> None:
        self.slot, self.name = slot, _name(number, slot)
        self.task: _Task | None = None
        self.ready = False
        self.step = ""
        self._unread = b""
        self.answer = scratch / f"{number}.answer.json"
        self.log = scratch / f"{number}.log"
        self._born = time.monotonic()
        self._waits = scratch / f"{number}.waits"
        environment = {**slot.environment, **worker.turns_of(host_clocks, self._waits)}
        environment |= {lifetime.PARENT: str(os.getpid()), worker.CPUS: ",".join(map(str, sorted(slot.cpus)))}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*COMMAND, slot.device.kind],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C of the terminal is for the driver
            )

    @property
    def out(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def give(self, kept: Kept, order: measure.Order) -> None:
        """Have it measure a cell."""
        now = time.monotonic()
        self.task = _Task(kept, now, machine.now(), now + measure.limit_s(order) - turns.waited(self._waits))
        self.answer.unlink(missing_ok=True)
        line = json.dumps([msgspec.to_builtins(order), str(self.answer)])
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended, which the next reading finds
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()

    def said(self) -> list[tuple[str, str]] | None:
        """What it has said since, None once it has ended."""
        more = os.read(self.out.fileno(), _BLOCK)
        if not more:
            return None
        *lines, self._unread = (self._unread + more).split(b"\n")
        return [(kind, text) for kind, text in map(json.loads, lines)]

    def is_late(self) -> bool:
        """Whether it has said nothing for longer than anything takes; waits for other workers do not count."""
        now = time.monotonic()
        if self.task is None:
            return not self.ready and now > self._born + START_S
        return now > self.task.late and now > self.task.late + turns.waited(self._waits)

    def death(self) -> str:
        """How it ended, now that nothing more comes from it."""
        if not self.has_ended(supervise.KILLED_S):
            return _STAYS
        return supervise.death(self.process.wait(), self.log)

    def has_ended(self, seconds: float) -> bool:
        """Whether it ends within this time; what waits for a card that is gone may not, even killed."""
        try:
            self.process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired:
            return False
        return True

    def signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # nobody of its session is left
            os.killpg(self.process.pid, number)


class _Driver:
    """The workers of one run, and the cells that wait for one."""

    def __init__(self, ledger: Ledger, scratch: Path, host_clocks: HostClocks, tell: Callable[[str], None]) -> None:
        self._ledger, self._scratch, self._host_clocks, self._tell = ledger, scratch, host_clocks, tell
        self._waiting = ledger.waiting()
        self._total, self._done = len(self._waiting), 0
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()
        self._gone: list[str] = []
        self._number = 0

    def run(self, slots: Sequence[Slot]) -> None:
        for slot in slots:
            if self._next(slot, take=False) is not None:
                self._start(slot)
        while self._workers:
            for key, _ in self._selector.select(_POLL_S):
                self._hear(key.data)
            for each in list(self._workers):
                if each.is_late():
                    self._lost(each, "no answer within its time limit; it was killed")
        if self._waiting:
            raise MlpfusionError(
                f"{len(self._waiting)} cells are left without a worker: {'; '.join(self._gone) or 'none could start'}; "
                "the same command goes on"
            )

    def end(self) -> None:
        """End all workers and what they started, within END_S and GONE_S.

        One that is not ready has started nothing that outlives it, and is deaf while it imports.
        """
        for each in self._workers:
            each.signal(signal.SIGTERM if each.ready else signal.SIGKILL)
        for each, left_s in _until(self._workers, END_S):
            each.has_ended(left_s)
            each.signal(signal.SIGKILL)
        for each, left_s in _until(self._workers, GONE_S):
            each.has_ended(left_s)
        for each in list(self._workers):
            self._drop(each)
        self._selector.close()

    # -- workers

    def _start(self, slot: Slot) -> None:
        self._number += 1
        one = _Worker(self._number, slot, self._scratch, self._host_clocks)
        self._workers.append(one)
        self._selector.register(one.out, selectors.EVENT_READ, one)

    def _drop(self, one: _Worker) -> None:
        self._workers.remove(one)
        self._selector.unregister(one.out)
        for pipe in (one.process.stdin, one.process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _stop(self, one: _Worker) -> bool:
        """Have a worker end, as it does when nothing more can come; whether it has ended."""
        assert one.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            one.process.stdin.close()
        gone = one.has_ended(END_S)
        if not gone:
            one.signal(signal.SIGKILL)
            gone = one.has_ended(supervise.KILLED_S)
        self._drop(one)  # not before: an interrupt meanwhile ends it as all others
        return gone

    def _next(self, slot: Slot, *, take: bool = True) -> Kept | None:
        """The next cell for a slot."""
        for each in self._waiting:
            if plan.is_kind(each.cell.gpu, slot.device):
                if take:
                    self._waiting.remove(each)
                return each
        return None

    def _give(self, one: _Worker) -> None:
        kept = self._next(one.slot)
        if kept is None:
            self._stop(one)
            return
        settings = self._ledger.study.settings
        one.give(kept, measure.order(kept.cell, settings, one.slot.device.kind, self._host_clocks))
        self._tell(f"{one.name}: {cells.title(kept.cell)} [{self._left()}]")

    # -- what they say

    def _hear(self, one: _Worker) -> None:
        said = one.said()
        if said is None:
            self._lost(one, one.death())
            return
        for kind, text in said:
            if kind == "ready":
                one.ready = True
                self._give(one)
            elif kind == "step":
                one.step = text
            else:
                self._answered(one, None if kind == "done" else text)

    def _answered(self, one: _Worker, reason: str | None) -> None:
        found = None
        if reason is None:
            try:
                found = results.load(one.answer)
            except UsageError as error:
                reason = f"its answer cannot be read: {private.text(str(error))}"
        task, attempt = self._over(one, reason)
        title = cells.title(task.kept.cell)
        if found is not None:
            self._ledger.finish(task.kept.digest, found, attempt)
            good = sum(row.status == "ok" for row in found.rows)
            self._tell(f"{one.name}: {title}: {good} of {len(found.rows)} backends ok [{self._left()}]")
            healthy = good > 0
        else:
            self._ledger.fail(task.kept.digest, attempt)
            self._tell(f"{one.name}: {title}: failed: {reason} [{self._left()}]")
            healthy = False
        if healthy:
            self._give(one)
        elif self._stop(one):  # a card that fell off the bus fails everything: a new worker finds out
            self._again(one.slot)
        else:
            self._give_up(one, _STAYS)

    def _lost(self, one: _Worker, reason: str) -> None:
        """The cell of a worker that ended fails alone; one that never was ready has no card any more."""
        if one.task is not None:
            task, attempt = self._over(one, f"{reason}{f', at {one.step}' if one.step else ''}")
            self._ledger.fail(task.kept.digest, attempt)
            self._tell(f"{one.name}: {cells.title(task.kept.cell)}: failed: {attempt.reason} [{self._left()}]")
        one.signal(signal.SIGKILL)  # what it started
        gone = one.has_ended(supervise.KILLED_S)
        self._drop(one)
        if one.ready and gone:
            self._again(one.slot)
        else:
            self._give_up(one, reason)

    def _give_up(self, one: _Worker, reason: str) -> None:
        self._gone.append(f"{one.name}: {reason}")
        self._tell(f"{one.name} is given up: {reason}")

    def _again(self, slot: Slot) -> None:
        if self._next(slot, take=False) is not None:
            self._start(slot)

    def _over(self, one: _Worker, reason: str | None) -> tuple[_Task, Attempt]:
        task, one.task, one_step = one.task, None, one.step
        assert task is not None
        one.step = one_step if reason is not None else ""
        seconds = time.monotonic() - task.began
        self._done += 1
        return task, Attempt(node=self._ledger.node, started=task.started, seconds=seconds, reason=reason)

    def _left(self) -> str:
        running = [each.task.kept for each in self._workers if each.task is not None]
        left = [each.cell for each in (*self._waiting, *running)]
        time_left = plan.estimate(left, self._ledger.study.settings, self._ledger.cells)
        return plan.said(self._done, self._total, time_left, len(self._workers))


def _until(workers: Sequence[_Worker], seconds: float) -> Iterator[tuple[_Worker, float]]:
    """Each worker with what is left of a time that all of them share."""
    until = time.monotonic() + seconds
    for each in workers:
        yield each, until - time.monotonic()


def _name(number: int, slot: Slot) -> str:
    if slot.selector is None:
        return "CPU"
    short = slot.selector if slot.selector.isdigit() else slot.selector[:12]
    return f"GPU {short} ({slot.device.name})"
