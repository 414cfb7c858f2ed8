"""Damaged result files, choice files and folders of `choose`: every verb answers well or refuses in one line."""

from __future__ import annotations

import functools
import json
import operator
from typing import TYPE_CHECKING, Any

import pytest
from support import mutants, rings

from mlpfusion.cli.main import main
from mlpfusion.errors import UsageError
from mlpfusion.storage import results

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    ("place", "value"),
    [(("device", "l2_bytes"), 10**59), (("device", "memory_bytes"), -1), (("rows", 0, "clocks"), None)],
)
def test_a_profile_with_one_damaged_value(tmp_path: Path, place: tuple[str | int, ...], value: object) -> None:
    whole = mutants.RESULTS / "h200-choose-article" / "inference-1.json"
    changed = _with(json.loads(whole.read_text()), place, value)
    path = tmp_path / "r.json"
    path.write_text(json.dumps(changed))
    mutants.read_profile(path, whole, [row["backend"] for row in changed["rows"]])


@pytest.mark.parametrize(("place", "value", "taken"), [(("holds", "versions"), {"": ""}, 1), (("points",), [], 0)])
def test_a_choice_with_one_damaged_value(
    tmp_path: Path, place: tuple[str | int, ...], value: object, taken: int
) -> None:
    path = tmp_path / "choice.json"
    whole = json.loads((mutants.RESULTS / "h200-choose-article" / "choice.json").read_text())
    path.write_text(json.dumps(_with(whole, place, value)))
    assert mutants.read_choice(path) == taken


def _with(document: Any, place: tuple[str | int, ...], value: object) -> Any:
    inside = document
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    return document


RECORDED = list(mutants.profiles())


def _kind(place: int) -> tuple[int, int]:
    """The schema of a recorded profile, and in how many processes it was raced."""
    document = RECORDED[place][1]
    return document["schema"], len(document.get("processes", ()))


@pytest.mark.parametrize("place", rings.first_of_each(range(len(RECORDED)), _kind))
def test_every_recorded_profile_is_read(tmp_path: Path, place: int) -> None:
    path = tmp_path / "whole.json"
    document = RECORDED[place][1]
    path.write_text(json.dumps(document))
    assert mutants.read_profile(path, path, [row["backend"] for row in document["rows"] if row["kernels"]]) == 1


def test_every_recorded_choice_is_read() -> None:
    found = list(mutants.RESULTS.glob("*/choice.json"))
    assert found
    for choice in found:
        assert mutants.read_choice(choice) == 1


@pytest.mark.parametrize("part", rings.only_first(range(4)))
def test_a_damaged_profile(tmp_path: Path, part: int) -> None:
    count = rings.examples(25)
    assert mutants.attack_profiles(tmp_path, count, part) >= count // 12  # of five files all may be refused


def test_a_damaged_file_that_is_compared(tmp_path: Path) -> None:
    assert mutants.attack_compared(tmp_path, rings.examples(60), 1) > 3


def test_a_profile_in_several_processes_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    name, document = next(mutants.of_one_process())
    path.write_text(json.dumps(mutants.in_processes(document, 3)))
    found = results.load(path)
    assert (name, len(found.processes)) == ("h200-article-training.json", 3)
    assert mutants.read_profile(path, path, [row["backend"] for row in document["rows"]]) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda clock: clock.update(n=clock["n"] - 1), "times - at `$.rows[0].clocks.event_us`"),
        (lambda clock: clock.update(median=clock["median"] * 1.01), "where that of its rounds is"),
        (lambda clock: clock.update(p20=1e-3), "p20 0.001 where its rounds are from "),
        (lambda clock: clock.update(p80=1e9), "p80 1000000000.0 where its rounds are from "),
        (lambda clock: clock.update(dropped=1, rounds=[[*each, None] for each in clock["rounds"]]), "leave out 3"),
        (lambda clock: clock["rounds"][1].__setitem__(4, "NaN"), "`$.rows[0].clocks.event_us.rounds[1][4]`"),
        (lambda clock: clock["rounds"][2].__setitem__(0, -1), "`$.rows[0].clocks.event_us.rounds[2][0]`"),
        (lambda clock: clock.update(rounds=clock["rounds"][0]), "`$.rows[0].clocks.event_us.rounds[0]`"),
        (lambda clock: clock.update(rounds=3), "`$.rows[0].clocks.event_us.rounds`"),
        (
            lambda clock: clock.update(rounds=[functools.reduce(operator.iadd, clock["rounds"], [])]),
            "1 processes where 3 raced - at `$.rows[0].clocks.event_us.rounds`",
        ),
    ],
)
def test_a_clock_that_its_rounds_contradict_is_refused_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], Any], says: str
) -> None:
    document = mutants.in_processes(next(mutants.of_one_process())[1], 3)
    change(document["rows"][0]["clocks"]["event_us"])
    path = tmp_path / "result.json"
    path.write_text(json.dumps(document))
    assert main(["table", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
    assert repr(str(path)) in line


def test_a_damaged_file_of_another_kind(tmp_path: Path) -> None:
    assert mutants.attack_others(tmp_path, 60, 1) > 10


def test_a_damaged_choice(tmp_path: Path) -> None:
    assert mutants.attack_choices(tmp_path, rings.examples(60), 1) > 3


def test_a_damaged_folder_of_choose(tmp_path: Path) -> None:
    assert mutants.attack_folders(tmp_path, rings.examples(15), 1) > 0


def first(document: dict[str, Any]) -> dict[str, Any]:
    """The first row that was timed."""
    return next(row for row in document["rows"] if row["clocks"] and row["clocks"]["event_us"])


CLOCKS = ["wall_us", "event_us", "kernel_us", "graph_us"]
CHANGES: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    *[
        (lambda found, c=clock, f=field, v=value: first(found)["clocks"][c].update({f: v}), f".clocks.{clock}")
        for clock in CLOCKS
        for field in ("median", "p20", "p80")
        for value in (0, -1, -1e-9, 1e300)
    ],
    *[(lambda found, c=clock: first(found)["clocks"][c].update(n=0), f".clocks.{clock}.n") for clock in CLOCKS],
    (lambda found: first(found)["clocks"]["event_us"].update(p20=9e9), "p20 9000000000.0 is above median"),
    (lambda found: first(found)["clocks"]["event_us"].update(p80=1e-3), "is above p80 0.001"),
    (lambda found: first(found)["clocks"]["event_us"]["ratio_to_eager"].update(low=9e9), "low 9000000000.0 is above"),
    (lambda found: first(found)["clocks"]["event_us"]["ratio_to_eager"].update(median=0), ".ratio_to_eager.median"),
    (lambda found: first(found)["traffic"]["intermediates"][0].update(read_by=[]), ".intermediates[0].read_by"),
    (lambda found: first(found)["kernels"][0].update(time_us=-1), ".kernels[0].time_us"),
    (lambda found: first(found)["launches"].update(kernels=-1), ".launches.kernels"),
    (lambda found: first(found)["accuracy"].update(elements=0), ".accuracy.elements"),
    (lambda found: first(found)["bound"].update(margin=0), ".bound.margin"),
    (lambda found: first(found)["memory"].update(peak_bytes=10**400), ""),
    (lambda found: found["rows"].append(first(found)), "there are two rows "),
    (lambda found: found["ceilings"].update(copies=[]), ".ceilings.copies"),
    (lambda found: found["ceilings"].update(products=[]), ".ceilings.products"),
    (lambda found: found["ceilings"]["copies"].reverse(), "not in the order of their sizes"),
    (lambda found: found["ceilings"]["copies"][0].update(bytes_per_second=0), ".bytes_per_second"),
    (lambda found: found["workload"].update(batch=2**20, seq=2**20), "batch x seq must be an integer from 1"),
]


@pytest.mark.parametrize(("change", "says"), CHANGES)
def test_what_nothing_could_have_measured_is_refused_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], Any], says: str
) -> None:
    document = json.loads((mutants.RESULTS / "h200-choose-article" / "inference-8192.json").read_text())
    path = tmp_path / "result.json"
    path.write_text(json.dumps(document))
    assert results.load(path).rows
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError) as raised:
        results.load(path)
    assert says in str(raised.value)
    assert main(["table", str(path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_kernel_of_no_time_is_no_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A kernel may be shorter than the tick of the device's clock."""
    _, document = next(mutants.profiles())
    for row in document["rows"]:
        for kernel in row["kernels"]:
            kernel.update(time_us=0.0, p20_us=0.0, p80_us=0.0)
        for step in (row["traffic"] or {}).get("steps") or ():
            step["time_us"] = 0.0
    path = tmp_path / "result.json"
    path.write_text(json.dumps(document))
    for fmt in mutants.FORMATS:
        assert main(["table", str(path), "--format", fmt]) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda found: found["points"].append(found["points"][0]), "there are two points 'inference"),
        (lambda found: found["points"][0].update(winner="nobody"), "'nobody' is none of its contenders"),
        (lambda found: found["points"][0].update(tied=["nobody"]), "'nobody' is none of its contenders"),
        (lambda found: found["points"][0].update(tokens=0), ".points[0].tokens"),
        (lambda found: found["points"][0]["contenders"].append(found["points"][0]["contenders"][0]), "two contenders"),
    ],
)
def test_a_choice_that_contradicts_itself_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], says: str
) -> None:
    document = json.loads((mutants.RESULTS / "h200-choose-article" / "choice.json").read_text())
    change(document)
    path = tmp_path / "choice.json"
    path.write_text(json.dumps(document))
    with pytest.raises(UsageError) as raised:
        results.load_choice(path)
    assert says in str(raised.value)
