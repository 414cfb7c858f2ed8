"""Cells go to nodes, once each; those of a lost node go elsewhere, once."""

from __future__ import annotations

import os
import signal

import pytest
from support.fake_cluster import FakePool, seconds
from support.studies_made import SMALL, contents, host, measured, read, workers

from mlpfusion.device import Device
from mlpfusion.errors import MlpfusionError
from mlpfusion.stages.sweep import run
from mlpfusion.stages.sweep.cluster import census, cluster
from mlpfusion.stages.sweep.cluster.pool import LostError, UnplacedError
from mlpfusion.storage import results

__all__ = ["seconds", "workers"]
pytestmark = pytest.mark.usefixtures("seconds")


def sweep(tmp_path, pool, *tokens, said=None, **options):
    asked = read(tmp_path, SMALL.replace("[1, 4]", str(list(tokens))))
    tell = said.append if said is not None else lambda text: None
    found = census.Census(pool, asked.settings.backends, tell)
    found.take(None)
    return run.sweep(asked, cluster.Cluster(found), out=tmp_path / "out", tell=tell, **options)


def by_tokens(study):
    return {each.cell.work.workload.tokens: each for each in study.cells}


def test_every_cell_is_measured_once_and_nodes_have_names_of_ours(tmp_path):
    pool, said = FakePool("f00", "ba7", gpus=2), []
    made = sweep(tmp_path, pool, 1, 2, 3, 4, 5, 6, said=said)
    assert sorted(tokens for _, tokens in pool.measured) == [1, 2, 3, 4, 5, 6]
    assert {each.state for each in made.cells} == {"finished"}
    assert {each.node for each in made.cells} == {"node 1", "node 2"} == made.nodes.keys()
    text = (tmp_path / "out" / "study.json").read_text()
    assert "f00" not in text
    assert "ba7" not in text
    assert len(contents(tmp_path / "out")) == 6
    assert "[6 of 6 cells]" in said[-1]
    assert sweep(tmp_path, pool, 1, 2, 3, 4, 5, 6) == made
    assert len(pool.measured) == 6


def lost_on(pool, *names, cell=4):
    def does(name, tokens):
        if name in names and tokens == cell:
            raise LostError

    pool.does = does


def test_a_cell_whose_worker_is_lost_runs_again_elsewhere(tmp_path):
    pool, said = FakePool("a", "b"), []
    lost_on(pool, "a")
    found = by_tokens(sweep(tmp_path, pool, 1, 4, said=said))
    assert [each.state for each in found.values()] == ["finished"] * 2
    assert [(each.node, each.reason) for each in found[4].attempts] == [
        ("node 1", "its worker was lost"),
        ("node 2", None),
    ]
    assert found[4].node == "node 2"
    assert len(found[1].attempts) == 1
    assert any("its worker was lost; it runs again elsewhere" in each for each in said)


@pytest.mark.parametrize(("machines", "names"), [("ab", "node 1 and node 2"), ("a", "node 1 and node 1")])
def test_a_cell_whose_worker_is_lost_twice_has_failed(tmp_path, machines, names):
    pool = FakePool(*machines)
    lost_on(pool, *machines)
    found = by_tokens(sweep(tmp_path, pool, 1, 4))
    assert (found[4].state, found[4].reason) == ("failed", f"its worker was lost twice, on {names}")
    assert len(found[4].attempts) == 2
    assert found[1].state == "finished"
    lost_on(pool)
    assert by_tokens(sweep(tmp_path, pool, 1, 4))[4].state == "finished"  # as any cell that failed


def test_a_task_that_never_began_is_no_attempt(tmp_path):
    pool = FakePool("a", "b")

    def does(name, tokens):
        if name == "a":
            pool.there.pop("a", None)
            raise UnplacedError

    pool.does = does
    found = by_tokens(sweep(tmp_path, pool, 1, 4))
    assert [(each.state, len(each.attempts), each.node) for each in found.values()] == [("finished", 1, "node 2")] * 2


@pytest.mark.parametrize("why", ["out of memory", "no answer within its time limit; it was killed"])
def test_what_fails_is_one_cell_with_its_reason(tmp_path, why):
    pool = FakePool("a")

    def does(name, tokens):
        if tokens == 4:
            raise MlpfusionError(why)

    pool.does = does
    found = by_tokens(sweep(tmp_path, pool, 1, 4, 5))
    assert {tokens: (each.state, each.reason) for tokens, each in found.items()} == {
        1: ("finished", None),
        4: ("failed", why),
        5: ("finished", None),
    }


def test_an_answer_that_cannot_be_read_is_a_failed_cell(tmp_path, monkeypatch):
    pool = FakePool("a")
    monkeypatch.setattr(pool, "_measure", lambda name, asked: (None, b"{"))
    (found,) = sweep(tmp_path, pool, 4).cells
    assert found.state == "failed"
    assert found.reason.startswith("its answer cannot be read: ")


def test_a_node_with_other_versions_is_left_out_and_named(tmp_path):
    pool, said = FakePool("a", "b", "c"), []
    pool.versions = {"b": {"torch": "9.9.9"}}
    made = sweep(tmp_path, pool, 1, 2, 3, 4, said=said)
    assert {name for name, _ in pool.measured} == {"a", "c"}
    assert [each for each in said if "left out" in each] == ["node 2 is left out: torch 9.9.9 there, 2.13.0 here"]
    assert made.nodes.keys() == {"node 1", "node 3"}


def test_a_node_that_comes_late_takes_cells(tmp_path):
    pool = FakePool("a")

    def does(name, tokens):
        pool.there.setdefault("b", pool.there["a"]._replace(id="b"))

    pool.does = does
    sweep(tmp_path, pool, *range(1, 12))
    assert {name for name, _ in pool.measured} == {"a", "b"}


def test_when_all_nodes_are_gone_the_same_call_goes_on_with_others(tmp_path):
    pool = FakePool("a")

    def does(name, tokens):
        if tokens == 2:
            pool.there = {}
            raise LostError

    pool.does = does
    with pytest.raises(MlpfusionError, match="2 cells are left without a node for 30 s; there is no GPU; the same "):
        sweep(tmp_path, pool, 1, 2, 3)
    before = results.load_study(tmp_path / "out" / "study.json")
    assert {tokens: each.state for tokens, each in by_tokens(before).items()} == {
        1: "waiting",
        2: "waiting",
        3: "finished",
    }
    found = by_tokens(sweep(tmp_path, FakePool("z"), 1, 2, 3))
    assert {each.state for each in found.values()} == {"finished"}
    assert [len(found[tokens].attempts) for tokens in (1, 2, 3)] == [1, 2, 1]


@pytest.mark.parametrize("cell", [1, 2, 3])
def test_a_driver_that_was_killed_goes_on(tmp_path, cell):
    pool = FakePool("a")

    def does(name, tokens):
        if tokens == cell:
            os.kill(os.getpid(), signal.SIGKILL)

    pool.does = does
    child = os.fork()
    if child == 0:
        try:
            sweep(tmp_path, pool, 1, 2, 3)
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    pool.does = lambda name, tokens: None
    made = sweep(tmp_path, pool, 1, 2, 3)
    assert {each.state for each in made.cells} == {"finished"}
    assert sorted(tokens for _, tokens in pool.measured) == list(range(1, cell + 1))  # the longest come first
    assert len(contents(tmp_path / "out")) == 3


def test_a_cell_goes_to_a_node_of_its_kind(tmp_path):
    pool = FakePool("a", "b")
    pool.devices = {"a": Device(kind="cuda", name="NVIDIA H200", capability=(9, 0), runtime="cuda")}
    asked = read(tmp_path, f'gpus = ["cpu"]\n{SMALL}')
    found = census.Census(pool, ["eager"], lambda text: None)
    found.take(["cpu"])
    made = run.sweep(asked, cluster.Cluster(found), out=tmp_path / "out")
    assert {each.state for each in made.cells} == {"finished"}
    assert {name for name, _ in pool.measured} == {"b"}


def test_a_study_may_change_between_this_host_and_a_cluster(tmp_path, workers):
    pool = FakePool("a")
    asked = read(tmp_path, SMALL.replace("[1, 4]", "[1]"))
    here = run.conditions.conditions(host().devices[0], ["eager"])
    pool.versions = {"a": here.versions}
    run.sweep(asked, host(), out=tmp_path / "out")
    made = sweep(tmp_path, pool, 1, 2)
    assert {each.state for each in made.cells} == {"finished"}
    assert pool.measured == [("a", 2)]
    assert measured(workers) == [1]
    assert made.nodes.keys() == {"node 1"}  # as far as anybody can tell
