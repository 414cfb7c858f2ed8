"""The data flow of a row as text: kernels, and what goes through memory and comes back."""

from __future__ import annotations

import msgspec
from support.liger_traffic import KERNELS, LIGER, WORK, WORKS
from support.paths import ROOT

from mlpfusion.records.profile import Row, Traffic
from mlpfusion.report.profile.data_flow import pictures
from mlpfusion.traffic import row as row_traffic


def picture(traffic):
    (found,) = pictures([Row(backend="liger", status="ok", traffic=traffic)], github=False)
    return [" ".join(line.split()) for line in found.splitlines()]


def test_the_picture_shows_what_goes_through_memory_and_comes_back():
    lines = picture(row_traffic.traffic(WORK, LIGER, KERNELS, WORKS))
    assert lines[0] == "liger: 3 round-trips, 302 of 354 MB"
    assert lines[3:] == [
        "1 gate_gemm 17.3 MB ──► gate 50.3 MB",
        "2 up_gemm 17.3 MB ──► up 50.3 MB",
        "3 act_mul gate ──►, up ──► ──► product 50.3 MB",
        "4 down_gemm product ──►, 4.72 MB 12.6 MB",
    ]


def test_the_page_shows_this_picture():
    (found,) = pictures(
        [Row(backend="liger", status="ok", traffic=row_traffic.traffic(WORK, LIGER, KERNELS, WORKS))], github=False
    )
    page = ROOT.joinpath("docs", "traffic.md").read_text(encoding="utf-8")
    assert f"<!-- flow -->\n```\n{found}\n```\n<!-- /flow -->" in page


def test_there_is_no_picture_of_what_is_unknown():
    assert list(pictures([Row(backend="a", status="ok", traffic=Traffic(minimum_bytes=1))], github=True)) == []


def test_the_picture_says_what_waits_for_the_backward():
    back = [msgspec.structs.replace(launch, backward=index == 3) for index, launch in enumerate(LIGER.launches)]
    lines = picture(row_traffic.traffic(WORK, msgspec.structs.replace(LIGER, launches=tuple(back)), KERNELS, WORKS))
    assert lines[0].endswith("(* is read again in the backward)")
    assert "product* ──►" in lines[-1]
