"""Settings of two results: what they say of each other."""

from __future__ import annotations

import msgspec
import pytest
from support.profiles_made import profile

from mlpfusion.errors import UsageError
from mlpfusion.records.environment import Card, Checkout
from mlpfusion.stages.compare import settings
from mlpfusion.stages.compare.subjects import Group, Setting, Timed

BASE = profile()


def group(*found: Setting) -> Group:
    return Group("a.json", "key", "title", {}, settings=found)


def changes(a: tuple[Setting, ...], b: tuple[Setting, ...]) -> list[tuple[str, str, str, str]]:
    found = settings.changes(group(*a), group(*b))
    return [(each.name, each.baseline, each.candidate, each.weight) for each in found]


def test_the_same_differ_in_nothing() -> None:
    own = settings.of_result(BASE.device, BASE.environment, "0.1.0")
    assert changes(own, own) == []


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (Setting("driver", "1", True), Setting("driver", "2", True), ("driver", "1", "2", "refused")),
        (Setting("driver", "1", True), Setting("driver", None, True), ("driver", "1", "not recorded", "unrecorded")),
        (Setting("mlpfusion", "1", False), Setting("mlpfusion", "2", False), ("mlpfusion", "1", "2", "question")),
        (Setting("flag X", "1", True), Setting("driver", "1", True), ("flag X", "1", "unset", "refused")),
        (
            Setting("card", "a", False),
            Setting("card", "b", False),
            ("card", "one card", "another of its kind", "question"),
        ),
    ],
)
def test_one_that_differs(a: Setting, b: Setting, expected: tuple[str, ...]) -> None:
    assert expected in changes((a,), (b,))


def test_a_version_that_only_one_records_is_not_listed() -> None:
    assert changes((Setting("quack", "1", False),), ()) == []


def test_what_a_result_records_is_all_there() -> None:
    there = msgspec.structs.replace(
        BASE.environment,
        card=Card(power_limit_w=700, locked_clocks=False, ecc=True, digest="d"),
        checkout=Checkout(commit="abc", clean=False),
        distributions={"quack": "1", "torch": "2.11.0"},
    )
    found = {each.name: each.value for each in settings.of_result(BASE.device, there, "0.1.0")}
    assert found["power limit"] == "700 W"
    assert (found["locked clocks"], found["ECC"], found["MIG"]) == ("off", "on", None)
    assert found["commit"] == "abc, with changes"
    assert found["flag OMP_NUM_THREADS"] == "1"
    assert found["quack"] == "1"
    assert len([name for name in found if name.lower() == "torch"]) == 1


def test_the_cache_of_a_clock_is_what_its_rows_agree_on() -> None:
    cold, warm, unknown = (Timed(1.0, (), l2=state) for state in ("cold", "warm", "unknown"))
    (one,) = settings.of_clocks([{"graph_us": cold}, {"graph_us": cold}, {}])
    assert one == Setting("L2 of graph_us", "cold", True)
    assert settings.of_clocks([{"graph_us": unknown}])[0].value is None
    (both,) = settings.of_clocks([{"graph_us": cold}, {"graph_us": warm}])
    assert both == Setting("L2 of graph_us", "cold and warm", True)


def test_a_refusal_names_every_setting_once() -> None:
    found = list(
        settings.changes(
            group(Setting("a", "1", True), Setting("b", "1", True)),
            group(Setting("a", "2", True), Setting("b", "2", True)),
        )
    )
    with pytest.raises(UsageError, match="'x' and 'y' were measured differently: a 1 and 2, b 1 and 2; --force"):
        settings.check(found, "x", "y")
    settings.check([], "x", "y")
