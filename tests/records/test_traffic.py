"""Bytes of an access, of a step, and what no ledger can hold."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.records.traffic import Access, Ceilings, Intermediate, Launch, Ledger, Run, Step

RUNS = st.builds(Run, st.integers(0, 99), st.integers(0, 99), st.integers(100, 200), st.integers(0, 99))


@given(st.lists(RUNS, max_size=4))
def test_an_access_has_the_bytes_of_all_its_pieces(runs: list[Run]) -> None:
    assert Access(buffer=0, runs=tuple(runs)).bytes == sum(run.length * run.pieces for run in runs)


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_a_step_moves_what_it_reads_and_what_it_writes(read: int, write: int) -> None:
    assert Step(op="mm", source="operator", read_bytes=read, write_bytes=write).bytes == read + write


def test_a_ledger_is_json_both_ways() -> None:
    one = Access(buffer=0, runs=(Run(0, 4, 8, 2),))
    launch = Launch(op="aten::mm", source="operator", reads=(one,), writes=(one,), inside=("op", 1))
    found = Ledger(launches=(launch,), buffers=(), faults=("a fault",))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Ledger) == found


@pytest.mark.parametrize(
    ("kind", "wrong", "named"),
    [
        (Ceilings, {"dtype": "bfloat16", "copies": [], "products": []}, "copies"),
        (Intermediate, {"role": "gate", "bytes": 1, "moved_bytes": 2, "written_by": "a", "read_by": []}, "read_by"),
        (Intermediate, {"role": "gate", "bytes": -1, "moved_bytes": 2, "written_by": "a", "read_by": ["b"]}, "bytes"),
        (Step, {"op": "mm", "source": "a guess", "read_bytes": 1, "write_bytes": 1}, "source"),
        (Step, {"op": "mm", "source": "operator", "read_bytes": -1, "write_bytes": 1}, "read_bytes"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_read(kind: type, wrong: dict[str, object], named: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=named):
        msgspec.convert(wrong, kind)
