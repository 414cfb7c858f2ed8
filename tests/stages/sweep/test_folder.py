"""What stands in a study's folder: a lock, damaged files, leftovers of a driver that was killed."""

from __future__ import annotations

import os

import pytest
from support.studies_made import read, result

from mlpfusion.errors import UsageError
from mlpfusion.stages.sweep import cells, folder
from mlpfusion.storage import results


def test_a_lock_ends_with_its_driver_and_leftovers_go(tmp_path):
    out = tmp_path / "a" / "b"
    child = os.fork()
    if child == 0:
        with folder.held(out):
            (out / ".mlpfusion-1.part").touch()
            (out / "cells" / ".mlpfusion-2.part").touch()
            os._exit(0)
    os.waitpid(child, 0)
    with folder.held(out):
        assert sorted(path.name for path in out.rglob("*")) == [".lock", "cells"]
        assert f"process {os.getpid()} on " in (out / ".lock").read_text(encoding="utf-8")
    assert (out / ".lock").read_bytes() == b""  # no host's name stays in a folder that is given away


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file, not a directory"), folder.held(tmp_path / "file" / "out"):
        pass


def test_damaged_files_are_kept_each(tmp_path):
    for number in range(3):
        path = tmp_path / "x.json"
        path.write_text(f"{number}", encoding="utf-8")
        folder.set_aside(path)
    assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == {
        "x.json.damaged": "0",
        "x.json.damaged-2": "1",
        "x.json.damaged-3": "2",
    }


def test_a_stamp_changes_with_the_file(tmp_path):
    path = tmp_path / "x"
    assert folder.stamp(path) is None
    path.write_text("x", encoding="utf-8")
    first = folder.stamp(path)
    assert folder.stamp(path) == first
    os.utime(path, ns=(1, 1))
    assert folder.stamp(path) != first


def test_a_result_of_something_else_is_no_cell(tmp_path):
    asked = read(tmp_path)
    cell = cells.product(asked.work, ["cpu"])[0]
    results.save(result(1), tmp_path / "1.json")
    results.save(result(4), tmp_path / "4.json")
    results.save(result(1, complete=False), tmp_path / "half.json")
    assert folder.load_cell(tmp_path / "1.json", cell, asked.settings) == result(1)
    for name, said in (("4.json", "another workload"), ("half.json", "not complete"), ("none.json", "does not exist")):
        with pytest.raises(UsageError, match=said):
            folder.load_cell(tmp_path / name, cell, asked.settings)
