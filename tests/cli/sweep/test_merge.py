"""What `mlpfusion merge` prints and refuses."""

from __future__ import annotations

from support.command import refused, run
from support.studies_made import workers, written

__all__ = ["workers"]


def test_shards_are_put_together(tmp_path, capsys, workers):
    path, out = str(written(tmp_path)), str(tmp_path / "parts")
    for shard in ("1/2", "2/2"):
        run(capsys, "sweep", path, "--out", out, "--shard", shard, "--device", "cpu")
    parts = [str(each) for each in sorted((tmp_path / "parts").iterdir())]
    code, text, err = run(capsys, "merge", *parts, "--out", str(tmp_path / "whole"))
    assert (code, err) == (0, f"saved in {tmp_path / 'whole'}\n")
    assert text.startswith("study small: 2 cells, 2 finished")


def test_what_cannot_be_merged_is_refused(tmp_path, capsys):
    assert "merge needs --out DIR" in refused(capsys, "merge", "a")
    assert "folder 'a' is given twice" in refused(capsys, "merge", "a", "a", "--out", "b")
    assert "'a' is no study's folder" in refused(capsys, "merge", "a", "--out", str(tmp_path / "b"))
    assert "DIR needs a path" in refused(capsys, "merge", "", "--out", str(tmp_path / "b"))
    assert "unknown format 'pdf'" in refused(capsys, "merge", "a", "--out", "b", "--format", "pdf")
