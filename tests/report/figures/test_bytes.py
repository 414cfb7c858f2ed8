"""Bytes of a call: minimum, derived and measured, as they are recorded."""

from __future__ import annotations

import msgspec
from support.figures_made import figure, of
from support.profiles_made import COMPILE, EAGER, TRITON, profile

from mlpfusion.records.profile import Traffic


def test_the_sizes_are_the_recorded_ones() -> None:
    measured = msgspec.structs.replace(
        COMPILE, traffic=Traffic(minimum_bytes=39, derived_bytes=354, measured_bytes=361)
    )
    made = of("bytes", profile(EAGER, measured))
    assert [row[2:5] for row in made.rows] == [(39_000_000, 455_000_000, None), (39, 354, 361)]
    assert [each["kind"] for each in made.spec["data"]["values"]] == ["minimum", "derived"] * 2 + ["measured"]


def test_kinds_that_nobody_has_are_not_in_the_legend() -> None:
    def legend(made) -> list[str]:
        names: list[str] = made.spec["layer"][-1]["encoding"]["shape"]["scale"]["domain"]
        return names

    assert legend(figure("bytes", "h200-profile.json")) == ["minimum", "derived"]
    assert legend(figure("bytes", "h200-traffic.json")) == ["minimum", "derived", "measured"]


def test_bytes_of_an_emulated_row_are_shown_as_such() -> None:
    emulated = msgspec.structs.replace(TRITON, traffic=EAGER.traffic)
    made = of("bytes", profile(EAGER, emulated))
    assert [each["row"] for each in made.spec["data"]["values"][2:]] == ["triton (emulated)"] * 2


def test_what_has_no_bytes_is_named() -> None:
    (note,) = figure("bytes", "h200-profile.json").notes
    assert note.startswith("quack: a kernel missing from the ledger")
