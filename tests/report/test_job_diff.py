"""report.job_diff: devices first, the ranks that differ most first, few lines for many ranks."""

from __future__ import annotations

import csv
import io
import json

from mlpfusion.records.job import JobDifference, JobTimeChange, RankChange
from mlpfusion.report.job_diff import render


def difference(ranks: int) -> JobDifference:
    return JobDifference(
        a="before",
        b="after",
        a_devices=("NVIDIA H200",),
        b_devices=("NVIDIA A100", "CPU"),
        a_ranks=ranks,
        b_ranks=ranks,
        times=(JobTimeChange(name="call", a_us=100.0, b_us=50.0),),
        ranks=tuple(RankChange(rank=rank, a_us=100.0, b_us=100.0 + rank) for rank in range(ranks)),
        reasons=("r" * 900,),
    )


def test_two_jobs_of_200_ranks_are_few_lines() -> None:
    lines = render(difference(200)).splitlines()
    assert lines[:3] == ["devices  a NVIDIA H200, b NVIDIA A100, CPU", "a  before, 200 traces", "b  after, 200 traces"]
    assert len(lines) < 80
    assert max(map(len, lines)) <= 200
    (call,) = (line.split() for line in lines if line.startswith("call"))
    assert call == ["call", "100", "50.0", "-50.0", "2.00x"]
    table = lines[lines.index("Ranks, µs of a call, those that differ most first") + 3 :]
    assert [line.split()[0] for line in table[:40]] == [str(199 - at) for at in range(40)]
    assert table[40].startswith("160 more that differ less; --all shows them")
    assert len(render(difference(200), everything=True).splitlines()) > 200


def test_formats() -> None:
    found = difference(3)
    assert json.loads(render(found, "json"))["kind"] == "difference"
    rows = list(csv.DictReader(io.StringIO(render(found, "csv"))))
    assert [(row["what"], row["rank"]) for row in rows] == [("call", ""), ("call", "0"), ("call", "1"), ("call", "2")]
    assert "| rank " in render(found, "github")
    assert render(JobDifference(a="", b="", a_devices=(), b_devices=(), a_ranks=0, b_ranks=0)).startswith("devices")
