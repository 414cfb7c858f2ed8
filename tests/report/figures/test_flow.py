"""Values through memory: each from its writer to its readers."""

from __future__ import annotations

from support.figures_made import figure
from support.paths import RESULTS

from mlpfusion.storage import results


def test_each_value_goes_from_its_writer_to_its_readers() -> None:
    made = figure("flow", "h200-profile.json")
    eager = results.load(RESULTS / "h200-profile.json").rows[0]
    assert eager.traffic is not None
    assert [row[2] for row in made.rows if row[0] == "eager"] == ["gate", "act", "up", "product"]
    assert [row[5] for row in made.rows if row[0] == "eager"] == [
        each.written_by for each in eager.traffic.intermediates
    ]
    spans = [each for each in made.spec["layer"][-1]["data"]["values"] if each["row"].startswith("eager")]
    assert [(each["first"], each["last"], each["size"]) for each in spans] == [
        (1, 2, "50.3 MB"),
        (2, 4, "50.3 MB"),
        (3, 4, "50.3 MB"),
        (4, 5, "50.3 MB"),
    ]


def test_a_value_that_is_read_twice_has_two_marks() -> None:
    made = figure("flow", "h200-profile.json")
    rows = [each for each in made.spec["data"]["values"] if each["row"] == "compile-cudagraphs · v1"]
    assert [(each["kind"], each["launch"]) for each in rows] == [("written", 1), ("read", 2), ("read", 3)]
