"""A profile that was edited by hand: what its other parts tell is refused, with file and place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.command import refused
from support.paths import RESULTS

from mlpfusion.storage import contradictions, results

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GOOD = RESULTS / "h200-gemma-2b-2.json"


def row(found: dict[str, Any]) -> dict[str, Any]:
    """The row that is edited."""
    one: dict[str, Any] = found["rows"][1]
    return one


def graph(found: dict[str, Any]) -> dict[str, Any]:
    """A clock of that row."""
    one: dict[str, Any] = row(found)["clocks"]["graph_us"]
    return one


CHANGES: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda found: row(found).update(tokens=row(found)["tokens"] // 2), "rows[1].tokens"),
    (lambda found: row(found).update(tokens=row(found)["tokens"] * 2), "rows[1].tokens"),
    (lambda found: row(found)["traffic"]["steps"][0].update(flops=1), "rows[1].traffic.steps[0].flops"),
    (lambda found: row(found)["traffic"]["steps"][0].update(time_us=1.0), "rows[1].traffic.steps[0].time_us"),
    (lambda found: row(found)["traffic"].update(derived_bytes=1), "rows[1].traffic.derived_bytes"),
    (lambda found: row(found)["traffic"]["steps"][0].update(read_bytes=1), "rows[1].traffic.derived_bytes"),
    (lambda found: row(found)["traffic"].update(round_trips=0), "rows[1].traffic.round_trips"),
    (lambda found: row(found)["traffic"].update(intermediate_bytes=1), "rows[1].traffic.intermediate_bytes"),
    (lambda found: row(found)["launches"].update(kernels=0), "rows[1].launches.kernels"),
    (lambda found: row(found)["bound"].update(by="cpu"), "rows[1].bound.by"),
    (lambda found: row(found)["bound"].update(margin=9.0), "rows[1].bound.margin"),
    (lambda found: graph(found).update(p20=graph(found)["median"]), "rows[1].clocks.graph_us.p20"),
    (lambda found: graph(found).update(p80=graph(found)["median"]), "rows[1].clocks.graph_us.p80"),
    *[
        (lambda found, name=name, by=by: graph(found)["ratio_to_eager"].update(
            {name: by * graph(found)["ratio_to_eager"][name]}), f"rows[1].clocks.graph_us.ratio_to_eager.{name}")
        for name, by in (("low", 0.9), ("high", 1.1))
    ],
    (lambda found: found["ceilings"].update(dtype="float32"), "ceilings.dtype"),
    (lambda found: found["processes"][2].update(kernels={"nobody": ["a"]}), "processes[2].kernels"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "place"), CHANGES)
def test_what_its_other_parts_contradict_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Callable[[dict[str, Any]], Any], place: str
) -> None:
    document = json.loads(GOOD.read_text(encoding="utf-8"))
    change(document)
    path = tmp_path / "edited.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    for args in (["compare", str(RESULTS / "h200-gemma-2b-1.json"), str(path)], ["table", str(path)]):
        line = refused(capsys, *args)
        assert repr(str(path)) in line
        assert f"at `$.{place}`" in line


def test_no_recorded_profile_contradicts_itself() -> None:
    found = [path for path in sorted(RESULTS.glob("**/*.json")) if results.kind_of(path) == "profile"]
    assert len(found) > 10
    assert [contradictions.first(results.load(path), str(path)) for path in found] == [None] * len(found)
