"""The first table: a row's word, its kernels, fills and copies, and its clocks."""

from __future__ import annotations

import msgspec
from support.column_cells import data, texts
from support.profiles_made import COMPILE, EAGER, LIGER, TRITON

from mlpfusion.report.profile.columns.speed import BACKEND, of_speed


def test_the_columns_of_a_row_that_was_raced() -> None:
    found = texts((BACKEND, *of_speed("event_us")), COMPILE)
    assert found == {
        "backend": "compile",
        "status": "ok",
        "kernels": "4",
        "mem_ops": "2 / 0",
        "event_us": "228.8 [228.1–229.6]",
        "speedup_vs_eager": "1.060x [1.057–1.064]",
        "graph_us": "–",
        "wall_us": "–",
    }


def test_a_row_without_figures_has_its_reason_for_programs() -> None:
    found = data(of_speed("event_us"), LIGER)
    assert (found.pop("status"), found.pop("reason")) == ("unavailable", "no GPU | and no driver")
    assert set(found.values()) == {None}
    assert texts(of_speed("event_us"), TRITON)["status"] == "emulated, 8 tokens"
    unknown = msgspec.structs.replace(LIGER, reason=None)
    assert data(of_speed("event_us"), unknown)["reason"] == "no reason was recorded"
    assert data(of_speed("event_us"), EAGER)["reason"] is None
