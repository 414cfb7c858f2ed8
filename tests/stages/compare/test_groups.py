"""Groups of every kind of record: profiles, choices, verdicts, proofs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from support.comparisons_made import raced
from support.paths import RESULTS
from support.profiles_made import profile

from mlpfusion.records.validation import Checked, Validation, Verdict
from mlpfusion.stages.compare import facts, groups
from mlpfusion.storage import results

if TYPE_CHECKING:
    from mlpfusion.device import DeviceKind

OTHER = {"triton": ("another",)}


def verdict(word: str, *failed: str, target: str = "mine.py:f") -> Verdict:
    checks = tuple(Checked(name=name, looked_at="", status="fail", sentence="", repro="") for name in failed)
    return Verdict(target=target, kind="act_mul", activation="silu", word=word, headline="", checks=checks)


def validation(*verdicts: Verdict) -> Validation:
    made = profile()
    return Validation(
        schema=1, kind="validation", mlpfusion="0.1.0", created="", seed=0, device=made.device,
        environment=made.environment, verdicts=verdicts,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_a_row_of_a_profile(kind: DeviceKind) -> None:
    made = raced({"triton": 0.9}, clocks=("graph_us", "kernel_us", "event_us", "wall_us"), load=0.03)
    made = msgspec.structs.replace(made, device=msgspec.structs.replace(made.device, kind=kind))
    (group,) = groups.of_record(made, "a.json")
    row = group.rows["triton"]
    assert {name: timed.has_host for name, timed in row.clocks.items()} == {
        "graph_us": kind == "cpu",
        "kernel_us": kind == "cpu",
        "event_us": True,
        "wall_us": True,
    }
    assert {timed.load for timed in row.clocks.values()} == {0.03}
    assert group.title == "8192 tokens, hidden_size 768, intermediate_size 3072, gelu_tanh, bfloat16, inference"


def test_the_busiest_process_counts_and_an_unknown_one_is_unknown() -> None:
    made = raced({"triton": 0.9}, clocks=("event_us",), load=0.0, processes=2)
    for load, expected in ((0.4, 0.4), (None, None)):
        processes = (made.processes[0], msgspec.structs.replace(made.processes[1], neighbours=load))
        (group,) = groups.of_record(msgspec.structs.replace(made, processes=processes), "a.json")
        assert group.rows["triton"].clocks["event_us"].load == expected


def test_processes_that_ran_other_kernels_are_counted() -> None:
    made = raced({"triton": 0.9, "fused": 0.7})
    other = msgspec.structs.replace(made.processes[1], kernels={"triton": ("another_kernel",)})
    (group,) = groups.of_record(
        msgspec.structs.replace(made, processes=(*made.processes[:1], other, *made.processes[2:])), "a"
    )
    assert {name: row.others for name, row in group.rows.items()} == {"eager": 0, "triton": 1, "fused": 0}


def test_the_points_of_a_choice() -> None:
    found = groups.of_record(results.load_choice(RESULTS / "h200-choose-article" / "choice.json"), "c.json")
    assert [group.tokens for group in found] == [1, 16, 256, 2048, 8192]
    assert found[0].rows["(choice)"].facts[0].name == "chosen"
    assert not any(row.clocks for group in found for row in group.rows.values())


def test_a_proof_keeps_the_original_as_its_control() -> None:
    (group,) = groups.of_record(results.load_any(RESULTS / "h200-prove-gemma-2b-fused.json"), "p.json")
    assert list(group.rows) == ["fused"]
    assert group.controls is not None
    assert set(group.controls) == set(group.rows["fused"].clocks) == {"event_us"}
    assert {fact.name for fact in group.rows["fused"].facts} >= {
        "proof",
        "modules swapped",
        "peak memory",
        "kernel launches",
    }


def test_a_proof_that_claims_many_launches_takes_no_longer() -> None:
    made = results.load_any(RESULTS / "h200-prove-gemma-2b-fused.json")
    first = msgspec.structs.replace(made.kernels[0], swapped=2**63)
    many = msgspec.structs.replace(made, kernels=(first, *made.kernels[1:]))
    a, b = (groups.of_record(each, "p.json")[0].rows["fused"] for each in (made, many))
    assert {each.name for each in facts.changes(a, b)} == {"kernels by name", "kernel launches"}


WORDS = ["valid", "valid with hazards", "not decidable here", "not valid"]


@pytest.mark.parametrize("first", WORDS)
@pytest.mark.parametrize("second", WORDS)
def test_a_worse_word_is_a_regression(first: str, second: str) -> None:
    a, b = (
        groups.of_record(validation(verdict(word)), "v.json")[0].rows["mine.py:f (silu)"] for word in (first, second)
    )
    found = facts.changes(a, b)
    assert [(each.name, each.worse) for each in found] == (
        [] if first == second else [("verdict", WORDS.index(second) > WORDS.index(first))]
    )


def test_more_failed_checks_are_worse() -> None:
    a, b = (
        groups.of_record(validation(verdict("not valid", *names)), "v.json")[0].rows["mine.py:f (silu)"]
        for names in (("x",), ("x", "y"))
    )
    assert [(each.baseline, each.candidate, each.worse) for each in facts.changes(a, b)] == [("x", "x, y", True)]


def test_processes_that_all_ran_the_same_are_of_one_choice() -> None:
    found = raced({"triton": 0.9})
    for chosen, count in (((OTHER,) * 5, 0), ((OTHER,) * 4 + ({},), 1), ((OTHER,) * 2 + ({},) * 3, 2)):
        processes = tuple(
            msgspec.structs.replace(each, kernels=one) for each, one in zip(found.processes, chosen, strict=True)
        )
        (group,) = groups.of_record(msgspec.structs.replace(found, processes=processes), "a.json")
        assert group.rows["triton"].others == count
        assert group.rows["eager"].others == 0


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ([{}] * 5, [OTHER] * 5, True),
        ([{}] * 5, [OTHER] * 3 + [{}] * 2, True),
        ([{}] * 5, [OTHER] * 2 + [{}] * 3, False),  # its spread is that of two choices, which is told by itself
        ([OTHER] * 5, [OTHER] * 5, False),
        ([{}], [OTHER], True),
    ],
)
def test_kernels_that_differ_in_the_races_alone_are_told(
    first: list[dict[str, Any]], second: list[dict[str, Any]], told: bool
) -> None:
    sides = []
    for chosen in (first, second):
        found = raced({"triton": 0.9}, processes=len(chosen))
        processes = tuple(
            msgspec.structs.replace(each, kernels=one) for each, one in zip(found.processes, chosen, strict=True)
        )
        (group,) = groups.of_record(msgspec.structs.replace(found, processes=processes), "a.json")
        sides.append(group.rows["triton"])
    told_of = facts.changes(*sides)
    assert [each.name for each in told_of] == ([facts.RACED] if told else [])
    assert [each.candidate for each in told_of] == (["another"] if told else [])
    assert [side.raced_others for side in sides] == [
        2 * sum(map(bool, chosen)) > len(chosen) for chosen in (first, second)
    ]


def test_another_word_of_a_choice_is_told() -> None:
    found = results.load_choice(RESULTS / "h200-choose-article" / "choice.json")
    before = groups.of_record(found, "a.json")
    words = {"won": "slower", "slower": "tied"}
    points = tuple(
        msgspec.structs.replace(
            point,
            contenders=tuple(
                msgspec.structs.replace(each, verdict=words.get(each.verdict, each.verdict))
                for each in point.contenders
            ),
        )
        for point in found.points
    )
    after = groups.of_record(msgspec.structs.replace(found, points=points), "b.json")
    for name, row in before[0].rows.items():
        told = facts.changes(row, after[0].rows[name])
        assert bool(told) == (row.facts[0].text in words), name
        assert not any(each.worse for each in told)


def test_proofs_of_other_sizes_or_dtypes_are_of_other_workloads() -> None:
    found = results.load_any(RESULTS / "h200-prove-gemma-2b-fused.json")
    (group,) = groups.of_record(found, "a.json")
    for change in ({"intermediate_size": 24576}, {"dtype": "float32"}):
        swapped = tuple(
            msgspec.structs.replace(each, spec=msgspec.structs.replace(each.spec, **change)) for each in found.swapped
        )
        (other,) = groups.of_record(msgspec.structs.replace(found, swapped=swapped), "b.json")
        assert other.key != group.key
    (larger,) = groups.of_record(msgspec.structs.replace(found, parameters=2 * found.parameters), "c.json")
    assert larger.key != group.key
