"""A collective's arguments as PyTorch writes them: what they mean, and none of them where they are damaged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.trace.analysis.communication.messages import bus_factor, operation_of, parameters_of
from mlpfusion.trace.read.columns import Message


def message(**args: Any) -> Message:
    given = {"collective": "allreduce", "dtype": "BFloat16", "sent": 100, "received": 400, "group_size": 4,
             "group": "dp", "sequence": 7, **args}  # fmt: skip
    return Message(*(json.dumps(given[name]).encode() if given[name] is not None else b"" for name in Message._fields))


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("allreduce", "all_reduce"), ("allreduce_coalesced", "all_reduce"), ("_allgather_base", "all_gather"),
        ("allgather_into_tensor_coalesced", "all_gather"), ("_reduce_scatter_base", "reduce_scatter"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"), ("broadcast", "broadcast"), ("_reduce_oop", "reduce"),
        ("all_to_all", "all_to_all"), ("all_to_allv", "all_to_all"), ("gather", "gather"), ("send", "send"),
        ("c10d::allreduce_", "all_reduce"), ("nccl:all_reduce", "all_reduce"), ("wait", None), ("init", None),
    ],
)  # fmt: skip
def test_names_of_pytorch(name: str, operation: str | None) -> None:
    assert operation_of(name) == operation


@pytest.mark.parametrize(
    ("name", "size"),
    [("allreduce", 200), ("_allgather_base", 800), ("_reduce_scatter_base", 200), ("all_to_all", 200), ("recv", 800)],
)
def test_the_size_is_that_of_all_ranks_parts(name: str, size: int) -> None:
    found = parameters_of(message(collective=name))
    assert found is not None
    assert (found.size, found.dtype, found.group, found.group_size, found.sequence) == (size, "bfloat16", "dp", 4, 7)


@pytest.mark.parametrize(("dtype", "width"), [("Float", 4), ("Half", 2), ("Long", 8), ("Byte", 1), ("torch.int32", 4)])
def test_types_have_their_width(dtype: str, width: int) -> None:
    found = parameters_of(message(dtype=dtype))
    assert found is not None
    assert found.size == 100 * width


def test_what_is_not_told_is_none() -> None:
    found = parameters_of(message(dtype=None, sent=None, group_size=0, group=None, sequence=None))
    assert found is not None
    assert found[1:] == (None, None, None, None, None)
    assert parameters_of(message(dtype="Complex")).size is None  # type: ignore[union-attr]
    assert parameters_of(message(collective=None)) is None


@pytest.mark.parametrize("elements", [-1, 2**300, "many", 1.5, [1]])
def test_a_number_that_cannot_be_is_not_told(elements: Any) -> None:
    found = parameters_of(message(sent=elements))
    assert found is not None
    assert found.size is None


@given(st.lists(st.binary(max_size=12), min_size=7, max_size=7))
def test_damaged_arguments_are_no_error(parts: list[bytes]) -> None:
    parameters_of(Message(*parts))
    parameters_of(Message(b'"allreduce"', *parts[1:]))


@pytest.mark.parametrize("ranks", [2, 3, 8, 64])
def test_the_factors_are_those_of_nccl_tests(ranks: int) -> None:
    assert bus_factor("all_reduce", ranks) == pytest.approx(2 * (ranks - 1) / ranks)
    for operation in ("all_gather", "reduce_scatter", "all_to_all"):
        assert bus_factor(operation, ranks) == pytest.approx((ranks - 1) / ranks)
    for operation in ("broadcast", "reduce", "send"):
        assert bus_factor(operation, ranks) == 1
    assert bus_factor("barrier", ranks) is None


@pytest.mark.parametrize("ranks", [None, 0, 1])
def test_a_group_of_one_or_none_has_no_bus(ranks: int | None) -> None:
    assert bus_factor("all_reduce", ranks) is None
