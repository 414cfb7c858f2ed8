"""Kernels and values between them, as the nodes of Inductor's scheduler say."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from support.named import named

from mlpfusion.errors import MeasurementError
from mlpfusion.records.traffic import ScheduledGraph
from mlpfusion.traffic.recording import scheduler


def test_a_pytorch_without_the_hook_is_said_to_be_so(monkeypatch, tmp_path):
    monkeypatch.setattr(torch._inductor, "config", SimpleNamespace())
    with pytest.raises(MeasurementError, match="has no hook after fusion"), scheduler.watched(str(tmp_path)):
        pass


def node(kind, reads, writes, *, of="ComputedBuffer", device="cpu", template=False, only_order=()):
    """A node of a scheduler, as far as it is asked."""
    deps = [named("MemoryDep", name=name) for name in reads] + [named("WeakDep", name=name) for name in only_order]
    return named(
        kind,
        node=named(of),
        read_writes=SimpleNamespace(reads=deps),
        get_buffer_names=lambda: set(writes),
        get_read_write_buffer_accesses=lambda include_reads, include_writes: dict(writes),
        is_template=lambda: template,
        get_device=lambda: SimpleNamespace(type=device),
    )


def account(*nodes):
    made = SimpleNamespace(nodes=list(nodes), mutation_real_name={})
    return scheduler.account(SimpleNamespace(cache_key="abc", scheduler=made))


def product(reads, writes):
    return node("ExternKernelSchedulerNode", reads, writes, of="ExternKernelOut")


def test_loops_in_a_row_are_one_kernel_in_cpp_and_several_in_triton():
    def nodes(device):
        loops = [node("SchedulerNode", [a], {b: 8}, device=device) for a, b in (("x", "a"), ("a", "b"), ("b", "c"))]
        return [*loops, product(["c"], {"y": 8})]

    assert account(*nodes("cpu")) == ScheduledGraph(code="abc", kernels=2, intermediates=(8,))
    assert account(*nodes("cuda")) == ScheduledGraph(code="abc", kernels=4, intermediates=(8, 8, 8))


def test_a_template_is_a_kernel_of_its_own():
    template = node("FusedSchedulerNode", ["x"], {"a": 8}, template=True)
    assert account(template, node("SchedulerNode", ["a"], {"b": 8})).kernels == 2


def test_parts_that_one_kernel_writes_of_one_whole_are_one_value():
    both = node("FusedSchedulerNode", ["x"], {"dg": 8, "du": 8}, device="cuda")
    whole = node("NopKernelSchedulerNode", ["dg", "du"], {"d": 16})
    assert account(both, whole, product(["d"], {"y": 8})).intermediates == (16,)
    apart = [node("SchedulerNode", ["x"], {name: 8}, device="cuda") for name in ("dg", "du")]
    assert account(*apart, whole, product(["d"], {"y": 8})).intermediates == (8, 8)


def test_an_order_is_no_read():
    late = node("SchedulerNode", ["x"], {"b": 8}, device="cuda", only_order=["a"])
    assert account(product(["x"], {"a": 8}), late).intermediates == ()


def test_what_may_be_no_single_kernel_is_not_counted():
    assert "a ForeachKernelSchedulerNode of" in account(node("ForeachKernelSchedulerNode", ["x"], {"a": 8})).unknown
    fallback = node("ExternKernelSchedulerNode", ["x"], {"a": 8}, of="FallbackKernel")
    assert "of a FallbackKernel" in account(fallback).unknown
    mutates = SimpleNamespace(cache_key="abc", scheduler=SimpleNamespace(nodes=[], mutation_real_name={"a": "b"}))
    assert "in place" in scheduler.account(mutates).unknown
    assert "AttributeError" in scheduler.account(SimpleNamespace(cache_key="abc")).unknown  # another PyTorch
