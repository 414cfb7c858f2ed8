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


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("cold", "cold", None),
        ("cold", "warm", ("cold", "warm", "refused")),
        ("unknown", "warm", ("not recorded", "warm", "unrecorded")),
        ("unknown", "unknown", None),
    ],
)
def test_the_cache_that_two_rows_were_timed_with(a: str, b: str, expected: tuple[str, str, str] | None) -> None:
    before, after = ({"graph_us": Timed(1.0, (), l2=state)} for state in (a, b))
    found = list(settings.of_caches({**before, "event_us": Timed(1.0, ())}, after))
    made = [(each.name, each.baseline, each.candidate, each.weight) for each in found]
    assert made == ([("L2 of graph_us", *expected)] if expected else [])


@pytest.mark.parametrize("change", [{"multiprocessors": 114}, {"memory_bytes": 40 * 2**30}])
def test_a_card_of_the_same_name_may_be_another(change: dict[str, int]) -> None:
    other = msgspec.structs.replace(BASE.device, **change)
    a, b = ({s.name: s for s in settings.of_result(d, BASE.environment, "0.1.0")} for d in (BASE.device, other))
    assert [(name, a[name].refuses) for name in a if a[name] != b[name]] == [
        ({"multiprocessors": "multiprocessors", "memory_bytes": "memory"}[next(iter(change))], True)
    ]


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
