"""A whole run whose surroundings hold secrets leaves none of them in the files that it writes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mlpfusion.storage import results

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.full  # a process of its own that races two backends

BACKEND = """
import torch
from mlpfusion.backends.eager import Eager


class Mine(Eager):
    name = "mine"
"""
SECRETS = (
    "HF_TOKEN",
    "WANDB_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "USER",
    "LOGNAME",
    "USERNAME",
    "HOSTNAME",
    "SSH_CLIENT",
)


def test_no_token_name_or_home_is_written(tmp_path: Path) -> None:
    home = tmp_path / "planted-home"
    work, own = home / "planted-work", home / "kernels"
    for folder in (work, own):
        folder.mkdir(parents=True)
    (own / "mine.py").write_text(BACKEND, encoding="utf-8")
    sizes = ["--batch", "1", "--seq", "8", "--hidden-size", "32", "--intermediate-size", "64", "--dtype", "float32"]
    backends = f"eager,{own}/mine.py:Mine"
    out, file = home / "out", home / "result.json"
    command = [sys.executable, "-m", "mlpfusion", "profile", *sizes, "--device", "cpu", "--rounds", "20"]
    ran = subprocess.run(
        [*command, "--processes", "2", "--backends", backends, "--out", str(out), "--json", str(file)],
        cwd=work,
        env={**os.environ, "HOME": str(home), **{name: f"planted-{name}" for name in SECRETS}},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    written = [path for path in (file, *out.rglob("*")) if path.is_file()]
    assert results.load(file).processes[1:]
    assert {row.backend for row in results.load(file).rows} == {"eager", "mine.py:Mine"}
    for path in written:
        assert b"planted" not in path.read_bytes(), path.name
