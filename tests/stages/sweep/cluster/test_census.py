"""Machines say what they are; what cannot be used is left out and named, what is missing is said."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from support.choices_made import HERE
from support.fake_cluster import VERSIONS, FakePool, seconds

from mlpfusion.device import Device
from mlpfusion.errors import MlpfusionError
from mlpfusion.records.choice import Conditions
from mlpfusion.stages.sweep.cluster import census
from mlpfusion.stages.sweep.cluster.pool import LostError, UnplacedError

__all__ = ["seconds"]
H200 = Device(kind="cuda", name="NVIDIA H200", capability=(9, 0), runtime="cuda")


def taken(pool, kinds=None):
    said = []
    found = census.Census(pool, ["eager"], said.append)
    return found.take(kinds), said, found


def test_all_machines_answer_and_nothing_is_said(seconds):
    nodes, said, _ = taken(FakePool("a", "b"))
    assert [(each.machine.id, each.device, each.packages) for each in nodes] == [("a", HERE, False), ("b", HERE, False)]
    assert said == []


def test_a_machine_without_our_packages_is_asked_again_with_them(seconds):
    pool = FakePool("a", "b")
    pool.bare = {"b"}
    nodes, said, _ = taken(pool)
    assert {each.machine.id: each.packages for each in nodes} == {"a": False, "b": True}
    assert said == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (("other", "0.0.9"), f"mlpfusion 0.0.9 there, {VERSIONS['mlpfusion']} here"),
        (
            MlpfusionError("ModuleNotFoundError: No module named 'torch'"),
            "ModuleNotFoundError: No module named 'torch'",
        ),
    ],
)
def test_a_machine_that_cannot_be_used_is_left_out_and_named_once(seconds, answer, reason):
    pool = FakePool("a", "b")
    pool.answers = {"b": answer}
    nodes, said, found = taken(pool)
    assert [each.machine.id for each in nodes] == ["a"]
    assert said == [f"a node with 1 x GPU is left out: {reason}"]
    for _ in range(9):
        found.look()
    assert not found.asked


@pytest.mark.parametrize("gone", [LostError(), UnplacedError()])
def test_a_machine_that_was_gone_is_asked_again_when_it_is_back(seconds, gone):
    pool = FakePool("a", "b")
    pool.answers = {"b": gone}
    said: list[str] = []
    found = census.Census(pool, ["eager"], said.append)
    found.look()
    for handle in list(found.asked):
        found.hear(handle)
    assert list(found.nodes) == ["a"]
    pool.answers = {}
    seconds[0] += census.LOOK_S
    assert sorted(each.machine.id for each in found.take(None)) == ["a", "b"]
    assert said == []


def test_a_kind_that_is_not_there_is_said_after_30_s_with_what_there_is(seconds):
    pool = FakePool("a", "b", "c", gpus=4)
    pool.devices = {"a": H200}
    pool.busy = {"c"}
    began = seconds[0]
    nodes, said, _ = taken(pool, ["h200", "a100", "h100"])
    assert said == [
        "no a100 and no h100 answered within 30 s; there is 4 x NVIDIA H200, 4 x cpu, 4 x GPU (busy, or slow to answer)"
    ]
    assert 30 < seconds[0] - began < 60
    assert len(nodes) == 2


def test_without_any_gpu_it_is_said_and_ends(seconds):
    nodes, said, _ = taken(FakePool())
    assert nodes == []
    assert said == ["not every GPU answered within 30 s; there is no GPU"]


def test_busy_machines_are_waited_for_where_there_are_no_others(seconds):
    pool = FakePool("a")
    pool.busy = {"a"}
    said = []

    def tell(text):
        said.append(text)
        pool.busy = set()

    nodes = census.Census(pool, ["eager"], tell).take(None)
    assert [each.machine.id for each in nodes] == ["a"]
    assert said == ["not every GPU answered within 30 s; there is 1 x GPU (busy, or slow to answer)"]


# ---- versions --------------------------------------------------------------------------------------------------------


def nodes_with(*versions):
    pool = FakePool(*(f"n{number}" for number, _ in enumerate(versions)))
    pool.versions = {f"n{number}": {"torch": each} for number, each in enumerate(versions)}
    return taken(pool)[0]


@pytest.mark.parametrize(
    ("versions", "earlier", "chosen"),
    [
        (["1", "2", "2"], [], "2"),
        (["1", "2"], [], "1"),
        (["1", "2", "2"], ["1"], "1"),  # so that the study goes on
        (["1", "2", "2"], ["3"], "2"),
    ],
)
def test_the_versions_of_most_nodes_or_of_an_earlier_run_are_the_ones(seconds, versions, earlier, chosen):
    then = [Conditions(device="any", capability=None, versions={"torch": each}) for each in earlier]
    assert census.reference(nodes_with(*versions), then).versions == {"torch": chosen}


def test_other_cards_are_no_other_versions():
    here = Conditions(device="NVIDIA H200", capability=(9, 0), versions={"torch": "1"})
    assert census.differences(replace(here, device="NVIDIA A100", capability=(8, 0)), here) == []
    assert census.differences(replace(here, versions={"torch": "2"}), here) == ["torch 2 there, 1 here"]
