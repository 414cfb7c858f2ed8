"""A machine of a cluster says what it is, and measures a cell in a process that may die, fail or hang."""

from __future__ import annotations

import os

import msgspec
import pytest
import torch
from support.studies_made import measured, result, workers
from support.sweep_worker import FAILS, HANGS, KILLED

from mlpfusion.environment import conditions
from mlpfusion.stages.sweep import local
from mlpfusion.stages.sweep.cluster import node
from mlpfusion.stages.sweep.measure import Order
from mlpfusion.storage import results

__all__ = ["workers"]


def order(tokens):
    return msgspec.json.encode(
        Order(
            workload=result(tokens).workload,
            backends=("eager",),
            rounds=5,
            processes=1,
            counters=False,
            time_limit_s=600.0,
            device="cpu",
            host_clocks="exclusive",
        )
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="a machine without a GPU")
def test_a_machine_says_its_device_and_versions():
    found = msgspec.json.decode(node.describe(["eager"]), type=node.Described)
    assert (found.device.kind, found.device.interpreted) == ("cpu", False)
    assert found.holds == conditions.conditions(found.device, ["eager"])


def test_a_cell_comes_back_as_bytes_and_nothing_is_left(workers, tmp_path, monkeypatch):
    monkeypatch.setattr(node.tempfile, "tempdir", str(tmp_path))
    reason, data = node.measure(order(4))
    assert reason is None
    (tmp_path / "answer.json").write_bytes(data)
    found = results.load(tmp_path / "answer.json")
    assert (found.workload.tokens, found.host_clocks) == (4, "exclusive")
    assert not list(tmp_path.glob("mlpfusion-*"))
    assert measured(workers) == [4]


@pytest.mark.parametrize(
    ("tokens", "reason"),
    [
        (KILLED, "the worker was killed by SIGKILL: last words, at qualify eager"),
        (FAILS, "out of memory"),
        (HANGS, "no answer within its time limit; it was killed"),
    ],
)
def test_what_goes_wrong_is_the_reason(workers, monkeypatch, tokens, reason):
    if tokens == HANGS:
        monkeypatch.setattr(local, "START_S", 0.0)
        monkeypatch.setattr(node, "limit_s", lambda asked: 1.0)
    assert node.measure(order(tokens)) == (reason, b"")


@pytest.mark.parametrize(("first", "kept"), [(b"A=1\0OMP_NUM_THREADS=7\0", True), (b"A=1\0", False), (None, True)])
def test_the_number_of_threads_is_the_owners_not_rays(tmp_path, monkeypatch, first, kept):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    path = tmp_path / "environ"
    if first is not None:
        path.write_bytes(first)
    found = node._environment(path)
    assert ("OMP_NUM_THREADS" in found) == kept
    assert {**found, "OMP_NUM_THREADS": "7"} == dict(os.environ)
