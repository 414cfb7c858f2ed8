"""Each launch beside its minimum time at the card's measured rates."""

from __future__ import annotations

from support.steps_made import CARD, L2, step, traffic

from mlpfusion import device
from mlpfusion.records.clocks import Clock, Clocks
from mlpfusion.records.profile import Decoded, Kernel, Row
from mlpfusion.report.profile.columns.every import all_columns
from mlpfusion.report.profile.roofline import ceilings_line
from mlpfusion.report.profile.roofline import roofline as table
from mlpfusion.traffic import annotate


def made_row():
    clock = Clock(n=20, median=50.0, p20=49.0, p80=51.0, l2="cold")
    made = Row(
        backend="triton",
        status="ok",
        kernels=(Kernel(name="k", role="act_mul", decoded=Decoded(), time_us=50.0),),
        clocks=Clocks(kernel_us=clock),
        traffic=traffic(step(50.0, role="act_mul", kernels=(0,))),
    )
    return annotate.limited(made, CARD, device.Device(kind="cuda", name="a card", l2_bytes=L2))


def test_the_tables_say_how_near_the_limit_a_launch_and_a_call_are():
    row = made_row()
    text = " ".join(table([row], github=False).splitlines()[2].split())
    assert text == "triton 1 act_mul 100 50.0 25.0 50% memory 2000 –"
    shown = {column.key: column.text(row) for column in all_columns()}
    assert shown["of_roofline"] == "50%"
    assert table([Row(backend="a", status="ok")], github=False) is None
    assert "4000 GB/s at 95.4 MiB; matrix product 8192x8192x8192 800 TFLOP/s (bfloat16" in ceilings_line(CARD)
