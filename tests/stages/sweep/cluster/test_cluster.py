"""A real cluster of two nodes measures a study; one of them is removed while its cell runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from support.studies_made import contents, written

from mlpfusion.stages.sweep import merge, run, study
from mlpfusion.stages.sweep.cluster import cluster
from mlpfusion.storage import results

pytest.importorskip("ray", reason="the extra cluster is not installed, or Ray has no wheel for this Python")
pytestmark = pytest.mark.full

STUDY = """
models = [{ name = "tiny", hidden_size = 32, intermediate_size = 64, activation = "silu", dtype = "float32" }]
tokens = [3, 4]
backends = ["eager", "triton"]
rounds = 5
"""
NODE = {"num_cpus": 1, "num_gpus": 1, "object_store_memory": 100 * 2**20}


class World:
    """The cluster, a folder of its own for each node's tasks, and a local run of the study meanwhile."""

    def __init__(self, folder: Path, short: Path) -> None:
        from ray.cluster_utils import Cluster

        self.study = written(folder, STUDY)
        self.local = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "mlpfusion",
                "sweep",
                str(self.study),
                "--device",
                "cpu",
                "--out",
                f"{folder}/local",
            ],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
        )
        self.folders = [short / "first", short / "second"]
        for each in self.folders:
            each.mkdir()
        first, second = ({"TMPDIR": str(each)} for each in self.folders)
        head = {**NODE, "include_dashboard": False, "env_vars": first, "temp_dir": str(short)}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.second = self.cluster.add_node(**NODE, env_vars=second)
        self.address = self.cluster.address

    def end(self) -> None:
        self.local.kill()
        self.local.communicate()
        self.cluster.shutdown()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    short = Path(tempfile.mkdtemp(prefix="ray-"))  # a socket's path has at most 107 bytes
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        made = World(folder, short)
        try:
            yield made
        finally:
            made.end()
            shutil.rmtree(short, ignore_errors=True)


def sweep(world, out, said):
    asked = study.read(world.study)
    with cluster.reached(world.address, asked, said.append) as places:
        return run.sweep(asked, places, out=out, tell=said.append)


def test_a_node_is_removed_while_its_cell_runs_and_the_folder_is_that_of_a_local_run(world, tmp_path):
    seen = []

    def remove():
        while not list(world.folders[1].glob("mlpfusion-*/log")) and not seen:
            time.sleep(0.05)
        world.cluster.remove_node(world.second, allow_graceful=False)

    thread = threading.Thread(target=remove)
    thread.start()
    said: list[str] = []
    try:
        made = sweep(world, tmp_path / "out", said)
    finally:
        seen.append("over")
        thread.join()
    assert [each.state for each in made.cells] == ["finished"] * 2, said
    again = sorted(made.cells, key=lambda each: len(each.attempts))
    assert [len(each.attempts) for each in again] == [1, 2], said
    lost, good = again[1].attempts
    assert (lost.reason, good.reason) == ("its worker was lost", None)
    assert {lost.node, good.node} == {"node 1", "node 2"} == made.nodes.keys()
    assert good.node == again[0].node
    code = world.local.wait()
    assert code == 0, world.local.stderr.read().decode()
    local = world.study.parent / "local"
    assert contents(tmp_path / "out") == contents(local)
    for each in made.cells:
        here, there = (results.load(path / "cells" / each.file) for path in (tmp_path / "out", local))
        assert merge._facts(here) == merge._facts(there)
        assert [row.status for row in here.rows] == ["ok", "ok"]
    text = (tmp_path / "out" / "study.json").read_text()
    assert not [
        word
        for word in (world.cluster.address.partition(":")[0], os.uname().nodename, world.second.node_id)
        if word in text
    ]
