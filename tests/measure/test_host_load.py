"""How busy others kept the host: read from the kernel's counters, told where it disturbs, None where it is unknown."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.measure import host_load
from mlpfusion.measure.host_load import Reading

if TYPE_CHECKING:
    from pathlib import Path

linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc/stat is Linux's")


def written(folder: Path, text: str) -> Path:
    path = folder / "stat"
    path.write_text(text, encoding="utf-8")
    return path


@linux
def test_a_program_that_works_beside_is_seen():
    spin = [sys.executable, "-c", "import time; print(flush=True)\nwhile True: pass"]
    with subprocess.Popen(spin, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        before = host_load.read()
        time.sleep(host_load.LEAST_S * 1.2)
        after = host_load.read()
        process.kill()
    found = host_load.share(before, after)
    assert found is not None
    assert after is not None
    # Whoever took the processor from it was another program as well.
    assert found * after.cpus > 0.3


@linux
def test_ones_own_work_is_not_counted():
    before = host_load.read()
    assert before is not None
    end = time.monotonic() + host_load.LEAST_S * 1.2
    while time.monotonic() < end:
        pass
    after = host_load.read()
    assert after is not None
    found = host_load.share(before, after)
    assert found is not None
    mine = (after.mine - before.mine) / ((after.at - before.at) * after.cpus)
    everybody = (after.worked - before.worked) / ((after.at - before.at) * after.cpus)
    assert found == pytest.approx(min(max(everybody - mine, 0), 1))
    assert found < everybody


@linux
def test_idle_waiting_and_guests_do_not_count_and_steal_does(tmp_path):
    line = "cpu  100 20 30 99999 88888 4 5 6 70 10\ncpu0 1 1 1 1 1 1 1 1 1 1\ncpu1 1 1 1 1 1 1 1 1 1 1\nintr 5\n"
    found = host_load.read(written(tmp_path, line))
    assert found is not None
    assert found.worked == pytest.approx(1.65)
    assert found.cpus == 2


@linux
@pytest.mark.parametrize(
    "text", ["", "cpu\n", "cpu  1 2 3\n", "cpu  a b c d e f g h\n", "intr 5\n", "cpu  1 2 3 4 5 6 7 é\n"]
)
def test_what_cannot_be_read_is_unknown(tmp_path, text):
    assert host_load.read(written(tmp_path, text)) is None
    assert host_load.read(tmp_path / "nowhere") is None


def test_elsewhere_it_is_unknown(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert host_load.read() is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, Reading(2.0, 2.0, 1.0, 2)),
        (Reading(1.0, 1.0, 1.0, 2), None),
        (Reading(1.0, 1.0, 1.0, 2), Reading(1.1, 1.2, 1.1, 2)),  # too short
        (Reading(1.0, 1.0, 1.0, 2), Reading(3.0, 2.0, 1.5, 3)),  # a CPU came or went
        (Reading(1.0, 1.0, 1.0, 0), Reading(3.0, 2.0, 1.5, 0)),
        (Reading(1.0, 7.0, 1.0, 2), Reading(3.0, 7.0, 2.5, 2)),  # counters that stand still while we worked
    ],
)
def test_what_cannot_be_told_is_none(before, after):
    assert host_load.share(before, after) is None


@given(st.floats(1, 1e4), st.just(0.0) | st.floats(0.01, 1), st.floats(0, 1), st.integers(1, 512))
def test_the_share_is_what_others_worked_of_all_there_was(passed, mine, others, cpus):
    mine, others = mine * passed, others * passed * (cpus - 1)
    found = host_load.share(Reading(5.0, 9.0, 3.0, cpus), Reading(5.0 + passed, 9.0 + mine + others, 3.0 + mine, cpus))
    assert found is not None
    assert found == pytest.approx(others / (passed * cpus), abs=1e-6)
