"""trace.job.parts: the ranks of a merged file are told apart by their devices, whatever their ids have in common."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.paths import DATA
from support.readings import many

from mlpfusion.trace.analysis.summary import reading
from mlpfusion.trace.job.parts import parts
from mlpfusion.trace.read import kineto


def merged(devices: list[list[Any]], *, own: int = 0, pids: list[int] | None = None) -> dict[str, Any]:
    """Three calls of five kernels in each of several processes: the same times and correlations, and devices of each.

    A process has `own` launches before its calls that no other process has; its kernels last longer by its number.
    """
    entries = []
    for number, mine in enumerate(devices):
        rank = many()
        for index in range(own):
            rank.launch("earlier", 900 + index, 950 + index, 1)
            rank.entries[-1]["args"]["correlation"] = rank.entries[-2]["args"]["correlation"] = 1000 * (number + 1)
        kernels = 0
        for entry in rank.entries:
            entry["pid"] = (pids or [100 + at for at in range(len(devices))])[number]
            if entry["cat"] == "kernel":
                entry["pid"], entry["dur"] = mine[kernels % len(mine)], entry["dur"] + number
                kernels += 1
        entries += rank.entries
    return {"traceEvents": entries}


def split(document: dict[str, Any]) -> Any:
    return parts(kineto.read(json.dumps(document).encode()))


@pytest.mark.parametrize("own", [0, 1, 3])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_each_process_has_the_kernels_of_its_device(ranks: int, own: int) -> None:
    found = split(merged([[device] for device in range(ranks)], own=own))
    assert [(part.process, part.devices) for part in found] == [(100 + at, (at,)) for at in range(ranks)]
    assert [part.assumed for part in found] == [own == 0] * ranks
    for number, part in enumerate(found):
        one = reading(part.trace)
        assert one.incomplete is None
        assert [kernel.time_us for kernel in one.analysis.kernels] == [5 + number] * 5
        assert one.call.count == 3


def test_what_is_known_goes_before_the_order() -> None:
    found = split(merged([[1], [0], [2]], own=1))
    assert [(part.process, part.devices, part.assumed) for part in found] == [
        (101, (0,), False),
        (100, (1,), False),
        (102, (2,), False),
    ]


def test_a_process_may_use_several_devices() -> None:
    found = split(merged([[0, 1], [2, 3]], own=4))
    assert [(part.process, part.devices) for part in found] == [(100, (0, 1)), (101, (2, 3))]


@pytest.mark.parametrize(
    "document",
    [
        merged([[0]]),
        merged([[0, 1]]),  # one process, two devices
        merged([[0], [0]]),  # two processes on one device
        merged([[0], [0]], own=2),
        merged([[0, 1], [2]]),  # three devices of two processes, and nothing tells whose the third is
        {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]},
    ],
)
def test_what_cannot_be_parted_stays_whole(document: dict[str, Any]) -> None:
    (part,) = split(document)
    assert (part.process, part.devices, part.assumed) == (None, (), False)
    assert len(part.trace.start) == len(document["traceEvents"])


def test_a_process_that_launches_nothing_is_no_rank() -> None:
    document = merged([[0], [1]])
    loader = {"ph": "X", "cat": "cpu_op", "name": "aten::stack", "pid": 7, "tid": 7, "ts": 1000, "dur": 9}
    annotated = {"ph": "X", "cat": "user_annotation", "name": "load", "pid": 7, "tid": 7, "ts": 1000, "dur": 9}
    document["traceEvents"] += [loader, annotated]
    assert [part.process for part in split(document)] == [100, 101]


def test_each_process_has_its_own_python_frames() -> None:
    document = merged([[0], [1]])
    for number, count in enumerate((2, 5)):
        for at in range(count):
            frame = {"cat": "python_function", "name": f"f{at}", "tid": 1, "ts": 1010 + at, "dur": 3}
            document["traceEvents"].append({"ph": "X", "pid": 100 + number, **frame})
    assert [len(part.trace.frames.start) for part in split(document)] == [2, 5]


@pytest.mark.parametrize("name", ["h200_eager", "h200_compile_cudagraphs", "cpu_eager"])
def test_a_recorded_trace_is_of_one_process(name: str) -> None:
    trace = kineto.read(DATA / f"{name}.json.gz")
    assert [part.trace for part in parts(trace)] == [trace]
