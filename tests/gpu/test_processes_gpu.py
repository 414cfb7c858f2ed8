"""A race in two processes on a GPU: what the card's sensors read, what was set, and which kernels each process ran."""

from __future__ import annotations

import pytest
import torch

from mlpfusion.device import detect
from mlpfusion.environment import nvml
from mlpfusion.stages.profile import run
from mlpfusion.storage import results

NAMES = ("eager", "compile", "compile-max-autotune", "triton")
ROUNDS = 20


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    path = tmp_path_factory.mktemp("out") / "r.json"
    run.profile(run.default_workload(detect()), backends=NAMES, rounds=ROUNDS, processes=2, json=path)
    return results.load(path)


def test_every_clock_has_the_rounds_of_both_processes(result):
    assert len(result.processes) == 2
    for row in result.rows:
        assert (row.status, row.reason) == ("ok", None), row.backend
        for clock in (row.clocks.wall_us, row.clocks.event_us, row.clocks.graph_us):
            assert [len(rounds) for rounds in clock.rounds] == [ROUNDS] * 2
            assert clock.is_paired
        assert len(row.clocks.kernel_us.rounds) == 2


def test_eager_runs_the_same_kernels_in_each(result):
    assert [each.kernels.get("eager") for each in result.processes] == [None, None]
    assert not any(reason for each in result.processes for name, reason in each.reasons.items() if "kernels" in name)


def test_the_sensors_were_read_in_each_round(result):
    for each in result.processes:
        for readings in (each.sm_clock_mhz, each.power_w, each.temperature_c):
            # After the warm-up, and after each round: those of the host's clocks, and those of replayed graphs.
            assert readings.n == 2 * ROUNDS + 1
            assert 0 < readings.low <= readings.median <= readings.high
        assert each.throttle_reasons is not None
        assert each.sm_clock_mhz.high <= nvml.card(detect()).highest_sm_clock_mhz()


def test_the_card_is_described_and_not_named(result):
    card = result.environment.card
    assert 50 < card.power_limit_w < 2000
    assert card.persistence is not None
    assert card.locked_clocks is not None or "locked_clocks" in card.reasons
    uuid = str(torch.cuda.get_device_properties(0).uuid)
    assert uuid not in results.encode(result)
    assert card.digest is not None or "salt" in card.reasons["digest"]
