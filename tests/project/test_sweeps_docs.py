"""The commands of docs/sweeps.md that a scheduler starts: their parts have every cell once."""

from __future__ import annotations

import csv
import re
import shlex

import pytest
import torch
from support.command import run
from support.paths import ROOT

PAGE = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
SLURM = re.search(r"^#SBATCH --array=0-(\d+)\n(?:#.*\n)*(mlpfusion sweep .*)$", PAGE, re.MULTILINE)
JOB = re.search(r"completions: (\d+).*?command: \[(.*?)\]", PAGE, re.DOTALL)


def started():
    """For each scheduler how many parts it starts, the command, and the environment of a part."""
    assert SLURM
    assert JOB
    last, command = int(SLURM[1]), shlex.split(SLURM[2])
    yield last + 1, command, lambda index: {"SLURM_ARRAY_TASK_ID": f"{index}", "SLURM_ARRAY_TASK_COUNT": f"{last + 1}"}
    yield int(JOB[1]), [word.strip() for word in JOB[2].split(",")], lambda index: {"JOB_COMPLETION_INDEX": f"{index}"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="a plan without a GPU")
@pytest.mark.parametrize(("parts", "command", "environment"), list(started()), ids=["slurm", "job"])
def test_all_parts_together_have_each_cell_once(monkeypatch, capsys, parts, command, environment):
    monkeypatch.chdir(ROOT)
    seen = []
    for index in range(parts):
        for name, value in environment(index).items():
            monkeypatch.setenv(name, value)
        words = ["/nowhere" if word.startswith("/results") else word for word in command[1:]]
        code, out, err = run(capsys, *words, "--dry-run", "--format", "csv")
        assert code == 0, err
        rows = list(csv.DictReader(out.splitlines()))
        seen += [(row["model"], row["tokens"]) for row in rows if row["cell"] == "to measure"]
    assert sorted(seen) == sorted({(row["model"], row["tokens"]) for row in rows})
