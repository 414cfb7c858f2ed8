"""What no cell can hold: reasons, too few samples, nothing measured."""

from __future__ import annotations

from msgspec.structs import replace
from support.races_made import emulated, failed, foresight, profile, race, source

from mlpfusion.records.profile import Memory
from mlpfusion.report.table.remarks import remarks
from mlpfusion.stages.tabulate.races import of_sources


def said(*races: object, shown: tuple[str, ...] = ("event_us",), baseline: str | None = "eager") -> list[str]:
    return list(remarks(races, shown, baseline))  # type: ignore[arg-type]


def test_each_reason_is_said_once_with_where_it_holds() -> None:
    made = [race({"fused": 0.5}, n, extra=(failed(), emulated())) for n in (16, 64)]
    assert said(*made) == [
        "hub: failed: wrong: 41 times eager's error",
        "triton: emulated: 8 tokens",
    ]
    assert said(*made, race({}, 256))[0].endswith("(16 tokens; 64 tokens)")


def test_a_reason_of_many_lines_is_one_line() -> None:
    assert said(race({}, extra=(failed(reason="a\n\nb"),))) == ["hub: failed: a b"]


def test_too_few_samples_are_counted_where_their_clock_is_shown() -> None:
    made = race({"fused": 0.5}, rounds=1, processes=1)
    assert said(made)[0] == "eager: event_us: 1 sample; no figure without a spread, from 20 samples on"
    assert said(made, shown=("peak_bytes",)) == []


def test_an_absent_figure_has_its_reason_where_its_column_is_shown() -> None:
    made = race({}, rows={"eager": {"memory": Memory(reasons={"peak_bytes": "no\ncounter"})}})
    assert said(made, shown=("peak_bytes",)) == ["eager: peak_bytes: not measured: no counter"]
    assert said(made, shown=("event_us",)) == []


def test_where_nothing_was_measured_or_the_baseline_was_not_it_is_said() -> None:
    nothing = replace(profile({}), rows=(failed(), failed("eager")))
    assert "no row was measured" in said(*of_sources([source(nothing)]))
    made = race({"fused": 0.5})
    without = made._replace(entries=made.entries[1:])
    assert said(without) == ["no speedup: eager was not measured"]
    assert said(without, baseline=None) == []


def test_what_could_not_be_predicted_says_why() -> None:
    assert said(*of_sources([source(foresight())])) == ["odd: unavailable: it has no ledger", "no row was measured"]
