"""The ledger of a call: exact counts and bytes for every kind of backend that runs here, and what it does not trust."""

from __future__ import annotations

import pytest
import torch
from support.ledgers_made import D, H, M, case, elements, linears, of_backend, of_call, ops, trips, watch
from torch.nn import functional

from mlpfusion.traffic.recording.collect import collect
from mlpfusion.traffic.recording.ledger import Ledgers
from mlpfusion.traffic.recording.operators import Operators
from mlpfusion.traffic.round_trips import flow

GEMMS = 3 * D * H + 3 * M * D  # the weights once, x twice, y once: what three matrix products move beside [M, H]


# ---- the backends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "count", "moved", "every"),
    [
        ("eager", 4, 8 * M * H, GEMMS + 8 * M * H),
        ("triton", 3, 6 * M * H, GEMMS + 6 * M * H),
        ("packed", 2, 6 * M * H, GEMMS - M * D + 6 * M * H),  # the same bytes as triton in fewer round-trips
    ],
)
def test_round_trips_and_bytes_of_the_backends(name, count, moved, every):
    found = of_backend(name)
    assert found.faults == ()
    assert all(launch.unknown is None for launch in found.launches)
    assert trips(found) == (count, moved)
    assert elements(found) == every
    assert [buffer.name for buffer in found.buffers][-1] == "result"


def test_the_flow_of_eager_by_name():
    values = flow(of_backend("eager")).intermediates
    assert [(value.written_by, value.read_by) for value in values] == [
        ("1 aten::mm", ("2 aten::gelu",)),
        ("2 aten::gelu", ("4 aten::mul",)),
        ("3 aten::mm", ("4 aten::mul",)),
        ("4 aten::mul", ("5 aten::mm",)),
    ]
    assert all(value.bytes == 4 * M * H and value.moved_bytes == 8 * M * H for value in values)


@pytest.mark.parametrize("name", ["eager", "triton"])
def test_biases_are_read_by_the_products_that_add_them(name):
    assert elements(of_backend(name, bias=True)) - elements(of_backend(name)) == 2 * H + D


def test_training_is_one_window_and_says_what_waits_for_the_backward():
    found = flow(of_backend("eager", "training"))
    # g, u, act(g) and the product wait; dproduct, dact, du, dg and the two parts of dx do not
    assert [value.saved for value in found.intermediates].count(True) == 4
    assert len(found.intermediates) == 10
    triton = flow(of_backend("triton", "training"))
    assert [value.saved for value in triton.intermediates].count(True) == 3
    assert len(triton.intermediates) == 8
    gate, up = triton.intermediates[:2]
    assert gate.moved_bytes == up.moved_bytes == 3 * 4 * M * H  # one write, two reads


def test_matrix_products_count_their_operations():
    found = flow(of_backend("triton"))
    assert [step.flops for step in found.steps] == [2 * M * D * H, 2 * M * D * H, None, 2 * M * D * H]


# ---- other ways to write the same function ---------------------------------------------------------------------------


def test_ops_in_place_end_one_value_and_start_another():
    made = case()
    gate, up, down = linears(made.mlp)

    def call(x):
        g = functional.linear(x, gate)
        torch.ops.aten.gelu_(g, approximate="tanh")
        return functional.linear(g.mul_(functional.linear(x, up)), down)

    found = of_call(call, made)
    assert ops(found) == ["mm", "gelu_", "mm", "mul_", "mm"]
    assert trips(found) == (4, 8 * M * H)


@pytest.mark.parametrize(("copied", "extra"), [(False, 0), (True, 2)])
def test_hidden_copies_of_a_packed_tensor_add_two(copied, extra):
    made = case()
    gate, up, down = linears(made.mlp)
    both = torch.cat((gate, up)).detach()

    def call(x):
        g, u = functional.linear(x, both).chunk(2, dim=-1)
        if copied:
            g, u = g.contiguous(), u.contiguous()
        return functional.linear(functional.gelu(g, approximate="tanh") * u, down)

    found = of_call(call, made)
    assert trips(found) == (3 + extra, (8 + 4 * copied) * M * H)
    assert ops(found).count("clone") == extra


def test_a_product_read_by_two_kernels_is_one_round_trip_with_two_reads():
    made = case()
    gate, up, down = linears(made.mlp)

    def call(x):
        h = functional.gelu(functional.linear(x, gate), approximate="tanh") * functional.linear(x, up)
        return functional.linear(h, down) + h.sum()

    values = flow(of_call(call, made)).intermediates
    product = next(value for value in values if value.written_by == "4 aten::mul")
    assert product.read_by == ("5 aten::mm", "6 aten::sum")
    assert product.moved_bytes == 3 * product.bytes == 3 * 4 * M * H


def test_views_and_fresh_memory_move_nothing():
    x = torch.randn(6, 8)

    def call():
        y = torch.ops.aten._unsafe_view(x, (8, 6))  # shares its storage, which its schema does not say
        z = torch.empty_like(y)
        return x.t(), y.view(2, 24)[:, ::2], z.expand(3, *z.shape), x.detach(), x.unfold(0, 2, 1)

    assert watch(call, x=x).launches == ()


def test_an_out_argument_is_written_and_not_read():
    x, out = torch.randn(4, 4), torch.empty(4, 4)
    (launch,) = watch(lambda: torch.mul(x, 2, out=out), x=x, out=out).launches
    assert [access.bytes for access in launch.reads] == [64]
    assert [access.buffer for access in launch.reads] != [access.buffer for access in launch.writes]


def test_a_copy_and_a_fill_do_not_read_what_they_overwrite():
    x, y = torch.randn(4, 4), torch.empty(4, 4)

    def call():
        y.zero_()
        y.copy_(x)
        return y.add(1)

    found = watch(call, x=x, y=y)
    assert ops(found) == ["zero_", "copy_", "add"]
    assert [sum(access.bytes for access in launch.reads) for launch in found.launches] == [0, 64, 64]
    assert [value.written_by for value in flow(found).intermediates] == ["2 aten::copy_"]


def test_an_expanded_operand_is_read_once_and_a_square_too():
    row, x = torch.randn(1, 8), torch.randn(4, 8)
    (square,) = watch(lambda: x * x, x=x).launches
    assert sum(access.bytes for access in square.reads) == 4 * 32
    (add,) = watch(lambda: x + row.expand(4, 8), x=x, row=row).launches
    assert sum(access.bytes for access in add.reads) == 4 * (32 + 8)


def test_an_empty_batch_launches_nothing():
    x, w = torch.randn(0, D), torch.randn(D, D)
    assert watch(lambda: functional.gelu(x @ w), x=x, w=w).launches == ()


def test_a_composite_operator_is_what_it_is_made_of_in_inference_mode_too():
    x, w = torch.randn(M, D), torch.randn(H, D)

    def call():
        with torch.inference_mode():
            return functional.linear(x, w)

    assert ops(watch(call, x=x, w=w)) == ["mm"]


# ---- addresses -------------------------------------------------------------------------------------------------------


def test_memory_that_the_allocator_hands_out_again_is_no_round_trip():
    x = torch.randn(512, 512)  # large enough for the system to hand it out anew each time
    addresses = set()

    def call():
        addresses.clear()
        for _ in range(50):
            y = x * 2
            addresses.add(y.data_ptr())
            del y
        return x + 1

    found = watch(call, x=x)
    assert flow(found).intermediates == ()
    assert len(found.buffers) == 1 + 50 + 1
    if len(addresses) == 50:
        pytest.skip("the allocator handed out no address again, which is what this is about")


def test_two_storages_over_one_memory_are_one_buffer():
    x = torch.randn(4, 8)

    def call():
        y = x * 2
        alias = torch.from_numpy(y.numpy())[1:]
        assert alias.untyped_storage()._cdata != y.untyped_storage()._cdata
        return alias + 1

    values = flow(watch(call, x=x)).intermediates
    assert [(value.written_by, value.bytes, value.moved_bytes) for value in values] == [("1 aten::mul", 128, 128 + 96)]


def test_a_tensor_without_plain_memory_is_not_trusted():
    x = torch.eye(4).to_sparse()
    launches = watch(lambda: x * 2, x=torch.ones(1)).launches
    assert any(launch.unknown is not None for launch in launches)


def test_work_on_the_host_is_no_launch_of_a_gpu():
    ledgers = Ledgers({})
    ledgers._kind = "cuda"
    with Operators(ledgers):
        torch.ones(3) + torch.ones(3)
    assert ledgers.finished().launches == ()


# ---- custom operators ------------------------------------------------------------------------------------------------


@torch.library.custom_op("ledger_tests::scale_", mutates_args=("x",))
def scale_(x: torch.Tensor, factor: float) -> None:
    x.mul_(factor)


@torch.library.custom_op("ledger_tests::says_it_reads", mutates_args=())
def says_it_reads(x: torch.Tensor) -> torch.Tensor:
    x.numpy()[...] += 1  # past every version counter
    return torch.zeros(3)


opaque = torch.library.Library("ledger_opaque", "DEF")
opaque.define("twice(Tensor x) -> Tensor")
opaque.define("clear(Tensor x) -> Tensor")
opaque.define("quiet(Tensor x) -> Tensor")


@torch.library.impl(opaque, "twice", "CPU")
def _twice(x):
    return x * 2


@torch.library.impl(opaque, "clear", "CPU")
def _clear(x):
    x.zero_()  # its schema says that x is only read
    return torch.ones(2)


@torch.library.impl(opaque, "quiet", "CPU")
def _quiet(x):
    x.numpy()[...] = 0
    return torch.ones(2)


def test_the_ledger_leaves_values_as_they_are():
    made = case("training")
    eager = made.mlp
    step = lambda: torch.autograd.grad(eager(made.x), (made.x, *eager.parameters()), made.dy)  # noqa: E731
    want = step()
    got = []
    collect(lambda: got.append(step()), {})
    assert all(torch.equal(a, b) for a, b in zip(got[-1], want, strict=True))


def test_a_result_that_nothing_seen_wrote_is_a_fault():
    x = torch.randn(4)
    assert watch(lambda: torch.from_numpy(x.numpy() * 2), x=x).faults == ("no observed launch wrote the result",)
    assert watch(lambda: (x.view(2, 2), x * 2), x=x).faults == ()  # of an input, and of a launch


def test_a_call_that_changes_from_call_to_call_is_not_trusted():
    x, turns = torch.ones(4), []

    def call():
        turns.append(1)
        return [x + 1 for _ in turns]

    assert "two calls in a row differ" in collect(call, {"x": x}).faults[0]
