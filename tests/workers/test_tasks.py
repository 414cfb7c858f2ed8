"""Tasks and answers are JSON both ways, and tell their kind themselves."""

from __future__ import annotations

import msgspec
import pytest

from mlpfusion.records.clocks import Samples
from mlpfusion.spec import MLPSpec, Workload
from mlpfusion.workers import tasks

WORK = Workload(spec=MLPSpec(hidden_size=16, intermediate_size=32), batch=1, seq=4)
WHERE = {"workload": WORK, "device": "cpu", "seed": 7}
TASKS = [
    tasks.Qualify(backend="eager", trace="t", calls=3, emulate=False, tokens=None, **WHERE),
    tasks.Race(backends=("a", "b"), rounds=20, progress="p", **WHERE),
    tasks.Count(backends=("a",), **WHERE),
    tasks.Schedule(backend="compile", folder="f", **WHERE),
    tasks.Ceilings(dtype="bfloat16", device="cuda", copies=(1, 2), products=((1, 2, 3),), folder="f", calls=3),
    tasks.Trace(script="s.py", function="f", trace="t", calls=3),
]
ANSWERS = [
    tasks.Qualified(distributions={"liger-kernel": None}),
    tasks.Raced(
        samples=(Samples(backend="a", clock="wall_us", l2="cold", values=(1.0, None)),), no_graph={}, invalid={}
    ),
    tasks.Scheduled(graphs=(), no_ledger="because"),
    tasks.Traced(misused="no such function"),
    tasks.Done(),
    tasks.Broken(kind="unavailable", reason="no GPU"),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_a_task_arrives_as_it_was_sent(task: tasks.Task) -> None:
    assert tasks.decode_task(tasks.encode(task)) == task


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: type(answer).__name__)
def test_an_answer_arrives_as_it_was_sent(answer: tasks.Answer) -> None:
    assert tasks.decode_answer(tasks.encode(answer)) == answer


def test_the_two_lists_above_have_every_kind() -> None:
    assert {type(task) for task in TASKS} == set(tasks.Task.__args__)
    assert {type(answer) for answer in ANSWERS} == set(tasks.Answer.__args__)


@pytest.mark.parametrize("text", [b"", b"{}", b'{"type": "nobody"}', b'{"type": "done"}', b"[1]"])
def test_what_is_no_task_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        tasks.decode_task(text)


def test_an_answer_is_no_task() -> None:
    for answer in ANSWERS:
        with pytest.raises(msgspec.ValidationError):
            tasks.decode_task(tasks.encode(answer))
