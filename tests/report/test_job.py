"""report.job: few lines for many ranks, each figure with its rank, and no line that is too long."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.records.job import Job, Late, Rank, Refused
from mlpfusion.records.trace import Share
from mlpfusion.report.job import render
from mlpfusion.trace.job import merge
from mlpfusion.trace.job.conclusion import conclusions


def rank(number: int | None, us: float = 1000.0, source: str = "", **options: Any) -> Rank:
    times = tuple(Share(name=name, us=part) for name, part in (("call", us), ("compute", us / 2), ("idle", us / 2)))
    return Rank(source=source or f"t{number}.json", rank=number, by="trace", times=times, calls=3, **options)


def job(ranks: list[Rank], **options: Any) -> Job:
    made = Job(ranks=tuple(ranks), spreads=tuple(merge._spreads(merge._alike(ranks))), **options)
    return Job(**{name: getattr(made, name) for name in made.__struct_fields__} | {"summary": tuple(conclusions(made))})


def table(text: str, title: str) -> list[str]:
    lines = text.splitlines()
    begin = lines.index(title) + 3
    return lines[begin : next((at for at in range(begin, len(lines)) if not lines[at]), len(lines))]


def test_each_of_few_ranks_has_a_line() -> None:
    text = render(job([rank(number, 1000.0 + number) for number in range(8)], world_size=8, backend="nccl"))
    assert text.startswith("job         8 traces, ranks 0–7 of 8 (as the traces say), nccl\n")
    assert [line.split()[:2] for line in table(text, "Ranks, µs of a call")] == [
        [str(number), str(1000 + number)] for number in range(8)
    ]
    (call,) = (line for line in table(text, "Spread over the ranks, µs of a call") if line.startswith("call"))
    assert call.split()[-6:] == ["1000", "0", "1004", "1007", "7", "0.7%"] or call.split()[-6:-2] == [
        "1000",
        "0",
        "1004",
        "1007",
    ]


@given(st.lists(st.sampled_from([1000.0, 1001.0, 1500.0, 3000.0]), min_size=33, max_size=200))
def test_of_many_ranks_those_that_differ_have_a_line(calls: list[float]) -> None:
    found = job([rank(number, call) for number, call in enumerate(calls)])
    text = render(found)
    assert len(text.splitlines()) < 100
    median = next(one.median for one in found.spreads if one.name == "call")
    odd = [str(number) for number, call in enumerate(calls) if abs(call - median) > 0.05 * median]
    rows = table(text, "Ranks, µs of a call")
    shown = [line.split()[0] for line in rows if line.endswith(".json")]
    assert set(shown) <= set(odd)
    assert len(shown) == min(len(odd), 24)
    assert any("more; --all shows them" in line for line in rows) == (len(odd) > 24)
    assert len(table(render(found, everything=True), "Ranks, µs of a call")) == len(calls)


HOSTILE = st.text(min_size=1, max_size=400).map(lambda text: text.replace("\0", ""))


@given(st.lists(HOSTILE, min_size=1, max_size=50), HOSTILE, st.booleans())
def test_no_line_is_too_long(names: list[str], reason: str, everything: bool) -> None:
    ranks = [rank(None, 1000.0 + 50 * at, name, call=name, gpu=name, incomplete=name) for at, name in enumerate(names)]
    refused = tuple(Refused(source=name, rank=None, reason=reason) for name in names)
    late = Late(us=3.0, held_us=2.0, last=1, of=2)
    found = job([*ranks, rank(3, late=late)], damaged=refused, left_out=refused, notes=tuple(names))
    for line in render(found, everything=everything).splitlines():
        assert len(line) <= 200
        assert line.isprintable()


def test_of_many_bad_files_the_first_have_a_line() -> None:
    refused = tuple(Refused(source=f"rank_{n}.json", rank=n, reason="trace is empty") for n in range(30))
    text = render(job([rank(40)], damaged=refused, missing=tuple(range(100, 130))))
    lines = text.splitlines()
    assert sum(line.startswith("damaged") for line in lines) == 9
    assert "damaged     and 22 more files, of ranks 8–29" in lines
    assert "missing     no trace of ranks 100–129" in lines


@pytest.mark.parametrize("fmt", ["text", "github", "csv"])
def test_a_job_without_ranks(fmt: str) -> None:
    assert render(Job(ranks=()), fmt).strip() or fmt == "csv"


def test_csv_has_every_time_of_every_rank() -> None:
    rows = list(csv.DictReader(io.StringIO(render(job([rank(number) for number in range(40)]), "csv"))))
    assert [(row["rank"], row["call_us"], row["compute_us"]) for row in rows] == [
        (str(number), "1000.0", "500.0") for number in range(40)
    ]
