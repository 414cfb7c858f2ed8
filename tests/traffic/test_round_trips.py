"""Values and round-trips of ledgers that are written by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.records.traffic import Access, Buffer, Launch, Ledger, Run
from mlpfusion.traffic import byte_ranges
from mlpfusion.traffic.round_trips import flow, values


def whole(buffer, size=100, start=0):
    return Access(buffer=buffer, runs=(Run(start, size, size, 1),))


def ledger(*launches, buffers=9):
    made = [
        Launch(op=op, source="operator", reads=tuple(reads), writes=tuple(writes), **more)
        for op, reads, writes, more in ((*launch, {})[:4] for launch in launches)
    ]
    return Ledger(launches=tuple(made), buffers=(Buffer(bytes=100),) * buffers)


def counted(*launches):
    return [(v.bytes, v.moved_bytes, v.written_by, v.read_by) for v in flow(ledger(*launches)).intermediates]


def test_a_value_that_is_written_and_read_back_is_one_round_trip_however_often_it_is_read():
    found = counted(("a", [whole(0)], [whole(1)]), ("b", [whole(1)], [whole(2)]), ("c", [whole(1)], [whole(3)]))
    assert found == [(100, 300, "1 a", ("2 b", "3 c"))]


def test_inputs_and_results_are_none():
    assert counted(("a", [whole(0)], [whole(1)])) == []
    assert counted(("a", [whole(0)], [whole(1)]), ("b", [whole(0)], [whole(2)])) == []


def test_a_kernel_in_place_ends_one_value_and_starts_another():
    found = counted(("make", [], [whole(1)]), ("act_", [whole(1)], [whole(1)]), ("use", [whole(1)], [whole(2)]))
    assert found == [(100, 200, "1 make", ("2 act_",)), (100, 200, "2 act_", ("3 use",))]


def test_what_a_kernel_reads_of_its_own_writing_is_no_round_trip():
    assert counted(("scan", [whole(1)], [whole(1)]), ("end", [whole(0)], [whole(2)])) == []


def test_an_overwritten_value_is_gone():
    found = counted(("first", [], [whole(1)]), ("second", [], [whole(1)]), ("use", [whole(1)], [whole(2)]))
    assert found == [(100, 200, "2 second", ("3 use",))]


def test_a_partly_overwritten_value_lives_on_in_its_rest():
    found = counted(
        ("all", [], [whole(1)]),
        ("half", [], [whole(1, 50)]),
        ("first half", [whole(1, 50)], [whole(2)]),
        ("second half", [whole(1, 50, 50)], [whole(3)]),
    )
    assert found == [(100, 150, "1 all", ("4 second half",)), (50, 100, "2 half", ("3 first half",))]


def test_a_packed_tensor_is_one_value_read_in_two_ranges():
    gate = Access(buffer=1, runs=(Run(0, 10, 20, 5),))
    up = Access(buffer=1, runs=(Run(10, 10, 20, 5),))
    assert counted(("gemm", [whole(0)], [whole(1)]), ("act", [gate, up], [whole(2, 50)])) == [
        (100, 200, "1 gemm", ("2 act",))
    ]
    apart = counted(("gemm", [whole(0)], [whole(1)]), ("copy", [gate], [whole(2, 50)]), ("copy", [up], [whole(3, 50)]))
    assert apart == [(100, 200, "1 gemm", ("2 copy", "3 copy"))]


def test_two_halves_written_apart_are_two_values():
    gate = Access(buffer=1, runs=(Run(0, 10, 20, 5),))
    up = Access(buffer=1, runs=(Run(10, 10, 20, 5),))
    found = counted(("gate", [], [gate]), ("up", [], [up]), ("act", [whole(1)], [whole(2)]))
    assert found == [(50, 100, "1 gate", ("3 act",)), (50, 100, "2 up", ("3 act",))]


def test_a_value_that_waits_for_the_backward_is_marked():
    back = {"backward": True}
    found = flow(
        ledger(
            ("make", [whole(0)], [whole(1)]),
            ("use", [whole(1)], [whole(2)]),
            ("back", [whole(1)], [whole(3)], back),
            ("last", [whole(3)], [whole(4)], back),
        )
    ).intermediates
    assert [(value.written_by, value.saved) for value in found] == [("1 make", True), ("3 back", False)]


def test_roles_follow_from_writer_and_reader():
    roles = ("gate_gemm", "up_gemm", "activation", "mul", "down_gemm")
    found = flow(
        ledger(
            ("aten::mm", [], [whole(1)]),
            ("aten::mm", [], [whole(2)]),
            ("aten::gelu", [whole(1)], [whole(3)]),
            ("aten::mul", [whole(2), whole(3)], [whole(4)]),
            ("aten::mm", [whole(4)], [whole(5)]),
        ),
        roles,
    )
    assert [value.role for value in found.intermediates] == ["gate", "up", "act", "product"]
    assert found.intermediates[0].read_by == ("3 activation",)
    assert found.steps[3].values_read == (1, 2)
    assert found.steps[3].values_written == (3,)


@pytest.mark.parametrize(("reader", "role"), [("act_mul", "gate_up"), ("down_gemm", "product")])
def test_what_a_packed_gemm_writes_is_told_by_who_reads_it(reader, role):
    found = flow(ledger(("g", [], [whole(1)]), ("r", [whole(1)], [whole(2)])), ("gate_up_gemm", reader))
    assert [value.role for value in found.intermediates] == [role]


def test_a_launch_that_is_not_trusted_makes_no_value():
    lost = {"unknown": "no code"}
    found = flow(ledger(("a", [], [whole(1)], lost), ("b", [whole(1)], [whole(2)])))
    assert found.intermediates == ()


RANGES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.integers(1, 12)), max_size=2)


@given(st.lists(st.tuples(RANGES, RANGES), max_size=8))
def test_every_byte_is_read_from_its_last_writer(calls):
    launches = [
        ("k", [whole(b, n, start) for b, start, n in reads], [whole(b, n, start) for b, start, n in writes])
        for reads, writes in calls
    ]
    writer: dict[tuple[int, int], int] = {}
    expected = set()
    for index, (reads, writes) in enumerate(calls):
        for buffer, start, size in reads:
            expected |= {
                (writer[buffer, at], buffer, at, index) for at in range(start, start + size) if (buffer, at) in writer
            }
        for buffer, start, size in writes:
            writer.update({(buffer, at): index for at in range(start, start + size)})
    found = values(ledger(*launches))
    total = sum(size for value in found for _, size in value.readers)
    assert total == len(expected)
    assert {(value.writer, reader) for value in found for reader, _ in value.readers} == {
        (first, last) for first, _, _, last in expected
    }


def test_bytes_that_two_arguments_share_are_read_once():
    (step,) = flow(ledger(("a", [whole(0), whole(0, 50)], [whole(1)]))).steps
    assert step.read_bytes == 100


def test_derived_bytes_count_every_read_and_write_once():
    found = flow(ledger(("a", [whole(0), whole(1, 40)], [whole(2)]), ("b", [whole(2)], [whole(3, 10)])))
    assert [(step.read_bytes, step.write_bytes) for step in found.steps] == [(140, 100), (100, 10)]
    assert found.derived_bytes == 350
    assert found.intermediate_bytes == 200
    assert byte_ranges.size(byte_ranges.intervals(whole(1, 40).runs)) == 40
