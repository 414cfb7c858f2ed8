"""A cell is one profile with all that its study asks."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace
from support.studies_made import read, result

from mlpfusion.stages.profile import run
from mlpfusion.stages.sweep import cells, measure


def order(tmp_path, **changes):
    asked = read(tmp_path)
    cell = cells.product(asked.work, ["cpu"])[0]
    return measure.order(cell, replace(asked.settings, **changes), "cpu", "shared")


def test_an_order_is_what_profile_gets(tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(run, "profile", lambda workload, **options: given.update(options) or result(1))
    asked = order(tmp_path, processes=3, counters=True, time_limit_s=7.0)
    assert msgspec.json.decode(msgspec.json.encode(asked), type=measure.Order) == asked
    assert measure.measure(asked, print).host_clocks == "shared"
    expected = {"backends": ("eager",), "device": "cpu", "rounds": 5, "processes": 3, "time_limit_s": 7.0}
    assert given == {**expected, "counters": True, "on_event": print}


def test_a_cell_has_time_for_all_of_its_steps(tmp_path):
    assert measure.limit_s(order(tmp_path)) == 3 * 600 + 300
    assert measure.limit_s(order(tmp_path, processes=5, backends=("eager", "triton"))) == 2 * 7 * 600 + 300
