"""A study is measured cell by cell, and the same call goes on where it stopped, however that was."""

from __future__ import annotations

import os
import signal

import pytest
from support.studies_made import SMALL, contents, host, measured, read, slots, workers

from mlpfusion.device import Device
from mlpfusion.errors import UsageError
from mlpfusion.stages.sweep import cells, folder, run
from mlpfusion.storage import files, results

__all__ = ["workers"]
H200 = Device(kind="cuda", name="NVIDIA H200", runtime="cuda", capability=(9, 0), free_bytes=140 * 10**9)
CELLS = SMALL.replace("[1, 4]", "[1, 2, 3]")


def sweep(tmp_path, text=SMALL, number=1, **options):
    return run.sweep(read(tmp_path, text), host(number), out=tmp_path / "out", **options)


def states(study):
    return {each.cell.work.workload.tokens: each.state for each in study.cells}


def test_every_cell_is_measured_longest_first_and_once(tmp_path, workers):
    said = []
    made = sweep(tmp_path, tell=said.append)
    assert measured(workers) == [4, 1]
    assert states(made) == {1: "finished", 4: "finished"}
    assert [each.node for each in made.cells] == ["node 1"] * 2
    assert all(len(each.attempts) == 1 and each.outcome.winner == "eager" for each in made.cells)
    assert "[2 of 2 cells]" in said[-1]
    assert results.load_study(tmp_path / "out" / "study.json") == made
    for each in made.cells:
        found = results.load(tmp_path / "out" / "cells" / each.file)
        assert (found.workload, found.host_clocks) == (each.cell.work.workload, "exclusive")
    assert sweep(tmp_path) == made
    assert measured(workers) == [4, 1]


def test_shared_host_clocks_are_in_every_file(tmp_path, workers):
    made = sweep(tmp_path, host_clocks="shared")
    found = [results.load(tmp_path / "out" / "cells" / each.file) for each in made.cells]
    assert {made.host_clocks, *(each.host_clocks for each in found)} == {"shared"}


def test_several_workers_share_the_cells(tmp_path, workers):
    made = sweep(tmp_path, SMALL.replace("[1, 4]", "[1, 2, 3, 4, 5, 6]"), 2)
    assert set(states(made).values()) == {"finished"}
    assert sorted(measured(workers)) == [1, 2, 3, 4, 5, 6]


def test_a_changed_study_keeps_the_cells_that_are_still_in_it(tmp_path, workers):
    sweep(tmp_path, CELLS)
    made = sweep(tmp_path, SMALL.replace("[1, 4]", "[2, 3, 5]"))
    assert states(made) == {2: "finished", 3: "finished", 5: "finished"}
    assert measured(workers) == [3, 2, 1, 5]
    sweep(tmp_path, CELLS.replace("rounds = 5", "rounds = 6"))
    assert measured(workers) == [3, 2, 1, 5, 3, 2, 1]


def test_fresh_measures_all_again(tmp_path, workers):
    sweep(tmp_path)
    before = contents(tmp_path / "out")
    sweep(tmp_path, fresh=True)
    assert measured(workers) == [4, 1, 4, 1]
    assert contents(tmp_path / "out") == before


def test_other_versions_are_refused_by_name_or_measured_anew(tmp_path, workers, monkeypatch):
    sweep(tmp_path)
    before = (tmp_path / "out" / "study.json").read_bytes()
    ours = run.conditions.conditions

    def newer(*asked):
        found = ours(*asked)
        return type(found)(
            device=found.device, capability=found.capability, versions={**found.versions, "torch": "9.9.9"}
        )

    monkeypatch.setattr(run.conditions, "conditions", newer)
    with pytest.raises(UsageError, match=r"measured with other versions: torch .* there, 9\.9\.9 here; --fresh"):
        sweep(tmp_path)
    assert (tmp_path / "out" / "study.json").read_bytes() == before
    made = sweep(tmp_path, fresh=True)
    assert len(contents(tmp_path / "out")) == 2
    assert {name: holds.versions["torch"] for name, holds in made.nodes.items()} == {"node 1": "9.9.9"}


def test_the_folder_of_another_study_is_refused(tmp_path, workers):
    sweep(tmp_path)
    other = read(tmp_path, SMALL, "other")
    with pytest.raises(UsageError, match="holds the study 'small', not 'other'"):
        run.sweep(other, host(), out=tmp_path / "out")


DAMAGE = {
    "cut short": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "no JSON": lambda data: b"\xff" + data,
    "another workload": lambda data: data.replace(b'"hidden_size": 64', b'"hidden_size": 65'),
    "not complete": lambda data: data.replace(b'"complete": true', b'"complete": false'),
    "another number": lambda data: data.replace(b'"median": 1', b'"median": 7', 1),
}


def elsewhere(versions):
    """A host with another kind of device and other versions."""

    class Other(run.Host):
        def holds(self, backends, earlier):
            ours = super().holds(backends, earlier)
            return type(ours)(device=ours.device, capability=ours.capability, versions={**ours.versions, **versions})

    return Other([each._replace(device=H200) for each in slots()])


@pytest.mark.parametrize("versions", [{}, {"torch": "9.9.9+cu130"}])
@pytest.mark.parametrize("gpus", ["", 'gpus = ["cpu", "h200"]\n'])
def test_cells_of_a_kind_of_gpu_that_is_not_here_now_are_kept(tmp_path, workers, versions, gpus):
    asked = read(tmp_path, gpus + SMALL)
    before = {each.digest: each for each in sweep(tmp_path, gpus + SMALL).cells if each.state == "finished"}
    assert len(before) == 2
    made = run.sweep(asked, elsewhere(versions), out=tmp_path / "out")
    assert [each.state for each in made.cells] == ["finished"] * 4
    assert before == {each.digest: each for each in made.cells if each.cell.gpu == "cpu"}
    assert {each.node for each in made.cells} <= made.nodes.keys()
    assert measured(workers) == [4, 1, 4, 1]
    again = sweep(tmp_path, gpus + SMALL)
    assert {each.digest for each in again.cells} == {each.digest for each in made.cells}
    assert measured(workers) == [4, 1, 4, 1]


def test_fresh_leaves_what_nothing_here_can_measure_anew(tmp_path, workers):
    run.sweep(read(tmp_path), elsewhere({}), out=tmp_path / "out")
    before = {each.digest: each for each in sweep(tmp_path).cells}
    files = {path.name: path.read_bytes() for path in (tmp_path / "out" / "cells").iterdir()}
    made = run.sweep(read(tmp_path), host(), out=tmp_path / "out", fresh=True)
    assert [each.state for each in made.cells] == ["finished"] * 4
    theirs = [each for each in made.cells if each.cell.gpu == "NVIDIA H200"]
    assert len(theirs) == 2
    for each in theirs:
        assert before[each.digest] == each
        assert (tmp_path / "out" / "cells" / each.file).read_bytes() == files[each.file]
    assert {each.node for each in made.cells} <= made.nodes.keys()
    assert measured(workers) == [4, 1] * 3


def test_what_a_kind_of_gpu_that_is_not_here_now_lacks_waits_for_it(tmp_path, workers):
    sweep(tmp_path)
    next((tmp_path / "out" / "cells").glob("tiny-inference-4-*")).unlink()
    made = run.sweep(read(tmp_path), elsewhere({}), out=tmp_path / "out")
    found = {(each.cell.gpu, each.cell.work.workload.tokens): (each.state, each.reason) for each in made.cells}
    assert found["cpu", 4] == ("waiting", "no cpu is here")
    assert found["cpu", 1] == found["NVIDIA H200", 1] == found["NVIDIA H200", 4] == ("finished", None)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("with_study", [True, False])
def test_a_damaged_cell_is_set_aside_and_measured_anew(tmp_path, workers, damage, with_study):
    made = sweep(tmp_path)
    path = tmp_path / "out" / "cells" / made.cells[0].file
    damaged = DAMAGE[damage](path.read_bytes())
    path.write_bytes(damaged)
    if not with_study:
        (tmp_path / "out" / "study.json").unlink()
    said = []
    again = sweep(tmp_path, tell=said.append)
    assert states(again) == {1: "finished", 4: "finished"}
    assert measured(workers) == [4, 1, 1]
    aside = path.with_name(path.name + ".damaged")
    assert aside.read_bytes() == damaged
    assert aside.name in said[0]
    assert results.load(path).complete


def test_a_damaged_study_file_is_made_again_from_the_cells(tmp_path, workers):
    made = sweep(tmp_path)
    path = tmp_path / "out" / "study.json"
    path.write_text("{", encoding="utf-8")
    again = sweep(tmp_path)
    assert [(each.digest, each.state, each.outcome) for each in again.cells] == [
        (each.digest, each.state, each.outcome) for each in made.cells
    ]
    assert measured(workers) == [4, 1]
    assert path.with_name("study.json.damaged").exists()


def test_a_copied_folder_is_read_and_not_measured(tmp_path, workers):
    made = sweep(tmp_path)
    for each in made.cells:
        os.utime(tmp_path / "out" / "cells" / each.file, ns=(1, 1))
    again = sweep(tmp_path)
    assert measured(workers) == [4, 1]
    assert states(again) == states(made)


def test_shards_measure_every_cell_once_in_folders_of_their_own(tmp_path, workers):
    asked = read(tmp_path, SMALL.replace("[1, 4]", "[1, 2, 3, 4, 5]"))
    parts = [cells.Shard(number, 2) for number in (1, 2)]
    made = [run.sweep(asked, host(), out=run.folder_of(asked, tmp_path, part), shard=part) for part in parts]
    assert sorted(measured(workers)) == [1, 2, 3, 4, 5]
    assert sum(len(each.cells) for each in made) == 5
    assert made[0].definition == made[1].definition
    assert {path.name for path in tmp_path.glob("shard-*")} == {"shard-1-of-2", "shard-2-of-2"}
    assert str(run.folder_of(asked, None, None)) == "sweeps/small"


def test_a_second_driver_is_refused_with_the_firsts_process_and_host(tmp_path, workers):
    with folder.held(tmp_path / "out"):
        with pytest.raises(UsageError, match=rf"process {os.getpid()} on \S+ is writing there"):
            sweep(tmp_path)
        assert measured(workers) == []
    sweep(tmp_path)


# ---- killed at every write -------------------------------------------------------------------------------------------


def killed_at(monkeypatch, number, moment):
    """Have this process be killed in its write of that number, before it, in the middle or when it is done."""
    whole, count = files.write_whole, [0]

    def write(what, path, data):
        count[0] += 1
        if count[0] != number:
            return whole(what, path, data)
        if moment == "middle":
            (path.parent / ".mlpfusion-0123.part").write_bytes(data[: len(data) // 2])
        if moment == "end":
            whole(what, path, data)
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    monkeypatch.setattr(files, "write_whole", write)


@pytest.mark.parametrize("moment", ["start", "middle", "end"])
@pytest.mark.parametrize("number", range(1, 7))
def test_killed_at_any_write_the_same_call_goes_on(tmp_path, workers, monkeypatch, number, moment):
    child = os.fork()
    if child == 0:
        try:
            killed_at(monkeypatch, number, moment)
            sweep(tmp_path, CELLS)
        finally:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    done = {path.name for path in (tmp_path / "out" / "cells").glob("*.json")}
    made = sweep(tmp_path, CELLS)
    assert states(made) == {1: "finished", 2: "finished", 3: "finished"}
    assert len(contents(tmp_path / "out")) == 3
    again = measured(workers)
    assert len(again) <= 3 + os.WIFSIGNALED(status)  # the cell that was being written, and no other
    assert done <= {each.file for each in made.cells}


def test_many_finished_cells_are_resumed_without_reading_them(tmp_path, workers, monkeypatch):
    text = SMALL.replace("[1, 4]", str(list(range(20, 60))))
    sweep(tmp_path, text)
    monkeypatch.setattr(results, "load", None)
    assert set(states(sweep(tmp_path, text)).values()) == {"finished"}
