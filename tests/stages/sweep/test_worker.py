"""A real worker: it is ready, measures a cell, says why it cannot, and ends when nothing more comes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import msgspec
import pytest
import torch
from msgspec.structs import replace
from support.studies_made import read, result

from mlpfusion.errors import MeasurementError
from mlpfusion.stages.sweep import cells, measure, worker
from mlpfusion.storage import results


def order(tmp_path, **changes):
    asked = read(tmp_path)
    made = measure.order(cells.product(asked.work, ["cpu"])[0], asked.settings, "cpu", "exclusive")
    return replace(made, **changes)


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (None, ("done", "")),
        (MeasurementError("no room in /home/somebody/file"), ("failed", "no room in file")),
        (
            RuntimeError("CUDA error: an illegal memory access\nmore"),
            ("failed", "RuntimeError: CUDA error: an"),
        ),
    ],
)
def test_a_cell_is_done_or_says_why_not(tmp_path, monkeypatch, raised, said):
    def measured(asked, tell):
        if raised is not None:
            raise raised
        return result(1)

    monkeypatch.setattr(worker, "measure", measured)
    kind, text = worker._done(order(tmp_path), tmp_path / "answer.json", lambda *_: None)
    assert (kind, text[: len(said[1])]) == said
    assert (tmp_path / "answer.json").exists() == (raised is None)


@pytest.mark.full  # starts PyTorch, and measures
@pytest.mark.skipif(torch.cuda.is_available(), reason="a worker on the CPU")
def test_a_real_worker_measures_and_ends(tmp_path):
    cpu = min(os.sched_getaffinity(0))
    asked = [json.dumps([msgspec.to_builtins(order(tmp_path)), str(tmp_path / "answer.json")])]
    ran = subprocess.run(
        [sys.executable, "-m", "mlpfusion.stages.sweep.worker", "cpu"],
        input="\n".join(asked) + "\n",
        capture_output=True,
        text=True,
        env={**os.environ, worker.CPUS: str(cpu)},
        check=True,
    )
    said = [json.loads(line) for line in ran.stdout.splitlines()]
    assert (said[0], said[-1]) == (["ready", ""], ["done", ""])
    found = results.load(tmp_path / "answer.json")
    assert (found.complete, found.rows[0].status, found.host_clocks) == (True, "ok", "exclusive")
