"""The first words of a page."""

from __future__ import annotations

from msgspec.structs import replace
from support import profiles_made as made
from support.paths import RESULTS
from support.reported import source

from mlpfusion.report.page import cases, summary
from mlpfusion.report.page.sources import gather


def test_it_says_what_was_measured_where_with_what_and_how_often() -> None:
    found = [source(made.profile())]
    (said,) = summary.measured(cases.cases(found), found)
    assert said == (
        "One gated MLP, 768 × 3072 gelu_tanh bfloat16, in inference at 8192 tokens: 5 backends on NVIDIA H100 80GB "
        "HBM3 (torch 2.11.0, triton 3.6.0, driver 570.1), 58 to 60 interleaved rounds in 1 process, 2026-01-02."
    )


def test_files_without_a_case_are_named_with_their_kind() -> None:
    found = gather([str(RESULTS / "h200-groups.json")])
    assert list(summary.measured((), found)) == ["Other files of this page: h200-groups.json (groups)."]


def test_each_failure_is_said_once_with_its_reason() -> None:
    found = [source(made.profile(), "a"), source(made.profile(), "b")]
    assert list(summary.failed(cases.cases(found))) == [
        "liger is unavailable: no GPU | and no driver",
        "hub failed: numerically wrong: 41 times eager's error",
    ]


def test_costs_are_the_winners_beside_eager_s() -> None:
    fast = replace(made.timed("fast", 50.0), memory=made.Memory(peak_bytes=50_000_000))
    (case,) = cases.cases([source(made.profile(made.timed("eager", 100.0), fast))])
    (said,) = summary.costs([cases.standing(case, "event_us")])
    assert said == (
        "fast at 8192 tokens: 50.0 MB at its peak above the weights, eager 151 MB; 0.250 s to bind and first call, "
        "compilation included. Source: result.json, where each was read once: there is no interval."
    )


def test_nobody_s_costs_are_not_said() -> None:
    (case,) = cases.cases([source(made.profile(made.HUB))])
    assert list(summary.costs([cases.standing(case, "event_us")])) == []
