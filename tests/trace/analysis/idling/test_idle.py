"""The time in which the device idled is split by what the host did meanwhile, and every nanosecond is in one part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings
from support.raw import api, event, launched, step, text

from mlpfusion.trace.analysis.idling.idle import NO_EVENT
from mlpfusion.trace.analysis.summary import read

if TYPE_CHECKING:
    from mlpfusion.records.trace import DeviceUse


def use(made: list[Any]) -> DeviceUse:
    found = read(text(made)).device_use
    assert found is not None
    return found


def calls(*inside: Any, length: int = 9000, count: int = 3) -> list[Any]:
    """Calls of `length`, each with what `inside` adds, given its start and a number of its own."""
    made = []
    for index in range(count):
        start = 10_000 * (index + 1)
        made.append(step(index, start, length))
        for add in inside:
            made += add(start, 100 * index + 1)
    return made


def one_kernel(at: int, runs: int, length: int) -> Any:
    return lambda start, number: launched("k", start + at, start + runs, length, number)


def test_before_a_launch_the_host_works_and_behind_it_the_work_is_on_its_way() -> None:
    found = use(calls(one_kernel(7000, 7500, 300)))
    assert (found.length_us, found.own_us) == (9000, 300)
    assert found.launched_us == 7500 - 7004  # the launch takes 4 µs
    assert (found.working_us - found.tail_us, found.tail_us) == (7004, 9000 - 7800)
    assert found.idle_us == pytest.approx(found.working_us + found.launched_us)


def test_a_wait_is_no_work_of_the_host() -> None:
    def wait(start: int, number: int) -> list[Any]:
        return [api("cudaStreamSynchronize", start + 100, 2000)]

    without, found = use(calls(one_kernel(7000, 7500, 300))), use(calls(wait, one_kernel(7000, 7500, 300)))
    assert (without.waiting_us, found.waiting_us) == (0, 2000)
    assert found.working_us == pytest.approx(without.working_us - 2000)


def test_what_the_host_did_is_named_by_its_innermost_event() -> None:
    def outer(start: int, number: int) -> list[Any]:
        return [event("cpu_op", "aten::outer", start + 1000, 3000), event("cpu_op", "aten::inner", start + 2000, 500)]

    did = {one.name: one.us for one in use(calls(outer, one_kernel(7000, 7020, 300))).did}
    assert (did["aten::outer"], did["aten::inner"]) == (2500, 500)
    assert did[NO_EVENT] > 0


# What the host does one after the other: a wait, or a launch and how long after it its work begins; each with a length.
HOST = st.lists(st.tuples(st.none() | st.integers(1, 900), st.integers(1, 380)), min_size=1, max_size=20).filter(
    lambda host: any(behind is not None for behind, _ in host)
)


@settings(max_examples=rings.examples(40))
@given(HOST)
def test_every_part_of_a_call_is_counted_once(host: list[tuple[int | None, int]]) -> None:
    def add(start: int, number: int) -> list[Any]:
        made: list[Any] = []
        for place, (behind, length) in enumerate(host):
            at = start + 400 * place + 10
            if behind is None:
                made.append(api("cudaStreamSynchronize", at, length))
            else:
                made += launched("k", at, at + behind, length, number + place)
        return made

    found = use(calls(add))
    assert found.length_us == pytest.approx(found.own_us + found.others_us + found.orphans_us + found.idle_us)
    parts = found.working_us + found.waiting_us + found.final_wait_us + found.launched_us
    assert found.idle_us == pytest.approx(parts)
    assert 0 <= found.tail_us <= found.working_us
    assert sum(one.us for one in found.did) <= found.working_us + 1e-6
