"""The causes of an idle device: each is found where it is, none where it is not certain, and they add up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings
from support.paths import DATA
from support.raw import api, kernel, launched, step, text

from mlpfusion.trace.analysis.summary import read

if TYPE_CHECKING:
    from mlpfusion.records.breakdown import IdleCauses

FULL = 9000


def causes(*inside: Any) -> IdleCauses:
    """Of three calls of 9000 that hold what `inside` adds, given their start and a number of their own."""
    made: list[Any] = []
    for call in range(3):
        start = 10_000 * (call + 1)
        made.append(step(call, start, FULL))
        for add in inside:
            made += add(start, 100 * call)
    found = read(text(made)).breakdown
    assert found is not None
    assert found.idle is not None
    return found.idle


def work(number: int, at: int, runs: int, length: int, stream: int = 7) -> Any:
    def add(start: int, first: int) -> list[Any]:
        made = launched("k", start + at, start + runs, length, first + number)
        made[1]["tid"] = stream
        return made

    return add


def call_of(name: str, at: int, length: int) -> Any:
    return lambda start, first: [api(name, start + at, length)]


BUSY = work(1, 1, 5, 2995)  # until 3000; before it a gap of 5, and its launch from 1 to 5
TAIL = FULL - 3000


def test_a_launch_after_the_device_ran_out_of_work_is_late() -> None:
    found = causes(BUSY, work(2, 4000, 4010, 4990))
    assert found.host_late_us == 5 + 1010
    assert found.idle_us == found.host_late_us


def test_a_wait_before_the_launch_is_no_lateness() -> None:
    found = causes(BUSY, call_of("cudaStreamSynchronize", 100, 3400), work(2, 4000, 4010, 4990))
    assert (found.host_waits_us, found.host_late_us) == (500, 5 + 510)


def test_a_short_gap_is_short_whatever_made_it() -> None:
    found = causes(BUSY, work(2, 10, 3004, 5996))
    assert (found.short_us, found.idle_us) == (4, 5 + 4)


@pytest.mark.parametrize(
    ("stream", "between", "at", "stream_us"),
    [
        (20, "cudaStreamWaitEvent", 20, 50),
        (20, "hipStreamWaitEvent", 20, 50),
        (20, "cudaEventRecord", 20, 0),  # nothing waits for it
        (7, "cudaStreamWaitEvent", 20, 0),  # the stream that ran last
        (20, "cudaStreamWaitEvent", 40, 0),  # behind the launch
    ],
)
def test_work_that_was_launched_in_time_waited_for_a_stream_only_if_it_was_told_to(
    stream: int, between: str, at: int, stream_us: int
) -> None:
    found = causes(BUSY, call_of(between, at, 2), work(2, 30, 3050, 5950, stream))
    assert found.stream_us == stream_us
    assert found.unknown_us == 50 - stream_us
    assert found.host_late_us == 5


def test_work_without_a_launch_is_unknown() -> None:
    found = causes(BUSY, lambda start, first: [kernel("orphan", start + 3500, 5500, 77_000 + first)])
    assert (found.unknown_us, found.host_late_us) == (500, 5)


def test_behind_the_last_work_the_host_launches_nothing_more() -> None:
    found = causes(BUSY, call_of("cudaDeviceSynchronize", 2900, 1100))
    assert (found.host_waits_us, found.host_late_us) == (1000, 5 + TAIL - 1000)


# What the host does one after the other: waits, or launches work that starts later, on one of two streams.
HOST = st.lists(
    st.tuples(st.none() | st.integers(1, 700), st.integers(1, 380), st.sampled_from([7, 20])), min_size=1, max_size=15
).filter(lambda host: any(behind is not None for behind, *_ in host))


@settings(max_examples=rings.examples(40))
@given(HOST)
def test_the_causes_add_up(host: list[tuple[int | None, int, int]]) -> None:
    def add(start: int, first: int) -> list[Any]:
        made: list[Any] = []
        for place, (behind, length, stream) in enumerate(host):
            at = start + 400 * place + 10
            if behind is None:
                made.append(api("cudaStreamSynchronize" if stream == 7 else "cudaStreamWaitEvent", at, length))
            else:
                made += launched("k", at, at + behind, length, first + place + 1)
                made[-1]["tid"] = stream
        return made

    found = causes(add)
    parts = (found.host_waits_us, found.host_late_us, found.stream_us, found.short_us, found.unknown_us)
    assert min(parts) >= 0
    assert sum(parts) == pytest.approx(found.idle_us)


@pytest.mark.parametrize("name", ["h200_eager", "h200_eager_training", "h200_compile_cudagraphs"])
def test_a_recorded_call_idles_because_the_host_is_late(name: str) -> None:
    reading = read(DATA / f"{name}.json.gz")
    assert reading.breakdown is not None
    assert reading.device_use is not None
    found = reading.breakdown.idle
    assert found is not None
    assert found.idle_us == pytest.approx(reading.device_use.idle_us)
    assert found.host_late_us > 0.8 * found.idle_us
    # All in which the host worked on its next launch, short gaps apart, is lateness.
    assert found.host_late_us + found.short_us >= reading.device_use.working_us
