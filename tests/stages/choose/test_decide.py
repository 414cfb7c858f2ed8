"""What is chosen: winners and ties for a number of tokens, and the ranges between those that were measured."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.choices_made import GOOD, around, by_name, clock_of, point_of, profile, row

from mlpfusion.records.choice import Contender, Point
from mlpfusion.records.clocks import Bound, Clocks
from mlpfusion.records.profile import Launches, Traffic
from mlpfusion.stages.choose import decide

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the choice without a GPU")


# ---- one number of tokens --------------------------------------------------------------------------------------------


def test_the_fastest_wins_with_its_margin():
    point = point_of(row("eager", around(120)), row("triton", around(100)), row("packed", around(110)))
    assert (point.chosen, point.winner, point.runner_up, point.tied) == ("triton", "triton", "packed", ())
    found = by_name(point)
    assert found["triton"].verdict == "won"
    assert found["packed"].verdict == found["eager"].verdict == "slower"
    ratio = found["packed"].ratio
    assert ratio.low <= ratio.median <= ratio.high
    assert ratio.median == pytest.approx(1.1)
    assert (ratio.baseline, ratio.n, ratio.confidence) == ("triton", 25, 0.95)
    assert all(each.clock.samples == () for each in found.values())


def test_a_tie_within_the_noise_goes_to_the_fastest_or_to_eager():
    noisy, other = around(100, wobble=0.2), tuple(reversed(around(101, wobble=0.2)))
    assert point_of(row("triton", noisy), row("packed", other)).tied == ("packed",)
    assert point_of(row("triton", noisy), row("packed", other)).chosen == "triton"
    point = point_of(row("triton", noisy), row("eager", other))
    assert (point.winner, point.chosen, by_name(point)["eager"].verdict) == ("triton", "eager", "tied")


def test_too_few_rounds_tell_nothing():
    point = point_of(row("eager", (200.0, 201.0)), row("triton", (100.0, 101.0)))
    assert (point.winner, point.tied, point.chosen) == ("triton", ("eager",), "eager")


def test_what_is_left_out_says_why():
    bad = row("bad", around(10), accuracy=replace(GOOD, max_error=90.0), status="failed", reason="numerically wrong")
    emulated = row("emulated", around(1), emulated=True, reason="emulated: no times")
    no_graph = row("late", around(1), clocks=Clocks(reasons={"event_us": "not sampled"}))
    dropped = row("dropped", clocks=Clocks(event_us=replace(clock_of(*around(1)), dropped=1)), status="ok")
    refused = row("refused", reason="only on Tuesdays")
    point = point_of(row("eager", around(100)), bad, emulated, no_graph, dropped, refused)
    assert point.chosen == "eager"
    assert {name: (each.verdict, each.reason) for name, each in by_name(point).items() if name != "eager"} == {
        "bad": ("failed", "numerically wrong"),
        "emulated": ("untimed", "emulated: no times"),
        "late": ("untimed", "not sampled"),
        "dropped": ("untimed", "no whole series of event_us"),
        "refused": ("unavailable", "only on Tuesdays"),
    }


def test_wrong_for_one_number_of_tokens_is_out_for_all():
    wrong_at_256 = row("mine", status="failed", reason="numerically wrong: 9", accuracy=replace(GOOD, rms_error=9.0))
    small = profile(row("eager", around(100)), row("mine", around(50)), tokens=1)
    large = profile(row("eager", around(100)), wrong_at_256, tokens=256)
    wrong = decide.disqualified([small, large])
    assert wrong == {"mine": "wrong at inference, 256 tokens: numerically wrong: 9"}
    point = decide.point(small, "event_us", wrong)
    assert point.chosen == "eager"
    assert by_name(point)["mine"].reason == wrong["mine"]


def test_nothing_to_choose():
    point = point_of(row("eager", status="failed", reason="out of memory"))
    assert (point.chosen, point.winner) == (None, None)
    assert point.reason == "no backend that is right has a time by event_us"


def test_why_one_is_slower():
    def launches(kernels):
        return Launches(kernels=kernels, memcpys=0, memsets=0, runtime_launches={}, occupancy_queries=0, syncs=0)

    host = Bound(by="cpu", margin=3.0, host_us=300.0, device_us=100.0)
    slow = row("eager", around(300), launches=launches(5), bound=host,
               traffic=Traffic(minimum_bytes=1, derived_bytes=4_000_000))  # fmt: skip
    fast = row("fused", around(100), launches=launches(2), traffic=Traffic(minimum_bytes=1, derived_bytes=1_000_000))
    said = by_name(point_of(slow, fast))["eager"].reason
    assert said == (
        "bound by the host, which takes 3.00x the device's time, 5 kernels against 2, moves 4.00 MB against 1.00 MB"
    )


# ---- ranges ----------------------------------------------------------------------------------------------------------


def measured(tokens, times, mode="inference", chosen=None):
    contenders = tuple(Contender(backend=name, verdict="slower", clock=clock_of(time)) for name, time in times.items())
    best = chosen if chosen is not None else min(times, key=times.get) if times else None
    return Point(mode=mode, tokens=tokens, chosen=best, winner=best, runner_up=None, tied=(), contenders=contenders)


def test_a_range_ends_where_the_times_cross():
    # a is constant, b falls from 4 to 1 between 1 and 256 tokens: on logarithmic scales they cross halfway, at 16
    points = [measured(1, {"a": 2.0, "b": 4.0}), measured(256, {"a": 2.0, "b": 1.0})]
    assert [(each.first, each.last, each.backend, each.measured) for each in decide.ranges(points)] == [
        (1, 16, "a", (1,)),
        (17, None, "b", (256,)),
    ]


def test_where_one_has_no_time_a_range_ends_halfway():
    points = [measured(4, {"a": 2.0}), measured(64, {"b": 1.0})]
    assert [(each.first, each.last) for each in decide.ranges(points)] == [(1, 16), (17, None)]


def test_a_point_without_a_choice_is_a_gap():
    points = [measured(1, {"a": 2.0}), measured(16, {}), measured(256, {"a": 1.0})]
    assert [(each.first, each.last) for each in decide.ranges(points)] == [(1, 4), (65, None)]


def test_phases():
    def phases(*points):
        return [each.phase for each in decide.ranges(points)]

    assert phases(measured(1, {"a": 1.0, "b": 2.0}), measured(4096, {"a": 1.0, "b": 0.5})) == ["decode", "prefill"]
    assert phases(measured(1, {"a": 1.0}), measured(16, {"b": 1.0}), measured(4096, {"a": 1.0}))[1:] == [
        "decode and prefill",
        "prefill",
    ]
    assert phases(measured(8, {"a": 1.0}, "training")) == ["training"]


TIMES = st.lists(st.floats(0.1, 1e4), min_size=3, max_size=3)
DATA = st.lists(st.tuples(st.integers(1, 10**6), TIMES), min_size=1, max_size=6, unique_by=lambda each: each[0])


@given(DATA)
def test_ranges_cover_every_number_once_and_agree_with_the_points(data):
    points = [measured(tokens, dict(zip("abc", times, strict=True))) for tokens, times in data]
    found = decide.ranges(points)
    assert found[0].first == 1
    assert found[-1].last is None
    for one, after in itertools.pairwise(found):
        assert one.last + 1 == after.first
        assert one.backend != after.backend
    for point in points:
        (its,) = [
            each for each in found if each.first <= point.tokens and (each.last is None or point.tokens <= each.last)
        ]
        assert its.backend == point.chosen
        assert point.tokens in its.measured
