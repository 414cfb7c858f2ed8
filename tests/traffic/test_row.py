"""What a row says of its traffic: a count where the trace bears the ledger out, else a bound and the reason."""

from __future__ import annotations

import msgspec
import pytest
from support.liger_traffic import KERNELS, LIGER, OPS, ROLES, WORK, WORKS, D, H, M, g, p, u, wg, whole, x

from mlpfusion.records.profile import Decoded, Kernel, Row, Traffic
from mlpfusion.records.traffic import Buffer, DeviceWork, Launch, Ledger
from mlpfusion.report.profile.columns.every import all_columns
from mlpfusion.traffic import row as row_traffic


def test_a_ledger_that_the_trace_bears_out_gives_counts_and_bytes():
    found = row_traffic.traffic(WORK, LIGER, KERNELS, WORKS)
    assert found.round_trips == 3
    assert found.intermediate_bytes == 2 * 6 * M * H
    assert found.derived_bytes == 2 * (3 * D * H + 3 * M * D + 6 * M * H)
    assert round(found.derived_bytes / 1e6) == 354
    assert [value.role for value in found.intermediates] == ["gate", "up", "product"]
    assert [step.role for step in found.steps] == list(ROLES)
    assert [step.time_us for step in found.steps] == [10.0, 11.0, 12.0, 13.0]
    assert found.steps[3].flops == 2 * M * D * H  # from what it is to the MLP
    assert found.reasons == {}


def test_what_a_library_does_for_itself_is_listed_beside_the_count():
    kernels = [*KERNELS]
    kernels += [
        Kernel(name=n, role=r, decoded=Decoded(), time_us=1.0)
        for n, r in (("Memset", "memset"), ("splitK", "gate_gemm"))
    ]
    works = [
        DeviceWork(name="Memset", kernel=4, kind="memset", ops=((OPS[0], 0),)),
        WORKS[0],
        DeviceWork(name="splitK", kernel=5, kind="other", ops=((OPS[0], 0),)),
        *WORKS[1:],
    ]
    found = row_traffic.traffic(WORK, LIGER, kernels, works)
    assert found.round_trips == 3
    assert found.other == ("Memset (memset) of aten::mm", "splitK, after the first kernel of aten::mm: its workspace")


@pytest.mark.parametrize(
    ("name", "role", "fused"), [("Memcpy DtoD", "memcpy", ()), ("void at::native::copy", "other", ("copy",))]
)
def test_a_bias_copied_into_a_result_that_is_then_added_to_is_a_round_trip(name, role, fused):
    bias = whole(9, 2 * H)
    launch = Launch(op="aten::addmm", source="operator", reads=(bias, x, wg), writes=(g,), flops=2 * M * D * H)
    ledger = Ledger(launches=(launch,), buffers=(Buffer(bytes=1),) * 10)
    kernels = [
        Kernel(name=name, role=role, decoded=Decoded(fused_ops=fused), time_us=3.0),
        Kernel(name="nvjet", role="gate_gemm", decoded=Decoded(), time_us=50.0),
    ]
    works = [DeviceWork(name=k.name, kernel=i, kind="other", ops=(("aten::addmm", 0),)) for i, k in enumerate(kernels)]
    found = row_traffic.traffic(WORK, ledger, kernels, works)
    assert [(value.bytes, value.written_by, value.read_by) for value in found.intermediates] == [
        (2 * M * H, "1 memcpy" if role == "memcpy" else "1 bias copy", ("2 gate_gemm",))
    ]
    assert [step.time_us for step in found.steps] == [3.0, 50.0]
    assert found.derived_bytes == 2 * (H + M * H) + 2 * (M * H + M * D + D * H + M * H)
    alone = row_traffic.traffic(
        WORK, ledger, kernels[1:], [DeviceWork(name="nvjet", kernel=0, kind="gemm", ops=works[1].ops)]
    )
    assert alone.round_trips == 0  # it adds the bias on its way out


COPY = "void at::native::copy"


@pytest.mark.parametrize(
    ("op", "reads", "before", "says"),
    [
        ("aten::mm", (x, wg), [COPY], True),
        ("aten::bmm", (x, wg), ["Memcpy DtoD"], True),
        ("aten::mm", (x, wg), ["Memset", COPY], True),
        ("aten::addmm", (whole(9, 2 * H), x, wg), [COPY, COPY], True),
        ("aten::addmm", (x, wg), [COPY], True),  # beta is 0: there is no bias to copy
        ("aten::sum", (x,), [COPY], True),
        ("aten::mm", (x, wg), ["Memset"], False),
        ("aten::addmm", (whole(9, 2 * H), x, wg), [COPY], False),
    ],
)
def test_a_copy_that_an_operator_makes_of_an_operand_leaves_no_count(op, reads, before, says):
    launch = Launch(op=op, source="operator", reads=reads, writes=(g,), flops=2 * M * D * H)
    ledger = Ledger(launches=(launch,), buffers=(Buffer(bytes=1),) * 10)
    roles = {"Memset": "memset", "Memcpy DtoD": "memcpy", COPY: "other", "nvjet": "gate_gemm"}
    kernels = [
        Kernel(name=name, role=roles[name], decoded=Decoded(fused_ops=("copy",) if name == COPY else ()), time_us=3.0)
        for name in (*before, "nvjet")
    ]
    works = [DeviceWork(name=k.name, kernel=i, kind="other", ops=((op, 0),)) for i, k in enumerate(kernels)]
    found = row_traffic.traffic(WORK, ledger, kernels, works)
    reason = f"{op} copies an operand before it computes with it"
    assert (found.reasons.get("round_trips") == reason, found.round_trips is None) == (says, says)


def test_an_operator_that_only_copies_copies_no_operand():
    launch = Launch(op="aten::_foreach_copy_", source="operator", reads=(g, u), writes=(p,))
    kernels = [Kernel(name=COPY, role="other", decoded=Decoded(fused_ops=("copy",)), time_us=3.0)] * 2
    works = [DeviceWork(name=COPY, kernel=i, kind="other", ops=((launch.op, 0),)) for i in range(2)]
    ledger = Ledger(launches=(launch,), buffers=(Buffer(bytes=1),) * 8)
    assert row_traffic.traffic(WORK, ledger, kernels, works).round_trips == 0


def test_a_kernel_too_many_in_the_trace_makes_it_unknown_with_a_bound():
    more = [*WORKS, DeviceWork(name="mystery", kernel=4, kind="elementwise")]
    found = row_traffic.traffic(WORK, LIGER, [*KERNELS, KERNELS[0]], more)
    assert (found.round_trips, found.derived_bytes, found.intermediate_bytes) == (None, None, None)
    assert found.round_trips_at_least == 3
    assert "mystery" in found.reasons["round_trips"]


def test_a_ledger_of_other_code_than_the_trace_counts_only_what_both_have():
    without = [work for work in WORKS if work.kernel != 2]
    found = row_traffic.traffic(WORK, LIGER, KERNELS, without)
    assert (found.round_trips, found.round_trips_at_least) == (None, 0)


def test_many_reasons_are_cut_short():
    found = row_traffic.traffic(WORK, LIGER, [], [])
    assert found.reasons["round_trips"].endswith("; and 1 more")


def test_a_ledger_with_a_fault_counts_nothing():
    found = row_traffic.traffic(WORK, msgspec.structs.replace(LIGER, faults=("compiled anew",)), KERNELS, WORKS)
    assert found.round_trips is None
    assert found.reasons["derived_bytes"] == "compiled anew"


@pytest.mark.parametrize(
    "fault",
    [
        {"faults": ("lost",)},
        {"opaque": ("lost::op",)},
        {"launches": (Launch(op="k", source="triton", unknown="lost"),)},
    ],
)
def test_an_emulated_call_needs_no_trace_but_a_ledger_without_doubt(fault):
    assert row_traffic.emulated(WORK, M, LIGER).round_trips == 3
    found = row_traffic.emulated(WORK, M, msgspec.structs.replace(LIGER, **fault))
    assert found.round_trips is None
    assert "lost" in found.reasons["round_trips"]


def cells(traffic):
    row = Row(backend="liger", status="ok", traffic=traffic)
    return {column.key: column.text(row) for column in all_columns()}


def test_the_table_shows_count_bytes_and_what_is_unknown():
    shown = cells(row_traffic.traffic(WORK, LIGER, KERNELS, WORKS))
    assert (shown["round_trips"], shown["hbm_bytes"]) == ("3", "39.3 / 354 / –")
    shown = cells(row_traffic.traffic(WORK, LIGER, KERNELS, WORKS[:2]))
    assert (shown["round_trips"], shown["hbm_bytes"]) == ("unknown, ≥ 0", "39.3 / – / –")
    assert cells(Traffic(minimum_bytes=1))["round_trips"] == "–"
    assert cells(None)["hbm_bytes"] == "–"
