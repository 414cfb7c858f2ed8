"""Time of the host in no operator is that of the innermost Python frame; a kernel has the modules around its launch."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from support.raw import api, event, kernel, launched, step, text

from mlpfusion.trace.analysis.idling.idle import NO_EVENT
from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.findings.host import findings
from mlpfusion.trace.names.frames import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mlpfusion.records.trace import Finding, PythonUse, Reading

LENGTH = 900
LAUNCHES = (200, 500)
FORWARD = "/home/alice/models/model.py(12): forward"
FRAMES = (("nn.Module: Net_0", 5, 880), (FORWARD, 10, 600), ("<built-in function sleep>", 300, 100))


def frame(name: str, start: float, length: float, **place: Any) -> Any:
    return event("python_function", name, start, length, **place)


def steps(frames: Iterable[tuple[str, float, float]] = FRAMES, *, count: int = 3) -> list[Any]:
    """Steps of 900 µs, each with two operators that launch a kernel of 20 µs, and frames given by their place in it."""
    made: list[Any] = []
    for index in range(count):
        start = 10_000 * (index + 1)
        made.append(step(index, start, LENGTH))
        made += [frame(name, start + at, length) for name, at, length in frames]
        for number, at in enumerate(LAUNCHES):
            made.append(event("cpu_op", "aten::mm", start + at, 10))
            made += launched("k", start + at + 4, start + at + 12, 20, 10 * index + number + 1)
    return made


def innermost(frames: Sequence[tuple[str, float, float]], instants: Iterable[int]) -> Counter[str]:
    """How many of the instants are in each frame that began last of those running, by hand."""
    found: Counter[str] = Counter()
    for instant in instants:
        running = [name for name, at, length in frames if at <= instant < at + length]
        found[shown(running[-1]) if running else NO_EVENT] += 1
    return found


def used(reading: Reading) -> PythonUse:
    assert reading.python is not None
    return reading.python


def by_name(shares: Iterable[Any]) -> dict[str, float]:
    return {one.name: one.us for one in shares}


def bound(reading: Reading) -> Finding:
    return next(one for one in findings(reading) if one.id.endswith("_bound"))


def test_pre_ops_leave_nothing_unattributed_that_a_frame_explains() -> None:
    reading = read(text(steps()))
    outside = [instant for instant in range(204) if not 200 <= instant < 210]
    between = [instant for instant in range(204, 504) if not 200 <= instant < 210 and not 500 <= instant < 510]
    expected = innermost(FRAMES, outside)
    assert by_name(used(reading).before_first) == {k: v for k, v in expected.items() if k != NO_EVENT}
    assert by_name(used(reading).between_launches) == dict(innermost(FRAMES, between))
    assert sum(expected.values()) == reading.analysis.pre_ops.unattributed


def test_the_host_is_in_frames_while_the_device_idles() -> None:
    reading = read(text(steps()))
    assert reading.device_use is not None
    idle = [*range(208), *range(232, 508), *range(532, LENGTH)]
    covered = {at for start in LAUNCHES for at in range(start, start + 10)}
    expected = innermost(FRAMES, [instant for instant in idle if instant not in covered])
    did = by_name(reading.device_use.did)
    assert {name: did[name] for name in expected} == dict(expected)
    assert sum(did.values()) == pytest.approx(reading.device_use.working_us)
    seen = bound(reading).seen
    assert "the host was in: " in seen
    assert "model.py(12): forward" in seen
    assert "alice" not in json.dumps(seen)


def test_a_trace_without_frames_says_nothing_of_them() -> None:
    reading = read(text(steps(())))
    assert reading.python is None
    assert reading.modules == ()
    assert "in no operator, Python mostly" in bound(reading).seen


def test_frames_change_no_other_figure() -> None:
    with_frames, without = read(text(steps())), read(text(steps(())))
    assert with_frames.analysis == without.analysis
    assert (with_frames.idle_share, with_frames.host_use) == (without.idle_share, without.host_use)
    assert with_frames.call == without.call


def test_an_operators_time_is_its_own_whatever_frames_are_in_it() -> None:
    inside = (*FRAMES, ("fake.py(1): __torch_dispatch__", 201, 2))
    reading = read(text(steps(inside)))
    assert reading.device_use is not None
    assert "fake.py(1): __torch_dispatch__" not in by_name(reading.device_use.did)


def test_layers_of_one_class_are_one() -> None:
    layers = [(f"nn.Module: Layer_{number}", 600 + 10 * number, 10) for number in range(20)]
    reading = read(text(steps(layers)))
    assert reading.device_use is not None
    assert by_name(reading.device_use.did)["nn.Module: Layer_*"] == 200


def test_frames_of_other_threads_and_processes_own_nothing() -> None:
    made = steps()
    more = [frame("other.py(1): work", 1, 10**6, tid=77), frame("third.py(1): work", 1, 10**6, pid=78)]
    for thread in range(300):
        more.append(frame("loader.py(1): next", 9000 + thread, 5000, tid=1000 + thread))
    found, alone = read(text(made + more)), read(text(made))
    assert (found.python, found.modules, found.device_use) == (alone.python, alone.modules, alone.device_use)


def test_a_kernel_is_of_the_modules_around_its_launch() -> None:
    nested = [("nn.Module: Net_0", 5, 880), ("nn.Module: MLP_3", 190, 100), ("nn.Module: Linear_7", 195, 30)]
    reading = read(text(steps([*nested, (FORWARD, 196, 20)])))
    assert reading.modules == (("Net_0", "MLP_3", "Linear_7"), ("Net_0",))


def test_modules_go_with_the_kernels_order_on_the_device() -> None:
    made = []
    for index in range(3):
        start = 10_000 * (index + 1)
        made += [
            step(index, start, 900),
            frame("nn.Module: A_0", start + 5, 40),
            frame("nn.Module: B_0", start + 50, 40),
        ]
        made += [
            api("cudaLaunchKernel", start + 10, 4, 10 * index + 1),
            api("cudaLaunchKernel", start + 60, 4, 10 * index + 2),
        ]
        made += [
            kernel("late", start + 500, 20, 10 * index + 1, stream=8),
            kernel("soon", start + 70, 20, 10 * index + 2),
        ]
    reading = read(text(made))
    assert [one.name for one in reading.analysis.kernels] == ["soon", "late"]
    assert reading.modules == (("B_0",), ("A_0",))


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param({"ts": None}, id="no start"),
        pytest.param({"dur": "x"}, id="no duration"),
        pytest.param({"dur": -5}, id="negative"),
        pytest.param({"ts": 1e30}, id="never"),
    ],
)
def test_a_frame_without_a_time_is_counted_and_loses_nothing(damage: Any) -> None:
    made = steps()
    bad = {**frame("bad.py(1): f", 10_001, 5), **damage}
    reading, whole = read(text([*made, bad])), read(text(made))
    assert reading.integrity.frames == 1
    assert reading.integrity.dropped == 0
    assert reading.analysis == whole.analysis
    assert reading.python == whole.python


@pytest.mark.parametrize("name", ["", "nn.Module: ", "\\", "(1): ", "nn.Module: _0"])
def test_a_frame_with_an_odd_name_loses_nothing(name: str) -> None:
    reading = read(text(steps([*FRAMES, (name, 50, 20)])))
    assert reading.analysis == read(text(steps())).analysis
    assert sum(by_name(used(reading).before_first).values()) == 195


def test_frames_that_overlap_are_counted_once() -> None:
    crossing = [("a.py(1): a", 10, 100), ("b.py(1): b", 60, 90), ("c.py(1): c", 120, 50)]
    found = by_name(used(read(text(steps(crossing)))).before_first)
    assert found == {"a.py(1): a": 50, "b.py(1): b": 60, "c.py(1): c": 50}


def test_a_deep_recursion() -> None:
    deep = [(f"r.py({number % 4}): down", 20 + number / 1000, 150 - number / 500) for number in range(10_000)]
    found = by_name(used(read(text(steps(deep, count=1)))).before_first)
    assert sum(found.values()) == pytest.approx(150)
    assert set(found) <= {f"r.py({number}): down" for number in range(4)}


def test_a_whole_trace_in_frames() -> None:
    """Neither steps nor annotations: frames of all of it, some begun long before."""
    made = [one for one in steps() if one["cat"] != "user_annotation"]
    reading = read(text([frame("main.py(1): <module>", 1, 10**6), *made]))
    assert reading.call.by == "whole_trace"
    assert reading.analysis.host_us[0] < 10**5
    assert "main.py(1): <module>" in by_name(used(reading).between_launches)
