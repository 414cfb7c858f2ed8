"""The methods note: from the file, and once where all files say the same."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from support.paths import RESULTS
from support.races_made import emulated, foresight, profile, source

from mlpfusion.records.environment import Process, Readings
from mlpfusion.report.table.document import Options, document
from mlpfusion.stages.tabulate.sources import Source, read


def said(*sources: Source, **options: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for fact in document(sources, Options(**options)).methods:
        found.setdefault(fact.label, []).append(fact.text)
    return found


def test_it_has_card_clocks_driver_versions_rounds_intervals_date_and_digest() -> None:
    made = source(profile({"fused": 0.5}))
    found = said(made)
    assert found["device"][0].startswith("NVIDIA H100 80GB HBM3, sm_90")
    assert "SM clock 1980 MHz before the race; not recorded during the race" in found["clocks seen"]
    assert "driver 570.1" in found["versions"][0]
    assert found["rounds"] == ["60 interleaved rounds in each of 5 processes"]
    assert "L2 cold" in found["event_us"][0]
    assert "[95% interval] of several: geometric mean of the processes' medians, Student's" in found["speedup"][0]
    assert found["file"] == [f"a.json, measured 2026-01-02T03:04:05+00:00, SHA-256 {made.digest}"]


def test_one_process_says_what_its_interval_lacks() -> None:
    found = said(source(profile({"fused": 0.5}, processes=1)))
    assert found["rounds"] == [
        "60 interleaved rounds in one process; how much it differs from another is in no interval"
    ]
    assert "order-statistics interval" in found["speedup"][0]


def test_clocks_of_the_race_are_given_and_what_held_the_card_back() -> None:
    made = profile({"fused": 0.5}, processes=2)
    readings = [
        Process(
            started="2026-01-02T03:04:05+00:00",
            sm_clock_mhz=Readings(n=9, low=low, median=1900, high=1980),
            throttle_reasons=("software power cap", "applications clocks setting"),
            neighbours=0.5,
        )
        for low in (1500, 1700)
    ]
    found = said(source(replace(made, processes=tuple(readings), complete=False)))
    assert found["clocks seen"] == ["SM clock 1500–1980 MHz during the race"]
    assert found["throttled"] == ["the card was held back during the race: software power cap"]
    assert "50%" in found["background load"][0]
    assert "ended early" in found["incomplete"][0]


def test_what_all_files_share_is_said_once_and_what_differs_with_its_file() -> None:
    a, b = profile({"fused": 0.5}, 16), profile({"fused": 0.5}, 256, rounds=30)
    found = said(source(a, "a.json"), source(b, "b.json"))
    assert len(found["device"]) == 1
    assert found["rounds"] == [
        "60 interleaved rounds in each of 5 processes (a.json)",
        "30 interleaved rounds in each of 5 processes (b.json)",
    ]
    assert len(found["file"]) == 2


def test_only_what_is_shown_is_explained() -> None:
    found = said(source(profile({"fused": 0.5})), columns=("peak_bytes",))
    assert not {"event_us", "speedup", "[p20–p80]", "best", "mean"} & set(found)


def test_marks_means_emulation_and_predictions_are_explained_where_they_are() -> None:
    found = said(
        source(profile({"fused": 0.5}, 16, extra=(emulated(),)), "a.json"),
        source(profile({"fused": 0.5}, 64), "b.json"),
        source(foresight(), "c.json"),
    )
    assert {"best", "mean", "emulated", "predicted"} <= set(found)
    assert "not measured, and not ranked" in found["predicted"][0]


def test_recorded_files_of_schema_1_have_all_of_it() -> None:
    for name in ("h200-choose-article", "h200-profile.json", "h200-traffic.json"):
        found = said(*read([str(RESULTS / name)]))
        assert {"device", "clocks seen", "versions", "rounds", "speedup", "file"} <= set(found), name
    found = said(*read([str(RESULTS / "h200-choose-article" / "choice.json")]))
    assert {"device", "driver", "versions", "rounds", "file"} <= set(found)


def test_a_cpu_run_says_that_it_is_one() -> None:
    made = profile({"fused": 0.5})
    device = replace(made.device, kind="cpu", name="a CPU", runtime="cpu", capability=None)
    found = said(source(replace(made, device=device)))
    assert found["device"][0].startswith("CPU run on a CPU")
    assert found["clocks seen"] == ["of a CPU none are read"]
