"""A real cluster of two nodes measures a study; one of them is removed while its cell runs."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from importlib import util
from pathlib import Path

import pytest
from support.command import run as run_command
from support.paths import ROOT
from support.studies_made import contents, written

from mlpfusion.stages.sweep import merge, run, study
from mlpfusion.stages.sweep.cluster import census, cluster
from mlpfusion.storage import results

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        util.find_spec("ray") is None, reason="the extra cluster is not installed, or Ray has no wheel for this Python"
    ),
]

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
        command = [sys.executable, "-m", "mlpfusion", "sweep", str(self.study), "--device", "cpu"]
        self.local = subprocess.Popen(
            [*command, "--out", f"{folder}/local"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        self.folders = [short / "first", short / "second"]
        for each in self.folders:
            each.mkdir()
        first, second = ({"TMPDIR": str(each)} for each in self.folders)
        head = {**NODE, "include_dashboard": False, "env_vars": first, "temp_dir": str(short)}
        self.cluster = Cluster()
        try:
            _added(self.cluster, head)
            self.second = _added(self.cluster, {**NODE, "env_vars": second})
        except BaseException:
            self.end()
            raise
        self.address = self.cluster.address

    def end(self) -> None:
        self.local.kill()
        self.local.communicate()
        self.cluster.shutdown()


def _added(made, options):
    """A node of a cluster; Ray gives one 30 s to start, which a busy machine may not keep, so there are three goes."""
    for _ in range(2):
        try:
            return made.add_node(**options)
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    return made.add_node(**options)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    short = Path(tempfile.mkdtemp(prefix="ray-"))  # a socket's path has at most 107 bytes
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_TMPDIR", str(short))  # where Ray notes the address, in a folder that need not be there
        (short / "ray").mkdir()
        patch.setattr(census, "PATIENCE_S", 600.0)
        patch.setenv("RAY_health_check_failure_threshold", "60")  # a busy machine is not a dead node
        before = signal.getsignal(signal.SIGTERM)  # Ray sets one for each node that it starts
        made = World(folder, short)
        try:
            yield made
        finally:
            made.end()
            signal.signal(signal.SIGTERM, before)
            shutil.rmtree(short, ignore_errors=True)


def sweep(world, out, said):
    asked = study.read(world.study)
    with cluster.reached(world.address, asked, said.append) as places:
        return run.sweep(asked, places, out=out, tell=said.append)


def test_the_commands_of_the_page_plan_on_nodes_that_get_our_packages_sent(world, capsys, monkeypatch):
    page = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
    commands = re.findall(r"^mlpfusion (sweep \S+) --ray (auto|ray://\S+)$", page, re.MULTILINE)
    assert len(commands) == 2
    (same,) = {words for words, _ in commands}
    ask = census.Census._ask
    monkeypatch.setattr(census.Census, "_ask", lambda self, machine, packages: ask(self, machine, packages=True))
    monkeypatch.chdir(ROOT)
    code, out, err = run_command(capsys, *same.split(), "--ray", world.address, "--dry-run", "--format", "json")
    assert code == 0, err
    found = json.loads(out)
    assert found["workers"] == 2, err
    assert {each["gpu"] for each in found["cells"]} == {"cpu"}


def begun(folder):
    """The logs of the cells that a node has begun; those of workers that were killed stay."""
    return set(folder.glob("mlpfusion-*/log"))


def killed(world, out):
    """A driver that is killed once both nodes have a cell of its, and leaves them to Ray."""
    command = [sys.executable, "-m", "mlpfusion", "sweep", str(world.study), "--ray", world.address, "--out", f"{out}"]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while not all(map(begun, world.folders)) and driver.poll() is None:
        time.sleep(0.05)
    driver.kill()
    _, said = driver.communicate()
    assert driver.returncode == -signal.SIGKILL, said


def test_a_node_is_removed_while_its_cell_runs_and_the_folder_is_that_of_a_local_run(world, tmp_path):
    killed(world, tmp_path / "out")  # and the same command goes on
    seen, before = [], begun(world.folders[1])

    def remove():
        while not begun(world.folders[1]) - before and not seen:
            time.sleep(0.05)
        world.cluster.remove_node(world.second, allow_graceful=False)

    thread = threading.Thread(target=remove)
    thread.start()
    said: list[str] = []
    handler = signal.getsignal(signal.SIGTERM)
    try:
        made = sweep(world, tmp_path / "out", said)
    finally:
        seen.append("over")
        thread.join()
    assert [each.state for each in made.cells] == ["finished"] * 2, said
    assert signal.getsignal(signal.SIGTERM) is handler
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
