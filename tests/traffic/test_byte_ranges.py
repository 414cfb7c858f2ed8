"""Sets of bytes, against sets of Python integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.records.traffic import Run
from mlpfusion.traffic import byte_ranges

SETS = st.sets(st.integers(0, 60), max_size=40)


def pieces(numbers):
    return byte_ranges.of_addresses(sorted(numbers), 1)


def numbers(found):
    return {byte for start, stop in found.tolist() for byte in range(start, stop)}


@given(SETS, SETS)
def test_operations_are_those_of_sets(a, b):
    assert numbers(byte_ranges.union(pieces(a), pieces(b))) == a | b
    assert numbers(byte_ranges.overlap(pieces(a), pieces(b))) == a & b
    assert numbers(byte_ranges.minus(pieces(a), pieces(b))) == a - b
    assert byte_ranges.size(pieces(a)) == len(a)


@given(SETS)
def test_runs_hold_the_same_bytes_as_the_set(a):
    found = byte_ranges.intervals(byte_ranges.compress(pieces(a)))
    assert numbers(found) == a
    assert np.array_equal(found, pieces(a))


@given(
    st.integers(0, 9),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=4),
    st.sampled_from([1, 2, 4]),
)
def test_a_strided_tensor_touches_exactly_its_elements(start, dims, itemsize):
    shape, strides = [size for size, _ in dims], [stride * itemsize for _, stride in dims]
    expected = set()
    for index in np.ndindex(*shape):
        first = start + sum(step * stride for step, stride in zip(index, strides, strict=True))
        expected |= set(range(first, first + itemsize))
    assert numbers(byte_ranges.intervals(byte_ranges.of_strided(start, shape, strides, itemsize))) == expected


def test_the_usual_tensors_are_one_run():
    assert byte_ranges.of_strided(0, (4, 6), (12, 2), 2) == (Run(0, 48, 48, 1),)  # contiguous
    assert byte_ranges.of_strided(0, (6, 4), (2, 12), 2) == (Run(0, 48, 48, 1),)  # transposed
    assert byte_ranges.of_strided(6, (2, 2, 3), (24, 12, 2), 2) == (Run(6, 6, 12, 4),)  # one half of a packed tensor
    assert byte_ranges.of_strided(0, (5, 3), (0, 2), 2) == (Run(0, 6, 6, 1),)  # expanded: the row is there once
    assert byte_ranges.of_strided(8, (), (), 2) == (Run(8, 2, 2, 1),)
    assert byte_ranges.of_strided(8, (0, 3), (6, 2), 2) == ()


def test_halves_of_a_packed_tensor_do_not_overlap_though_they_interleave():
    gate = byte_ranges.intervals(byte_ranges.of_strided(0, (8192, 3072), (12288, 2), 2))
    up = byte_ranges.intervals(byte_ranges.of_strided(6144, (8192, 3072), (12288, 2), 2))
    assert byte_ranges.size(byte_ranges.overlap(gate, up)) == 0
    assert byte_ranges.compress(byte_ranges.union(gate, up)) == (Run(0, 8192 * 12288, 8192 * 12288, 1),)


def test_too_many_pieces_are_refused():
    assert byte_ranges.of_strided(0, (2**12, 2**12), (2**14, 4), 2) is None


@pytest.mark.parametrize("order", [[3, 1, 2], [2, 2, 1, 3]])
def test_addresses_come_in_any_order_and_any_number_of_times(order):
    assert byte_ranges.of_addresses(order, 1).tolist() == [[1, 4]]
