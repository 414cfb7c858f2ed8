"""Ledgers against traces recorded on an H200: what a GPU's trace shows is what the ledger's launches are found in."""

from __future__ import annotations

import pytest
import torch
from support import ledgers_made
from support.paths import DATA

from mlpfusion.records.traffic import Launch, Ledger
from mlpfusion.trace.analysis.kernels import analyse_work
from mlpfusion.trace.read import kineto
from mlpfusion.traffic.alignment import align
from mlpfusion.traffic.recording import collect

MM = Launch(op="aten::mm", source="operator")
FUSED = {
    "h200_compile": "triton_poi_fused__unsafe_view_gelu_mul_0",
    "h200_liger": "_geglu_tanh_forward_kernel",
    "h200_hub": "_geglu_tanh_forward_kernel",
    "h200_triton": "act_mul_flat_kernel",
}


def work(name):
    return analyse_work(kineto.read(DATA / f"{name}.json.gz"), device="cuda")


def kernel(name):
    return Launch(op=name, source="triton", kernel=name)


def ledger(*launches, captured=False):
    return Ledger(launches=launches, buffers=(), captured=captured)


@pytest.mark.parametrize(("name", "fused"), FUSED.items())
def test_three_products_and_one_kernel(name, fused):
    analysis, seen = work(name)
    found = align(ledger(MM, MM, kernel(fused), MM), seen)
    assert found.missing == ()
    roles = [[analysis.kernels[index].role for index in mine] for mine in found.kernels]
    assert roles == [["memset", "gate_gemm"], ["memset", "up_gemm"], ["act_mul"], ["down_gemm"]]


def test_packed_is_one_kernel_less():
    analysis, seen = work("h200_packed")
    found = align(ledger(MM, kernel("act_mul_rows_kernel"), MM), seen)
    assert found.missing == ()
    assert [analysis.kernels[mine[-1]].role for mine in found.kernels] == ["gate_up_gemm", "act_mul", "down_gemm"]


def test_eagers_ledger_made_here_accounts_for_eagers_trace_there():
    assert align(ledgers_made.of_backend("eager"), work("h200_eager")[1]).missing == ()


def test_so_does_a_training_step_that_adds_to_gradients():
    made = ledgers_made.case("training")

    def step():
        y = made.mlp(made.x)
        y.backward(torch.ones_like(y))

    step()
    found = align(collect.collect(step, collect.names(made)), work("h200_eager_training")[1])
    assert found.missing == ()
    assert all(found.kernels)


def test_the_ledger_of_other_code_does_not():
    eager = ledgers_made.of_backend("eager")
    for name in ("h200_compile", "h200_liger", "h200_packed"):
        assert align(eager, work(name)[1]).missing != (), name
    assert any("was not compiled" in reason for reason in align(eager, work("h200_compile")[1]).missing)


def test_the_capture_of_a_graph_accounts_for_its_replay():
    fused = FUSED["h200_compile"]
    _, seen = work("h200_compile_cudagraphs")
    copy = Launch(op="aten::copy_", source="operator")  # into the graph's input, done by another operator at a replay
    found = align(ledger(copy, MM, MM, kernel(fused), MM, captured=True), seen)
    assert found.missing == ()
    assert [len(mine) for mine in found.kernels] == [0, 1, 1, 1, 1]
    assert any("multi_tensor_apply" in other for other in found.other)
    assert align(ledger(copy, MM, MM, kernel(fused), MM), seen).missing != ()  # not captured
    assert align(ledger(MM, kernel(fused), MM, captured=True), seen).missing != ()
