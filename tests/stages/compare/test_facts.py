"""Facts of a row, and which of two rows' differ for the worse."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from support.profiles_made import EAGER, kernel, launches

from mlpfusion.records.profile import Accuracy, LaunchConfig, Memory, Row, Traffic
from mlpfusion.stages.compare import facts
from mlpfusion.stages.compare.facts import KERNELS, LAUNCHED
from mlpfusion.stages.compare.subjects import Subject


def subject(row: Row) -> Subject:
    return Subject(row.backend, facts=facts.of_row(row), tokens=row.tokens)


def changed(**changes: Any) -> dict[str, tuple[str, str, bool]]:
    """What differs between eager's row and a changed one."""
    found = facts.changes(subject(EAGER), subject(msgspec.structs.replace(EAGER, **changes)))
    return {each.name: (each.baseline, each.candidate, each.worse) for each in found}


def accuracy(ratio: float | None) -> Accuracy:
    error = None if ratio is None else 0.01 * ratio
    return Accuracy(
        max_error=error, rms_error=error, eager_max_error=0.01, eager_rms_error=0.01, rows=1, elements=65536
    )


def test_the_same_row_differs_in_nothing() -> None:
    assert changed() == {}


CONFIG = LaunchConfig(grid=(24576, 1, 1), block=(128, 1, 1), registers=31)


def launched(*configs: LaunchConfig | None) -> dict[str, Any]:
    kernels = zip(EAGER.kernels, configs, strict=False)
    return {"kernels": tuple(msgspec.structs.replace(each, launch=config) for each, config in kernels)}


def test_two_launches_of_one_name_differ() -> None:
    before = msgspec.structs.replace(EAGER, **launched(None, CONFIG))
    other = msgspec.structs.replace(CONFIG, block=(512, 1, 1))
    after = msgspec.structs.replace(EAGER, **launched(None, other))
    (found,) = facts.changes(subject(before), subject(after))
    assert (found.name, found.worse) == (LAUNCHED, False)
    assert found.baseline.endswith("24576 blocks of 128 threads, 31 registers")
    assert found.candidate.endswith("24576 blocks of 512 threads, 31 registers")
    assert facts.changes(subject(before), subject(before)) == ()


def test_launches_are_not_told_where_names_differ_or_one_side_does_not_know() -> None:
    before = msgspec.structs.replace(EAGER, **launched(CONFIG, CONFIG))
    fewer = msgspec.structs.replace(EAGER, **launched(CONFIG))
    assert [each.name for each in facts.changes(subject(before), subject(fewer))] == [KERNELS]
    unknown = msgspec.structs.replace(EAGER, **launched(None, None))
    assert facts.changes(subject(before), subject(unknown)) == ()


def test_a_fill_is_the_same_wherever_the_profiler_saw_its_memory() -> None:
    before, after = (
        msgspec.structs.replace(EAGER, kernels=(kernel(f"Memset ({place})", "memset", 1.0), *EAGER.kernels))
        for place in ("Device", "Unknown")
    )
    assert facts.changes(subject(before), subject(after)) == ()


WORSE = [
    ("status", {"status": "failed", "reason": "it crashed"}),
    ("status", {"status": "unavailable"}),
    ("kernel launches", {"launches": launches(6)}),
    ("memcpys", {"launches": msgspec.structs.replace(launches(5), memcpys=1)}),
    ("memsets", {"launches": msgspec.structs.replace(launches(5), memsets=3)}),
    ("synchronisations", {"launches": msgspec.structs.replace(launches(5), syncs=1)}),
    (
        "launch calls of the host",
        {"launches": msgspec.structs.replace(launches(5), runtime_launches={"cuLaunchKernel": 9})},
    ),
    ("HBM bytes", {"traffic": Traffic(minimum_bytes=1, derived_bytes=455_000_001)}),
    ("peak memory", {"memory": Memory(peak_bytes=151_000_001)}),
    ("error", {"accuracy": accuracy(2.5)}),
    ("error", {"accuracy": accuracy(None)}),
]


@pytest.mark.parametrize(("name", "change"), WORSE, ids=[name for name, _ in WORSE])
def test_what_is_worse(name: str, change: dict[str, Any]) -> None:
    assert changed(**change)[name][2]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("kernel launches", {"launches": launches(4)}),
        ("HBM bytes", {"traffic": Traffic(minimum_bytes=1, derived_bytes=300_000_000)}),
        ("peak memory", {"memory": Memory(peak_bytes=1)}),
        ("error", {"accuracy": accuracy(1.9)}),
        (KERNELS, {"kernels": (kernel("other", "act_mul", 1.0),)}),
    ],
)
def test_what_only_differs(name: str, change: dict[str, Any]) -> None:
    assert not changed(**change)[name][2]


@pytest.mark.parametrize("change", [{"traffic": None}, {"memory": None}, {"launches": None}, {"accuracy": None}])
def test_what_one_side_does_not_know_is_no_change(change: dict[str, Any]) -> None:
    assert changed(**change) == {}


def test_of_rows_of_other_tokens_only_the_status_is_compared() -> None:
    assert set(changed(tokens=8, launches=launches(9), status="failed")) == {"status"}


def test_kernels_are_compared_by_name_and_count() -> None:
    again = (*EAGER.kernels, EAGER.kernels[0], EAGER.kernels[0])
    before, after, worse = changed(kernels=again)[KERNELS]
    assert (before, after, worse) == ("none", "nvjet_tst_128x256 ×2", False)
    assert changed(kernels=EAGER.kernels[::-1])[KERNELS][1] == "the same in another order"


@pytest.mark.parametrize("name", ["a<b|c>", "</script>", "\u202ex", "k<" + "int," * 3000 + ">", "\\%_#&", "a\nb", '"`'])
def test_names_of_any_kind_stay_short_and_on_one_line(name: str) -> None:
    text = changed(kernels=(kernel(name, "act_mul", 1.0),))[KERNELS][1]
    assert len(text) <= 170
    assert "\n" not in text


def test_bytes_that_differ_below_what_is_shown_are_shown_whole() -> None:
    assert changed(memory=Memory(peak_bytes=151_000_001))["peak memory"][:2] == ("151000000", "151000001")


@pytest.mark.parametrize(
    ("before", "after", "worse"), [(1.0, 1.9, False), (1.0, 3.0, True), (3.0, 50.0, True), (3.0, None, True),
                                   (None, None, False), (50.0, 3.0, False), (None, 3.0, False), (3.0, 1.0, False)]
)  # fmt: skip
def test_an_error_beyond_its_limit_is_worse_the_larger_it_is(
    before: float | None, after: float | None, worse: bool
) -> None:
    a, b = (subject(msgspec.structs.replace(EAGER, accuracy=accuracy(each))) for each in (before, after))
    assert [each.worse for each in facts.changes(a, b) if each.name == "error"] == ([worse] if before != after else [])


def test_long_names_that_differ_are_shown_where_they_do() -> None:
    names = ["kernel_" + "x" * 300 + f"_{number}_" + "y" * 300 for number in (24, 645)]
    a, b = (subject(msgspec.structs.replace(EAGER, kernels=(kernel(name, None, 1.0),))) for name in names)
    (found,) = [each for each in facts.changes(a, b) if each.name == KERNELS]
    assert "_24_" in found.baseline
    assert "_645_" in found.candidate
    assert max(len(found.baseline), len(found.candidate)) <= 100
