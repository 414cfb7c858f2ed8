"""What PyTorch's operators read, write and compute where their schemas say more, less or nothing."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from mlpfusion.traffic.recording import operands
from mlpfusion.traffic.recording.collect import collect
from mlpfusion.traffic.round_trips import flow

SIZE = 4


def launches(call, **named):
    call()
    found = collect(call, named)
    assert found.faults == ()
    return found.launches


def moved(launch):
    """Elements of the table or the target, or of a product's operands, that a launch reads and writes."""
    return tuple(sum(access.bytes for access in some) // SIZE for some in (launch.reads, launch.writes))


X = torch.randn(6, 8)


@pytest.mark.parametrize(
    "make",
    [
        torch.zeros_like,
        torch.ones_like,
        torch.rand_like,
        torch.randn_like,
        lambda x: torch.full_like(x, 2.0),
        lambda x: torch.randint_like(x, 5),
        lambda x: x.new_zeros(6, 8),
        lambda x: x.new_ones(6, 8),
        lambda x: x.new_full((6, 8), 3.0),
        lambda x: torch.ops.aten.fill(x, 1.0),
        lambda x: torch.ops.aten.bernoulli.p(x, 0.5),
    ],
)
def test_a_tensor_that_only_says_what_a_fill_is_like_is_not_read(make):
    (launch,) = launches(lambda: make(X), x=X)
    assert moved(launch) == (0, 48)


def test_chances_are_read():
    chances = torch.rand(6, 8)
    (launch,) = launches(lambda: torch.bernoulli(chances), x=chances)
    assert moved(launch) == (48, 48)


def test_what_a_fill_makes_is_a_value_that_can_be_read_back():
    x = torch.randn(6, 8)
    call = lambda: x + torch.zeros_like(x)  # noqa: E731
    call()
    (value,) = flow(collect(call, {"x": x})).intermediates
    assert (value.written_by, value.read_by) == ("1 aten::zeros_like", ("2 aten::add",))


A, B, V = torch.randn(6, 5), torch.randn(5, 8), torch.randn(5)
PRODUCTS = {
    "addmm": (lambda out, beta: torch.addmm(out, A, B, beta=beta), 2 * 6 * 5 * 8, 30 + 40),
    "addmm_": (lambda out, beta: out.addmm_(A, B, beta=beta), 2 * 6 * 5 * 8, 30 + 40),
    "addmm.out": (
        lambda out, beta: torch.addmm(torch.zeros(6, 8), A, B, beta=beta, out=out), 2 * 6 * 5 * 8, 30 + 40
    ),
    "baddbmm": (lambda out, beta: torch.baddbmm(out[None], A[None], B[None], beta=beta), 2 * 6 * 5 * 8, 30 + 40),
    "baddbmm_": (lambda out, beta: out[None].baddbmm_(A[None], B[None], beta=beta), 2 * 6 * 5 * 8, 30 + 40),
    "addbmm_": (lambda out, beta: out.addbmm_(A[None], B[None], beta=beta), 2 * 6 * 5 * 8, 30 + 40),
    "addmv_": (lambda out, beta: out[:, 0].addmv_(A, V, beta=beta), 2 * 6 * 5, 30 + 5),
    "addr_": (lambda out, beta: out.addr_(A[:, 0], B[0], beta=beta), 2 * 6 * 8, 6 + 8),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("beta", [0, 0.0, 1])
def test_a_product_has_its_operations_and_reads_what_it_adds_to_only_if_it_adds(name, beta):
    call, operations, read = PRODUCTS[name]
    out = torch.zeros(6, 8)
    launch = launches(lambda: call(out, beta), a=A, b=B, v=V, out=out)[-1]
    assert launch.flops == operations
    added = 6 if name == "addmv_" else 48
    assert moved(launch)[0] == read + (added if beta else 0)


@pytest.mark.parametrize(
    ("call", "operations"),
    [
        (lambda: torch.mv(A, V), 2 * 30),
        (lambda: torch.dot(V, V), 2 * 5),
        (lambda: torch.mm(A, B, out=torch.empty(6, 8)), 2 * 6 * 5 * 8),
        (lambda: torch.bmm(A[None], B[None], out=torch.empty(1, 6, 8)), 2 * 6 * 5 * 8),
        (lambda: torch._addmm_activation(torch.zeros(8), A, B), 2 * 6 * 5 * 8),
    ],
)
def test_other_products_have_their_operations(call, operations):
    assert launches(call, a=A, b=B, v=V)[-1].flops == operations


@pytest.mark.parametrize(
    ("call", "copies"),
    [
        (lambda wide: A @ wide[:, ::2], True),
        (lambda wide: torch.addmm(torch.zeros(8), A, wide[:, ::2]), True),
        (lambda wide: torch.bmm(A[None], wide[None, :, ::2]), True),
        (lambda wide: torch.mm(wide[:, ::2].t(), A.t()), True),
        (lambda wide: A @ wide[:1].expand(5, 16), True),
        (lambda wide: A @ wide[:, :8], False),
        (lambda wide: wide[:, :8].t() @ A.t(), False),
        (lambda wide: A @ wide[:, :1], False),
    ],
)
def test_a_product_whose_library_is_handed_a_copy_of_an_operand_is_not_trusted(call, copies):
    wide = torch.randn(5, 16)
    unknown = launches(lambda: call(wide), a=A, wide=wide)[-1].unknown
    assert (unknown == "its library gets a copy of an operand whose strides it does not accept") == copies


TABLE = torch.randn(100, 8)
ROWS = torch.tensor([5, 7, 5])  # two rows: one is read twice


@pytest.mark.parametrize(
    "call",
    [
        lambda: TABLE.index_select(0, ROWS),
        lambda: TABLE[ROWS],
        lambda: functional.embedding(ROWS, TABLE),
        lambda: TABLE.gather(0, ROWS[:, None].expand(3, 8)),
        lambda: torch.index_select(TABLE, 0, ROWS, out=torch.empty(3, 8)),
        lambda: TABLE.take(ROWS[:, None] * 8 + torch.arange(8)),
        lambda: TABLE.t()[:, ROWS],
    ],
)
def test_of_a_table_the_rows_that_are_named_are_read(call):
    launch = launches(call, table=TABLE, rows=ROWS)[-1]
    table = [access.bytes for access in launch.reads if access.buffer == 0]
    assert table == [2 * 8 * SIZE]
    assert moved(launch)[1] == 24


SOURCE = torch.randn(3, 8)
SOME = torch.tensor([1, 4, 2])


@pytest.mark.parametrize(
    ("call", "reads"),
    [
        (lambda to: to.index_copy_(0, SOME, SOURCE), False),
        (lambda to: to.index_put_((SOME,), SOURCE), False),
        (lambda to: to.__setitem__(SOME, SOURCE), False),
        (lambda to: to.index_fill_(0, SOME, 3.0), False),
        (lambda to: to.index_fill_(0, SOME, torch.tensor(3.0)), False),
        (lambda to: to.scatter_(0, SOME[:, None].expand(3, 8), SOURCE), False),
        (lambda to: to.scatter_(0, SOME[:, None].expand(3, 8), 2.0), False),
        (lambda to: to.put_(SOME[:, None] * 8 + torch.arange(8), SOURCE), False),
        (lambda to: to.index_put_((SOME,), SOURCE, accumulate=True), True),
        (lambda to: to.index_add_(0, SOME, SOURCE, alpha=0.5), True),
        (lambda to: to.scatter_add_(0, SOME[:, None].expand(3, 8), SOURCE), True),
        (lambda to: to.scatter_(0, SOME[:, None].expand(3, 8), SOURCE, reduce="multiply"), True),
    ],
)
def test_an_index_says_what_is_written(call, reads):
    to = torch.randn(6, 8)
    launch = launches(lambda: call(to), to=to, source=SOURCE, some=SOME)[-1]
    assert [access.bytes for access in launch.writes] == [24 * SIZE]
    assert [access.bytes for access in launch.reads if access.buffer == 0] == ([24 * SIZE] if reads else [])


def test_rows_written_by_four_launches_are_no_round_trips():
    def call():
        y, source = torch.empty(8, 8), X[:2] * 2
        for first in range(0, 8, 2):
            y.index_copy_(0, torch.tensor([first, first + 1]), source)
        return y

    call()
    found = collect(call, {"x": X})
    assert [value.written_by for value in flow(found).intermediates] == ["1 aten::mul"]


def test_an_index_that_cannot_be_looked_up_makes_a_launch_unknown(monkeypatch):
    monkeypatch.setattr(operands, "_MOST_ELEMENTS", 799)
    (launch,) = launches(lambda: TABLE[ROWS], table=TABLE, rows=ROWS)
    assert launch.unknown == "which elements an index names cannot be looked up here"


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.booleans())
def test_any_rows_of_any_layout(rows, transposed):
    index = torch.tensor(rows)
    table = X.t().contiguous().t() if transposed else X
    (launch,) = launches(lambda: table.index_select(0, index), table=table, index=index)
    assert [access.bytes for access in launch.reads if access.buffer == 0] == [len(set(rows)) * 8 * SIZE]
