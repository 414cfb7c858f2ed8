"""What each format shows of a row: tokens of emulated ones, spreads as numbers, a legend of the columns named."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import msgspec
import pytest
from support.profiles_made import COMPILE, EAGER, TRITON, launches, profile

from mlpfusion.records.clocks import Clocks
from mlpfusion.records.profile import Memory, Row, Setup, Traffic
from mlpfusion.records.traffic import Step
from mlpfusion.report.profile.columns.every import all_columns, is_shown
from mlpfusion.report.profile.table import COLUMNS, render

CLOCKS = ("event_us", "wall_us", "graph_us", "kernel_us", "speedup_vs_eager")

STEPS = (Step(op="aten::mm", source="operator", role="gate_gemm", read_bytes=10, write_bytes=20),)


def emulated(tokens: int | None, **changes: Any) -> Row:
    """A row with as many figures as an emulated one may have."""
    fields = {
        "tokens": tokens,
        "accuracy": EAGER.accuracy,
        "launches": launches(4),
        "memory": Memory(peak_bytes=1_000_000, saved_for_backward_bytes=2_000_000),
        "setup": Setup(bind_s=1.0, first_call_s=2.0),
        "traffic": Traffic(minimum_bytes=1000, derived_bytes=3000, round_trips=1, intermediate_bytes=500, steps=STEPS),
        **changes,
    }
    return msgspec.structs.replace(TRITON, **fields)


def table_of(text: str, backend: str) -> dict[str, str]:
    """The cells of one row by the heads of its table."""
    rows = [[cell.strip() for cell in re.split(r" *\| *| {2,}", line.strip("| "))] for line in text.splitlines()]
    heads = next(row for row in rows if row[0] == "backend")
    return dict(zip(heads, next(row for row in rows if row[0] == backend), strict=True))


# ---- emulated rows ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [key for key in COLUMNS if key != "backend"])
@pytest.mark.parametrize("fmt", ["text", "github"])
@pytest.mark.parametrize("tokens", [1, 16, 37])
def test_every_cell_of_an_emulated_row_says_how_many_tokens_ran(fmt: str, key: str, tokens: int) -> None:
    cells = table_of(render(profile(EAGER, emulated(tokens)), fmt, [key]), "triton")
    (shown,) = [text for head, text in cells.items() if head != "backend"]
    assert shown == "–" or f"{tokens} tokens" in shown
    if key in (*CLOCKS, "status", "peak_bytes", "error", "kernels", "setup_s", "hbm_bytes"):
        assert shown != "–"
    timed = table_of(render(profile(EAGER, emulated(tokens)), fmt, [key]), "eager")
    assert not any("tokens" in text for text in timed.values())


@pytest.mark.parametrize("fmt", ["csv", "json"])
@pytest.mark.parametrize("columns", [None, ["status"], ["peak_bytes", "error"]])
def test_numbers_of_an_emulated_row_stand_beside_its_tokens(fmt: str, columns: list[str] | None) -> None:
    if fmt == "json" and columns is None:
        pytest.skip("the result file itself")
    text = render(profile(EAGER, emulated(16)), fmt, columns)
    rows = list(csv.DictReader(io.StringIO(text))) if fmt == "csv" else json.loads(text)["rows"]
    assert [str(row["tokens"]) for row in rows] == ["8192", "8192"]
    assert [str(row["row_tokens"]) for row in rows] == ["8192", "16"]
    assert [str(row["emulated"]) for row in rows] == ["False", "True"]
    if columns is None or "status" in columns:
        assert [row["status"] for row in rows] == ["ok", "emulated, 16 tokens"]


@pytest.mark.parametrize("fmt", ["text", "github"])
@pytest.mark.parametrize("full", [False, True])
def test_the_default_page_says_it_in_the_row(fmt: str, full: bool) -> None:
    text = render(profile(EAGER, emulated(16)), fmt, full=full)
    assert "emulated, 16 tokens" in " ".join(table_of(text, "triton").values())
    assert ("triton (16 tokens): 1 round-trip" in text) == full


def test_a_profile_of_emulated_rows_alone_says_it_too() -> None:
    text = render(profile(msgspec.structs.replace(TRITON, tokens=5)))
    assert table_of(text, "triton")["status"] == "emulated, 5 tokens"


def test_an_emulated_row_that_is_wrong_says_what_it_ran() -> None:
    wrong = emulated(16, status="failed", reason="numerically wrong")
    assert (
        table_of(render(profile(EAGER, wrong), "text", ["status", "error"]), "triton")["status"] == "failed, 16 tokens"
    )


def test_tokens_that_a_file_lacks_are_said_to_be_unknown() -> None:
    assert "emulated, an unknown number of tokens" in render(profile(EAGER, emulated(None)), "text", ["event_us"])


# ---- numbers for programs --------------------------------------------------------------------------------------------


def test_every_median_of_a_csv_has_its_spread_beside_it() -> None:
    traffic = msgspec.structs.replace(EAGER.traffic, limit_us=119.0)
    row = msgspec.structs.replace(EAGER, traffic=traffic)
    (found,) = csv.DictReader(io.StringIO(render(profile(row), "csv")))
    for name in ("event_us", "kernel_us", "host_us", "gigabytes_per_second", "of_roofline"):
        low, middle, high = (float(found[key]) for key in (f"{name}_p20", name, f"{name}_p80"))
        assert low < middle < high, name
    assert float(found["of_roofline"]) == 119.0 / 238.0
    assert float(found["roofline_us"]) == 119.0
    compiled = list(csv.DictReader(io.StringIO(render(profile(row, COMPILE), "csv"))))[1]
    for name in ("event_us_speedup", "speedup_vs_eager"):
        low, middle, high = (float(compiled[f"{name}{end}"]) for end in ("_low", "", "_high"))
        assert low < middle < high, name


def test_cells_of_a_csv_are_numbers_or_words_never_both() -> None:
    words = {"status", "reason", "bound", "launch_apis", "created", "speedup_vs_eager_clock", "gigabytes_per_second_of"}
    words |= {"device", "device_kind", "torch", "triton", "activation", "dtype", "mode", "backend", "bias", "emulated"}
    for row in csv.DictReader(io.StringIO(render(profile(EAGER, COMPILE, emulated(16)), "csv"))):
        for name, text in row.items():
            if text and name not in words and not name.endswith("_l2"):
                float(text)


def test_columns_are_of_fields_that_records_have() -> None:
    fields = {name for record in (Clocks, Traffic, Memory) for name in record.__struct_fields__}
    shown = {name for column in all_columns() for name in column.of}
    assert shown <= fields
    assert {"event_us", "kernel_us", "derived_bytes", "round_trips", "limit_us", "peak_bytes"} <= shown
    assert is_shown("kernel_us", ["bandwidth"])
    assert not is_shown("kernel_us", ["event_us", "error"])
