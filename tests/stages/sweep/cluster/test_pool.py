"""Ray's answers become ours: what machines there are, and how a task ended."""

from __future__ import annotations

import socket
import sys

import pytest
from support.studies_made import read

from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.stages.sweep.cluster import cluster, pool


def test_without_ray_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with (
        pytest.raises(UsageError, match=r"--ray needs Ray, which is not installed: pip install 'mlpfusion\[cluster\]'"),
        pool.connected("auto"),
    ):
        pass


@pytest.mark.parametrize("name", ["./mine.py:Mine", "auto:choice.json"])
def test_a_backend_of_a_file_is_refused_before_anything_starts(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, "ray", None)
    asked = read(tmp_path)
    asked = asked._replace(settings=type(asked.settings)(backends=("eager", name), rounds=5))
    with pytest.raises(UsageError, match="takes no backend of a file") as caught, cluster.reached("auto", asked, print):
        pass
    assert repr(name) in str(caught.value)


class Unasked:
    """Ray, which must not be asked: it tries a cluster that does not answer for minutes, and is deaf to Ctrl-C."""

    def init(self, **options):
        raise AssertionError(options)


@pytest.fixture
def silent(monkeypatch):
    """The address of a port where nothing listens."""
    monkeypatch.setitem(sys.modules, "ray", Unasked())
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def refusal(address):
    with pytest.raises(UsageError) as caught, pool.connected(address):
        pass
    return str(caught.value)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_address_where_nothing_listens_is_refused_at_once(silent, scheme):
    said = refusal(scheme + silent)
    assert said == f"--ray '{scheme}{silent}': no Ray cluster can be used there: Connection refused"


@pytest.mark.parametrize("how", ["environment", "file"])
def test_auto_of_a_cluster_that_is_gone_is_refused_at_once(silent, how, tmp_path, monkeypatch):
    if how == "environment":
        monkeypatch.setenv("RAY_ADDRESS", silent)
    else:
        monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / "ray_current_cluster").write_text(silent)
    assert refusal("auto") == f"--ray 'auto': no Ray cluster can be used at {silent}: Connection refused"


@pytest.mark.parametrize("address", ["", "local", "nowhere", "host:", ":6379", "host:port", "host:0", "host:99999"])
def test_what_is_no_address_is_refused(silent, address):
    assert refusal(address) == f"--ray must be auto, HOST:PORT or ray://HOST:PORT, got {address!r}"


def test_the_reason_of_ray_is_told_where_its_first_line_has_none(silent, monkeypatch):
    class Refuses:
        def init(self, **options):
            raise ConnectionAbortedError(
                "Initialization failure from server:\nTraceback\n  File\nRuntimeError: no port"
            )

    monkeypatch.setitem(sys.modules, "ray", Refuses())
    with socket.create_server(("127.0.0.1", 0)) as there:
        said = refusal(f"127.0.0.1:{there.getsockname()[1]}")
    assert said.endswith("ConnectionAbortedError: Initialization failure from server: RuntimeError: no port")


class Ray:
    """What of Ray is asked, with one answer."""

    def __init__(self, answer=None, nodes=()):
        self.answer, self.found = answer, nodes

    def remote(self, **options):
        assert options == {"num_gpus": 1, "max_calls": 1, "max_retries": 0}
        return lambda function: function

    def nodes(self):
        return self.found

    def get(self, handle):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def machine(name, alive=True, **resources):
    return {"NodeID": name, "Alive": alive, "NodeManagerAddress": "192.0.2.1", "Resources": resources}


def ray_or_skip():
    return pytest.importorskip("ray", reason="the extra cluster is not installed, or Ray has no wheel for this Python")


@pytest.mark.full  # it imports Ray
def test_machines_are_those_that_are_there_and_have_a_gpu():
    ray_or_skip()
    nodes = [
        machine("a", CPU=8.0, GPU=4.0, **{"accelerator_type:H200": 1.0}),
        machine("b", CPU=8.0),
        machine("c", alive=False, GPU=8.0),
        machine("d", GPU=0.5),
        machine("e", GPU=1.0),
    ]
    assert pool._Cluster(Ray(nodes=nodes)).machines() == [pool.Machine("a", 4, "H200"), pool.Machine("e", 1, None)]


@pytest.mark.full
def test_how_a_task_ended():
    ray_or_skip()
    from ray import exceptions as of

    ends = [
        (of.NodeDiedError("at 192.0.2.1"), pool.LostError, ""),
        (of.WorkerCrashedError(), pool.LostError, ""),
        (of.ObjectLostError("0" * 40, None, ""), pool.LostError, ""),
        (of.TaskUnschedulableError("at 192.0.2.1"), pool.UnplacedError, ""),
        (of.OutOfMemoryError("at 192.0.2.1"), MlpfusionError, "its machine ran out of memory, and Ray killed its wor"),
        (of.RayTaskError("run", "", ValueError("bad /home/me/file")), MlpfusionError, "ValueError: bad file"),
        (of.RuntimeEnvSetupError("at 192.0.2.1"), MlpfusionError, "Ray says RuntimeEnvSetupError"),
    ]
    assert pool._Cluster(Ray(("done", b""))).result(1) == ("done", b"")
    for end, kind, text in ends:
        with pytest.raises(kind) as caught:
            pool._Cluster(Ray(end)).result(1)
        assert str(caught.value).startswith(text)
        assert "192.0.2.1" not in str(caught.value)


@pytest.mark.full
def test_a_cluster_whose_head_is_gone_is_not_asked_and_after_a_while_given_up(monkeypatch):
    ray_or_skip()
    ray = Ray(nodes=[machine("a", GPU=1.0)])
    with socket.create_server(("127.0.0.1", 0)) as there:
        made = pool._Cluster(ray, there.getsockname()[:2])
        before = made.machines()
    ray.nodes = None
    assert not made.answers()
    assert made.machines() == before == [pool.Machine("a", 1, None)]
    monkeypatch.setattr(pool, "SILENT_S", -1.0)
    with pytest.raises(
        MlpfusionError, match=r"the head of the cluster does not answer for .* the same command goes on"
    ):
        made.machines()


@pytest.mark.full
@pytest.mark.parametrize("gone", [False, True])
def test_a_cluster_is_left_without_asking_a_head_that_is_gone(monkeypatch, gone):
    ray, left = ray_or_skip(), []
    monkeypatch.setattr(ray, "init", lambda **options: None)
    monkeypatch.setattr(ray, "shutdown", lambda: left.append("asked"))
    there = socket.create_server(("127.0.0.1", 0))
    with there, pool.connected(f"127.0.0.1:{there.getsockname()[1]}"):
        if gone:
            there.close()
    assert left == ([] if gone else ["asked"])
