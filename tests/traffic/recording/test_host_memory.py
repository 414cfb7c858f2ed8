"""Work that no launch shows (numpy, other threads, pointers) is a fault; memory of others than PyTorch is followed."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest
import torch
from torch.nn import functional

from mlpfusion.traffic.recording.collect import collect
from mlpfusion.traffic.round_trips import flow

X = torch.randn(8, 16)
W = torch.randn(16, 16)
UNWRITTEN = "that no earlier launch was observed to write"
CHANGED = "a tensor was changed between two launches, by what cannot be watched"


def watch(call, **named):
    call()
    return collect(call, {"x": X, "w": W, **named})


def on_another_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


# ---- what is a fault -------------------------------------------------------------------------------------------------


def by_numpy():
    return torch.from_numpy((X @ W).numpy() * 2) @ W


def by_a_thread():
    made = []
    on_another_thread(lambda: made.append(X * 2))
    return made[0] @ W


def by_a_list():
    return torch.tensor((X @ W).tolist()) @ W


def by_a_pointer():
    a = X @ W
    b = torch.empty_like(a)
    ctypes.memmove(b.data_ptr(), a.data_ptr(), a.nbytes)
    return b @ W


def by_resizing():
    a = X @ W
    a.resize_(64, 64)
    return a + 1


@torch.library.custom_op("unseen_tests::copied_out", mutates_args=())
def copied_out(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = a * b
    return torch.from_numpy(c.numpy() + 0)


def by_a_custom_operator():
    return copied_out(X @ W, X) @ W


class BackwardByNumpy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a * a

    @staticmethod
    def backward(ctx, dy):
        (a,) = ctx.saved_tensors
        return torch.from_numpy(2 * dy.numpy() * a.detach().numpy())


def by_numpy_in_the_backward():
    x = X.clone().requires_grad_()
    return torch.autograd.grad(BackwardByNumpy.apply(x @ W), x, X)


@pytest.mark.parametrize(
    "call",
    [
        by_numpy,
        by_a_thread,
        by_a_list,
        by_a_pointer,
        by_resizing,
        by_a_custom_operator,
        by_numpy_in_the_backward,
    ],
)
def test_reading_what_nothing_seen_wrote_is_a_fault(call):
    (fault,) = watch(call).faults
    assert UNWRITTEN in fault


def into_numpy(a):
    view = a.numpy()
    np.multiply(view, 2, out=view)


def backwards_in_place(a):
    view = a.numpy()
    view[...] = view[::-1].copy()  # the same bytes at other places


@pytest.mark.parametrize(
    "change",
    [into_numpy, backwards_in_place, lambda a: on_another_thread(lambda: a.mul_(2))],
)
@pytest.mark.parametrize("last", [False, True])
def test_a_change_between_two_launches_is_a_fault(change, last):
    def call():
        a = X @ W
        change(a)
        return a if last else a @ W

    assert watch(call).faults == (CHANGED,)


def test_a_change_of_what_is_older_than_the_call_is_a_fault():
    scratch = torch.zeros(8, 16)

    def call():
        a = X @ W
        scratch.numpy()[...] += a.numpy()
        return scratch @ W

    assert CHANGED in watch(call).faults


# ---- what is none ----------------------------------------------------------------------------------------------------


def test_memory_from_before_the_call_may_be_read():
    packed, constant = torch.cat((W, W)), torch.from_numpy(np.ones((8, 16), dtype=np.float32))
    assert watch(lambda: functional.linear(X * constant, packed)).faults == ()


def test_a_number_of_the_host_may_be_read():
    assert watch(lambda: X * torch.tensor(2.0)).faults == ()


@pytest.mark.parametrize("make", [torch.zeros_like, torch.rand_like, lambda a: torch.empty_like(a).normal_()])
def test_what_an_operator_fills_is_written(make):
    assert watch(lambda: make(X) @ W).faults == ()


# ---- one memory, several tensors -------------------------------------------------------------------------------------


def trips(found):
    return [(value.bytes, len(value.read_by)) for value in flow(found).intermediates]


SIZE = 8 * 16 * 4


def test_a_tensor_over_two_others_reads_what_both_wrote():
    memory = np.zeros((2, 8, 16), dtype=np.float32)

    def call():
        first, second = (torch.from_numpy(part) for part in memory)
        torch.mm(X, W, out=first)
        torch.mm(X, W.t(), out=second)
        both = torch.from_numpy(memory)
        return both[0] + both[1]

    found = watch(call)
    assert found.faults == ()
    assert trips(found) == [(SIZE, 1), (SIZE, 1)]


def test_memory_outlives_the_tensor_that_it_was_written_through():
    memory = np.zeros((8, 16), dtype=np.float32)

    def call():
        torch.mm(X, W, out=torch.from_numpy(memory))
        return torch.from_numpy(memory) @ W

    found = watch(call)
    assert found.faults == ()
    assert trips(found) == [(SIZE, 1)]


def test_a_pool_of_one_memory():
    memory = bytearray(2 * SIZE)

    def part(index):
        return torch.frombuffer(memory, dtype=torch.float32, count=8 * 16, offset=index * SIZE).view(8, 16)

    def call():
        torch.mm(X, W, out=part(0))
        torch.mm(X, W.t(), out=part(1))
        return part(0) + part(1)

    found = watch(call)
    assert found.faults == ()
    assert trips(found) == [(SIZE, 1), (SIZE, 1)]


def test_memory_that_was_written_anew_in_between_is_not_what_a_launch_wrote():
    memory = np.zeros((8, 16), dtype=np.float32)

    def call():
        torch.mm(X, W, out=torch.from_numpy(memory))
        memory[...] += 1
        return torch.from_numpy(memory) @ W

    assert UNWRITTEN in watch(call).faults[0]


def test_numpy_that_takes_the_same_memory_again_does_not_pass_for_what_was_there():
    def call():
        y = X
        for _ in range(5):
            y = torch.from_numpy((y @ W).numpy() * 2)
        return y @ W

    assert UNWRITTEN in watch(call).faults[0]


def test_a_tensor_taken_over_by_another_library_is_the_same_memory():
    found = watch(lambda: torch.from_dlpack(X @ W) @ W)
    assert found.faults == ()
    assert trips(found) == [(SIZE, 1)]


def test_a_copied_storage_is_a_copy():
    def call():
        a = X @ W
        return torch.empty(0).set_(a.untyped_storage().clone(), 0, a.shape) @ W

    found = watch(call)
    assert found.faults == ()
    assert trips(found) == [(SIZE, 1), (SIZE, 1)]


def test_a_result_whose_memory_a_graph_took_back_is_no_memory_of_the_next_call():
    kept = []

    def call():
        for old in kept:  # as the next run of a CUDA graph does with what the last one returned
            torch._C._set_throw_on_mutable_data_ptr(old)
        kept.append(X @ W)
        return kept[-1] + 1

    found = watch(call)
    assert found.faults == ()
    assert trips(found) == [(SIZE, 1)]
