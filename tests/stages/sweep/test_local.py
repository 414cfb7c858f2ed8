"""A worker that dies, hangs or fails costs its cell alone, and Ctrl-C ends all of them."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest
from support.studies_made import SMALL, contents, host, measured, read, slots, workers
from support.sweep_worker import FAILS, HANGS, KILLED, LOST, NO_JSON

from mlpfusion.errors import MlpfusionError
from mlpfusion.records.sweep.cells import Cell
from mlpfusion.stages.sweep import local, measure, run
from mlpfusion.storage import results
from mlpfusion.workers import supervise

__all__ = ["workers"]


def sweep(tmp_path, *tokens, number=1, **options):
    text = SMALL.replace("[1, 4]", str(list(tokens)))
    return run.sweep(read(tmp_path, text), host(number), out=tmp_path / "out", **options)


def by_tokens(study):
    return {each.cell.work.workload.tokens: each for each in study.cells}


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        (KILLED, "the worker was killed by SIGKILL: last words, at qualify eager"),
        (HANGS, "no answer within its time limit; it was killed, at qualify eager"),
        (FAILS, "out of memory, at qualify eager"),
        (NO_JSON, "its answer cannot be read: "),
    ],
)
def test_what_goes_wrong_is_the_reason_of_one_cell(tmp_path, workers, monkeypatch, tokens, reason):
    if tokens == HANGS:
        monkeypatch.setattr(measure, "limit_s", lambda order: 1.0 if order.workload.tokens == HANGS else 600.0)
    said = []
    found = by_tokens(sweep(tmp_path, 1, tokens, 99, tell=said.append))
    assert {number: each.state for number, each in found.items()} == {1: "finished", tokens: "failed", 99: "finished"}
    assert found[tokens].reason.startswith(reason.removesuffix(", at qualify eager"))
    assert found[tokens].attempts[0].reason == found[tokens].reason
    assert found[tokens].file is None
    assert any("failed: " in each for each in said)
    assert measured(workers) == [99, tokens, 1]
    again = by_tokens(results.load_study(tmp_path / "out" / "study.json") and sweep(tmp_path, 1, 99))
    assert {each.state for each in again.values()} == {"finished"}


def test_waits_for_other_workers_do_not_make_a_worker_late(tmp_path, workers):
    asked = read(tmp_path)
    order = measure.order(Cell(work=asked.work[0], gpu="cpu"), asked.settings, "cpu", "exclusive")
    one = local._Worker(1, slots()[0], tmp_path, "exclusive")
    try:
        one.give(None, order)
        assert not one.is_late()
        one.task = one.task._replace(late=time.monotonic() - 10)
        assert one.is_late()
        (tmp_path / "1.waits").write_text("100.0\n200.0\n")
        assert not one.is_late()
        one.give(None, order)  # those of the cell before do not count for the next
        assert one.task.late < time.monotonic() + measure.limit_s(order) - 90
    finally:
        one.process.kill()
        one.process.communicate()


def test_a_failed_cell_is_tried_again_by_the_same_call(tmp_path, workers):
    sweep(tmp_path, 1, FAILS)
    found = by_tokens(sweep(tmp_path, 1, FAILS))
    assert [len(found[tokens].attempts) for tokens in (1, FAILS)] == [1, 2]
    assert measured(workers) == [FAILS, 1, FAILS]


def test_a_card_that_is_lost_ends_its_worker_and_the_same_call_goes_on(tmp_path, workers):
    said = []
    with pytest.raises(MlpfusionError, match="2 cells are left without a worker: CPU: ") as caught:
        sweep(tmp_path, 1, 2, LOST, tell=said.append)
    assert "the card is not there any more" in str(caught.value)
    assert any("CPU is given up: " in each for each in said)
    (workers.with_name("lost")).unlink()
    found = by_tokens(sweep(tmp_path, 1, 2))
    assert {each.state for each in found.values()} == {"finished"}


def interrupted(tmp_path, number, until):
    """The exit code of a driver that gets a signal once `until` holds, and how long it then took."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell began all this with &
        try:
            sweep(tmp_path, 1, 99, HANGS)
        except KeyboardInterrupt:
            os._exit(7)
        finally:
            os._exit(1)
    end = time.monotonic() + 300
    while not until() and time.monotonic() < end:
        time.sleep(0.05)
    os.kill(child, number)
    began = time.monotonic()
    status = os.waitpid(child, 0)[1]
    return status, time.monotonic() - began


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_workers_and_keeps_what_is_finished(tmp_path, workers, number):
    status, _ = interrupted(tmp_path, number, lambda: measured(workers) == [99, HANGS])
    assert os.waitstatus_to_exitcode(status) == 7
    study = results.load_study(tmp_path / "out" / "study.json")
    assert {number: each.state for number, each in by_tokens(study).items()} == {
        1: "waiting",
        99: "finished",
        HANGS: "waiting",
    }
    made = sweep(tmp_path, 1, 99)
    assert {each.state for each in made.cells} == {"finished"}
    assert len(contents(tmp_path / "out")) == 2


def test_an_interrupt_waits_for_what_is_bounded_alone():
    assert supervise.GRACE_S < local.END_S  # a worker is done with its own before it is killed
    assert local.END_S + local.GONE_S <= 4.0  # of 5 s


def test_a_worker_that_is_not_ready_is_not_waited_for(tmp_path, workers, monkeypatch):
    workers.with_name("deaf").touch()
    monkeypatch.setattr(local, "END_S", 5e5)
    status, _ = interrupted(tmp_path, signal.SIGINT, workers.with_name("is-deaf").exists)
    assert os.waitstatus_to_exitcode(status) == 7


class Stays:
    """A process that nothing ends, as one whose card is gone; it counts how long it was waited for."""

    pid = 2**22 + 1  # nobody's

    def __init__(self, real):
        self.stdin, self.stdout, self.waited_s = real.stdin, real.stdout, 0.0

    def wait(self, timeout=None):
        assert timeout is not None, "waited for without an end"
        self.waited_s += timeout
        raise subprocess.TimeoutExpired("worker", timeout)


def stays(monkeypatch):
    """Have the first worker be one that nothing ends; the list of it once it is there."""
    found = []
    start = local._Driver._start

    def starts(self, slot):
        start(self, slot)
        if not found:
            one = self._workers[-1]
            found.append(one.process)
            one.process = Stays(one.process)
            found.append(one.process)

    monkeypatch.setattr(local._Driver, "_start", starts)
    return found


def gone(found):
    found[0].kill()
    found[0].wait()


def test_an_interrupt_leaves_a_worker_that_nothing_ends(tmp_path, workers, monkeypatch):
    found = stays(monkeypatch)

    def interrupt(said):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path, 1, tell=interrupt)
    assert found[1].waited_s == pytest.approx(local.END_S + local.GONE_S, abs=0.5)
    gone(found)


@pytest.mark.parametrize("tokens", [FAILS, KILLED, HANGS])
def test_a_card_whose_worker_nothing_ends_is_given_up_and_the_others_go_on(tmp_path, workers, monkeypatch, tokens):
    monkeypatch.setattr(measure, "limit_s", lambda order: 1.0 if order.workload.tokens == HANGS else 600.0)
    found, said = stays(monkeypatch), []
    with pytest.raises(MlpfusionError, match="1 cells are left without a worker: CPU: ") as caught:
        sweep(tmp_path, 1, tokens, tell=said.append)
    assert "the driver of its card may hang" in str(caught.value) or tokens == HANGS
    assert any("CPU is given up: " in each for each in said)
    gone(found)
    made = sweep(tmp_path, 1, 2)
    assert {each.state for each in made.cells} == {"finished"}


def test_cells_of_a_kind_that_is_not_here_wait(tmp_path, workers):
    text = f'gpus = ["h200", "cpu"]\n{SMALL}'
    made = run.sweep(read(tmp_path, text), host(), out=tmp_path / "out")
    assert {each.cell.gpu: (each.state, each.reason) for each in made.cells} == {
        "h200": ("waiting", "no h200 is here"),
        "cpu": ("finished", None),
    }
