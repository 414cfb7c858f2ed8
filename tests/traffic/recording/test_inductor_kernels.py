"""The ledger of compiled code, checked against a trace of it; and what becomes of it where a source is broken."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch
from support import inductor_caches, rings
from support.ledgers_made import D, H, M, case, elements, ops, trips
from torch._dynamo.utils import counters

from mlpfusion import backend, reference
from mlpfusion.backends.eager import forward_of
from mlpfusion.measure import tracer
from mlpfusion.trace.analysis.kernels import analyse_work
from mlpfusion.trace.read import kineto
from mlpfusion.traffic.alignment import align
from mlpfusion.traffic.recording import collect, inductor_kernels, operators
from mlpfusion.traffic.recording.ledger import Ledgers
from mlpfusion.traffic.round_trips import flow

own_cache = inductor_caches.own_cache  # a fixture
GEMMS = 3 * D * H + 3 * M * D
FUSED = "cpp_fused__unsafe_view_gelu_mul_0"


def bound(name, mode="inference", *, bias=False):
    made = case(mode, bias=bias)
    step = reference.step(backend.load(name).bind(made.mlp), made)
    step()
    return step, collect.names(made)


def traced(step, tmp_path):
    path = tmp_path / "trace.json"
    tracer.record(step, path, calls=3, warmups=1, flush=None)
    return analyse_work(kineto.read(path), device="cpu")[1]


def assert_forward(found):
    assert ops(found) == ["mm", "mm", FUSED, "mm"]
    assert trips(found) == (3, 6 * M * H)
    assert elements(found) == GEMMS + 6 * M * H


@pytest.mark.full  # it compiles twice
def test_code_compiled_now_and_code_from_a_cache_have_the_same_ledger():
    torch.compiler.reset()
    step, named = bound("compile")
    assert_forward(collect.collect(step, named))
    assert counters["inductor"]["fxgraph_cache_miss"] > 0
    hits = counters["inductor"]["fxgraph_cache_hit"]
    torch.compiler.reset()
    step, named = bound("compile")
    assert counters["inductor"]["fxgraph_cache_hit"] > hits
    assert_forward(collect.collect(step, named))


@pytest.mark.full  # it compiles three times
def test_watching_compiles_nothing_and_leaves_the_code_as_it_was():
    step, named = bound("compile", "training")
    graphs, want = counters["stats"]["unique_graphs"], step()
    assert collect.collect(step, named).faults == ()
    assert counters["stats"]["unique_graphs"] == graphs
    assert all(torch.equal(a, b) for a, b in zip(step(), want, strict=True))
    assert not any(
        isinstance(value, inductor_kernels._CppKernel)
        for module in inductor_kernels._wrappers()
        for value in vars(module).values()
    )


@pytest.mark.full  # it compiles both
def test_forward_and_backward_of_compiled_code():
    step, named = bound("compile", "training")
    found = flow(collect.collect(step, named))
    # saved: g, u, product; not: dproduct, dg, du and the two parts of dx
    assert [value.saved for value in found.intermediates].count(True) == 3
    assert len(found.intermediates) == 8
    backward = next(step for step in found.steps if "gelu_backward" in step.op)
    # dproduct, g and u in, dg and du out, one of them over its own input
    assert (backward.read_bytes, backward.write_bytes) == (4 * 3 * M * H, 4 * 2 * M * H)


@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("name", rings.only_first(["eager", "compile"]))
@pytest.mark.parametrize("bias", [False, True])
def test_the_trace_shows_nothing_that_the_ledger_has_not(name, mode, bias, tmp_path):
    step, named = bound(name, mode, bias=bias)
    found = align(collect.collect(step, named), traced(step, tmp_path))
    assert found.missing == ()
    assert all(found.kernels)


# ---- broken on purpose -----------------------------------------------------------------------------------------------


def test_a_mode_that_makes_compiled_code_run_eager_is_found_out(monkeypatch, tmp_path):
    made = case()
    step = reference.step(torch.compile(forward_of(made.mlp)), made)  # not `fullgraph`, under which torch refuses
    step()
    work = traced(step, tmp_path)
    monkeypatch.setattr(operators.Operators, "is_infra_mode", classmethod(lambda cls: False))
    monkeypatch.setattr(operators.Operators, "ignore_compile_internals", classmethod(lambda cls: False))
    eager = collect.collect(step, collect.names(made))
    torch.compiler.reset()
    assert "gelu" in ops(eager)
    found = align(eager, work)
    assert any("was not compiled" in reason for reason in found.missing)
    assert any("aten::gelu" in reason for reason in found.missing)


def test_kernels_that_the_ledger_does_not_see_are_found_out(monkeypatch, tmp_path):
    step, named = bound("compile")
    work = traced(step, tmp_path)
    monkeypatch.setattr(inductor_kernels, "PREFIX", "nowhere.")
    found = align(collect.collect(step, named), work)
    assert any(FUSED in reason for reason in found.missing)


def test_a_kernel_whose_arguments_cannot_be_read_is_not_trusted(monkeypatch, tmp_path):
    step, named = bound("compile")
    work = traced(step, tmp_path)
    monkeypatch.setattr(inductor_kernels, "_cpp_kernels", lambda module: {})
    found = collect.collect(step, named)
    assert [launch.unknown for launch in found.launches if launch.op == FUSED] == [
        "its argument list in Inductor's code cannot be read"
    ]
    assert any("cannot be read" in reason for reason in align(found, work).missing)
    assert trips(found)[0] <= 3  # a lower bound


@pytest.mark.full
def test_compiling_while_the_ledger_is_kept_is_a_fault():
    x = torch.randn(4, 4)
    sizes = iter(range(2, 9))
    call = torch.compile(lambda: torch.relu(x[: next(sizes)]) * 2, dynamic=False)
    call()
    assert any("recompiled" in reason for reason in collect.collect(call, {"x": x}).faults)


def test_a_cpp_kernel_that_is_given_other_arguments_is_not_trusted():
    ledgers = Ledgers({})
    for given in ((), (torch.zeros(2), 3)):
        inductor_kernels._CppKernel(
            ledgers, "cpp_k", lambda *args: None, inductor_kernels.cpp_pointers("const float* in_ptr0, float* out_ptr0")
        )(*given)
    assert [launch.unknown for launch in ledgers.finished().launches] == [
        "its argument list in Inductor's code cannot be read"
    ] * 2


# ---- argument lists --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "roles"),
    [
        ("const float* in_ptr0, float* out_ptr0", [(0, True, False), (1, False, True)]),
        ("bfloat16* in_out_ptr0,\n   const bfloat16* in_ptr1, const int64_t ks0", [(0, True, True), (1, True, False)]),
        ("const at::BFloat16* __restrict__ in_ptr0", [(0, True, False)]),
        ("", []),
        ("float* somewhere", None),
        ("float** in_ptr0", None),
    ],
)
def test_argument_lists_of_cpp_kernels(arguments, roles):
    found = inductor_kernels.cpp_pointers(arguments)
    assert (found if found is None else [tuple(one) for one in found]) == roles


class Autotuner:
    """What a wrapper of GPU code has for each Triton kernel, as far as it is used."""

    def __init__(self, names):
        self.fn = type("Fn", (), {"arg_names": names})()
        self.ran = []

    def run(self, *args, **kwargs):
        self.ran.append((args, kwargs))
        return "ran"


class CachingAutotuner(Autotuner):
    """Inductor's class is told by its name: importing it needs no GPU, but a driver to make one."""


def module_with(kernel):
    made = ModuleType(f"{inductor_kernels.PREFIX}abc")
    vars(made).update(call=lambda args: None, triton_poi_fused_gelu_mul_0=kernel)
    return made


def launched(monkeypatch, names, *args, **kwargs):
    kernel = CachingAutotuner(names)
    module = module_with(kernel)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    ledgers = Ledgers({})
    with inductor_kernels.watched(ledgers):
        assert module.triton_poi_fused_gelu_mul_0.run(*args, **kwargs) == "ran"
        assert module.triton_poi_fused_gelu_mul_0.fn is kernel.fn
    assert module.triton_poi_fused_gelu_mul_0 is kernel
    assert kernel.ran == [(args, kwargs)]
    return ledgers.finished().launches


def test_triton_kernels_of_inductor_are_read_by_their_arguments(monkeypatch):
    g, u, out = torch.zeros(4), torch.zeros(4), torch.zeros(4)
    (found,) = launched(monkeypatch, ["in_ptr0", "in_ptr1", "out_ptr0", "xnumel", "XBLOCK"], g, u, out, 4, stream=0)
    assert (found.op, found.source, found.unknown) == ("triton_poi_fused_gelu_mul_0", "inductor", None)
    assert [len(found.reads), len(found.writes)] == [2, 1]
    (found,) = launched(monkeypatch, ["in_out_ptr0", "in_ptr0", "xnumel"], g, u, 4, stream=0)
    assert [len(found.reads), len(found.writes)] == [2, 1]
    (found,) = launched(monkeypatch, ["arg_A", "arg_B", "out_ptr0"], g, u, out, stream=0)  # a matrix product's template
    assert [len(found.reads), len(found.writes)] == [2, 1]


def test_a_kernel_of_the_users_own_inside_a_graph_is_left_to_its_own_code(monkeypatch):
    assert launched(monkeypatch, ["gate", "up", "out"], *[torch.zeros(4)] * 3, stream=0) == ()


def test_a_kernel_without_names_is_not_trusted(monkeypatch):
    (found,) = launched(monkeypatch, [], torch.zeros(4), stream=0)
    assert found.unknown == "its arguments have no names"


# ---- third-party -----------------------------------------------------------------------------------------------------


@torch.library.custom_op("ledger_third_party::act_mul_", mutates_args=("g",))
def act_mul_(g: torch.Tensor, u: torch.Tensor) -> None:
    g.copy_(torch.nn.functional.gelu(g, approximate="tanh") * u)


def test_a_third_party_mutating_operator_is_counted_and_in_the_trace(tmp_path):
    made = case()

    def call(x):
        g = made.mlp.gate_proj(x)
        torch.ops.ledger_third_party.act_mul_(g, made.mlp.up_proj(x))
        return made.mlp.down_proj(g)

    step = reference.step(call, made)
    step()
    ledger = collect.collect(step, collect.names(made))
    assert ops(ledger) == ["mm", "mm", "gelu", "mul", "copy_", "mm"]
    assert trips(ledger) == (5, 10 * M * H)
    assert align(ledger, traced(step, tmp_path)).missing == ()
