"""What `mlpfusion sweep` prints and refuses."""

from __future__ import annotations

import contextlib
import csv
import json
import sys

import pytest
import torch
from support.command import refused, run
from support.fake_cluster import FakePool, seconds
from support.studies_made import SMALL, workers, written
from support.sweep_worker import FAILS

from mlpfusion.stages.sweep import local
from mlpfusion.stages.sweep.cluster import pool

__all__ = ["seconds", "workers"]

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a study without a GPU")


def test_a_dry_run_shows_cells_and_the_time(tmp_path, capsys):
    code, out, err = run(capsys, "sweep", str(written(tmp_path)), "--dry-run")
    assert (code, err) == (0, "")
    assert out.count("to measure\n") == 2
    assert out.endswith("\n2 cells: 2 to measure; about 8 s on 1 worker, assuming 4 s a backend, as on an H200\n")


def test_a_dry_run_in_other_formats(tmp_path, capsys):
    path = str(written(tmp_path))
    _, out, _ = run(capsys, "sweep", path, "--dry-run", "--format", "csv")
    assert [(row["model"], row["tokens"], row["cell"]) for row in csv.DictReader(out.splitlines())] == [
        ("tiny", "1", "to measure"),
        ("tiny", "4", "to measure"),
    ]
    _, out, _ = run(capsys, "sweep", path, "--dry-run", "--format", "json")
    assert len(json.loads(out)["cells"]) == 2
    _, out, _ = run(capsys, "sweep", path, "--dry-run", "--format", "github")
    assert out.startswith("| model")


def test_a_dry_run_without_a_cell_to_measure_has_failed(tmp_path, capsys):
    path = written(tmp_path, f'gpus = ["h200"]\n{SMALL}')
    code, out, _ = run(capsys, "sweep", str(path), "--dry-run")
    assert code == 1
    assert "waiting: no h200 is here" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--shard", "3/2"), "--shard '3/2': I must be an integer from 1 to 2"),
        (("--device", "tpu"), "unknown device 'tpu'; valid: cuda, cpu"),
        (("--format", "html"), "unknown format 'html'; valid: text, github, csv, json"),
    ],
)
def test_a_bad_option_is_refused(tmp_path, capsys, arguments, said):
    assert said in refused(capsys, "sweep", str(written(tmp_path)), "--dry-run", *arguments)


def test_a_cluster_has_devices_of_its_own(tmp_path, capsys):
    said = refused(capsys, "sweep", str(written(tmp_path)), "--ray", "auto", "--device", "cpu")
    assert "--ray measures on the devices of a cluster; leave --device out" in said


def test_a_cluster_without_ray_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    said = refused(capsys, "sweep", str(written(tmp_path)), "--ray", "auto")
    assert "pip install 'mlpfusion[cluster]'" in said


@pytest.mark.usefixtures("seconds")
@pytest.mark.parametrize("dry", [True, False])
def test_a_cluster_measures_a_study(tmp_path, capsys, monkeypatch, dry):
    monkeypatch.setattr(pool, "connected", lambda address: contextlib.nullcontext(FakePool("a", "b")))
    options = ["--dry-run"] if dry else ["--out", str(tmp_path / "out")]
    code, out, _ = run(capsys, "sweep", str(written(tmp_path)), "--ray", "auto", *options)
    assert code == 0
    assert ("on 2 workers" if dry else "study small: 2 cells, 2 finished") in out


@pytest.mark.usefixtures("seconds")
def test_a_cluster_without_gpus_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(pool, "connected", lambda address: contextlib.nullcontext(FakePool()))
    code, out, err = run(capsys, "sweep", str(written(tmp_path)), "--ray", "auto")
    assert (code, out) == (2, "")
    assert "--ray 'auto': no node can be used; there is no GPU" in err


def test_a_bad_study_is_refused_by_line(tmp_path, capsys):
    path = written(tmp_path, "models = []")
    assert f"study '{path}', line 1: models is empty" in refused(capsys, "sweep", str(path), "--dry-run")
    assert "does not exist" in refused(capsys, "sweep", "none.toml")


def test_the_command_measures_and_goes_on(tmp_path, capsys, monkeypatch, workers):
    monkeypatch.chdir(tmp_path)
    path = str(written(tmp_path))
    code, out, err = run(capsys, "sweep", path)
    assert code == 0
    assert out.startswith("study small: 2 cells, 2 finished; host clocks exclusive\n")
    assert "CPU: tiny, 4 tokens, float32, inference, cpu [0 of 2 cells, about 8 s left]\n" in err
    assert err.endswith("saved in sweeps/small\n")
    code, again, err = run(capsys, "sweep", path)
    assert (code, again, err) == (0, out, "saved in sweeps/small\n")
    _, out, _ = run(capsys, "sweep", path, "--format", "json")
    assert json.loads(out)["kind"] == "study"
    code, out, _ = run(capsys, "table", "sweeps/small/study.json")
    assert (code, out) == (0, again)
    assert run(capsys, "table", "sweeps/small", "--format", "csv")[0] == 0


def test_a_cell_that_failed_is_an_exit_code(tmp_path, capsys, workers):
    path = written(tmp_path, SMALL.replace("[1, 4]", f"[1, {FAILS}]"))
    code, out, _ = run(capsys, "sweep", str(path), "--out", str(tmp_path / "out"))
    assert code == 1
    assert "1x failed: out of memory" in out


def test_an_interrupt_says_what_is_kept(tmp_path, capsys, monkeypatch, workers):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    path, out = str(written(tmp_path)), str(tmp_path / "out")
    monkeypatch.setattr(local, "run", interrupted)
    code, _, err = run(capsys, "sweep", path, "--out", out)
    assert (code, err) == (130, "mlpfusion: interrupted; nothing was saved: no cell had finished\n")
    monkeypatch.undo()


def test_a_dry_run_estimates_from_what_is_finished(tmp_path, capsys, monkeypatch, workers):
    monkeypatch.chdir(tmp_path)
    run(capsys, "sweep", str(written(tmp_path, SMALL.replace("[1, 4]", "[1]"))))
    _, out, _ = run(capsys, "sweep", str(written(tmp_path)), "--dry-run")
    assert "2 cells: 1 finished, 1 to measure; about 1 s on 1 worker, by the median of the 1 cell finished" in out
