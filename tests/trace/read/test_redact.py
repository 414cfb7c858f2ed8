"""A trace with nothing private in it: all that is measured is kept, and the file is whole."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from support.paths import DATA
from support.timeline import Timeline
from support.trace_files import write

from mlpfusion.errors import MlpfusionError
from mlpfusion.trace.read import kineto

RECORDED = sorted((DATA).glob("*.json.gz"))
SECRETS = ("hf_SECRETtoken", "/home/alice/project", "C:\\Users\\alice", "secret-host", "s3cr3t")


def planted() -> dict[str, object]:
    """A trace with something private in every place that free text can be in."""
    secret = " ".join(SECRETS)
    args = {
        "External id": 3, "correlation": 4, "Input Dims": [[1, 2], []], "Input type": ["float", secret],
        "Python module": secret, "kernel_file": secret, "Call stack": secret, "name": secret, "stream": secret,
        "Concrete Inputs": [secret], "bytes": secret, "grid": [1, secret, 1], "Process Group Name": secret,
        "est. achieved occupancy %": 5,
    }  # fmt: skip
    event = {"ph": "X", "pid": 9, "tid": 1, "ts": 5.125, "dur": 1, "args": args}
    return {
        "schemaVersion": secret,
        "traceName": secret,
        "host_name": secret,
        "displayTimeUnit": secret,
        "baseTimeNanoseconds": secret,
        "metadata": {"env": {"FAKE_TOKEN": secret}},
        "distributedInfo": {"pg": secret},
        "deviceProperties": [{"id": 0, "name": secret, "numSms": 132, "uuid": secret}, {"name": "NVIDIA H200"}, secret],
        secret: 1,
        "traceEvents": [
            {**event, "cat": "user_annotation", "name": "mlpfusion.call", "extra": secret},
            {**event, "cat": "user_annotation", "name": secret},
            {**event, "cat": "user_annotation", "name": "hf_SECRETtoken"},
            {**event, "cat": "gpu_user_annotation", "name": "s3cr3t"},
            {**event, "cat": "cpu_op", "name": "aten::mm"},
            {**event, "cat": "cpu_op", "name": "/home/alice/project/f.py(3): s3cr3t"},
            {**event, "cat": "cpu_op", "name": "Torch-Compiled Region: 0/1"},
            {**event, "cat": "kernel", "name": "C:\\Users\\alice"},
            {**event, "cat": "python_function", "name": secret},
            {**event, "cat": "Trace", "name": secret},
            {**event, "cat": secret, "name": "aten::mm"},
            {**event, "cat": "cpu_op", "name": "aten::add", "pid": secret},
            {**event, "cat": "cpu_op", "name": "aten::add", "ts": secret},
            {"ph": "M", "name": "process_name", "pid": 9, "tid": 0, "ts": 0, "args": {"name": secret}},
            {"ph": "M", "name": "process_labels", "pid": 9, "tid": 0, "ts": 0, "args": {"labels": secret}},
            {"ph": "M", "name": "process_labels", "pid": 9, "tid": 0, "ts": 0, "args": {"labels": "CPU"}},
            {"ph": "M", "name": "thread_name", "pid": 9, "tid": 1, "ts": 0, "args": {"name": "thread 1 (s3cr3t)"}},
            {"ph": "M", "name": secret, "pid": 9, "tid": 1, "ts": 0, "args": {"name": secret}},
            {"ph": "i", "s": "t", "name": secret, "pid": 9, "tid": 1, "ts": 5, "args": {"Addr": secret}},
            {"ph": "C", "name": secret, "pid": 9, "ts": 5, "args": {"value": secret}},
            {"ph": "s", "id": 4, "pid": 9, "tid": 1, "ts": 5, "cat": "ac2g", "name": secret, "bp": "e", "note": secret},
        ],
    }


def test_scrub_keeps_nothing_private_and_all_that_is_measured(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps(planted()))
    out = tmp_path / "out.json.gz"
    kineto.scrub(path, out)
    text = gzip.decompress(out.read_bytes()).decode()
    assert not [secret for secret in (*SECRETS, "alice", "TOKEN", "host") if secret in text]
    shown = json.loads(text)
    assert shown["deviceProperties"] == [{"id": 0, "numSms": 132}, {"name": "NVIDIA H200"}]
    events = shown["traceEvents"]
    names = [event["name"] for event in events if event["ph"] == "X"]
    assert names[:4] == ["mlpfusion.call", "range_ax0x0", "range_b", "range_cx0x0"]
    assert names[4:8] == ["aten::mm", "op_a 0x0x0", "Torch-Compiled Region: 0/1", "kernel_a"]
    assert names[8:] == ["frame_ax0x0", "event_ax0x0", "event_b", "aten::add"]
    assert events[0]["ts"] == 5.125
    assert events[0]["args"] == {
        "External id": 3,
        "correlation": 4,
        "Input Dims": [[1, 2], []],
        "Input type": ["float", ""],
        "est. achieved occupancy %": 5,
    }
    assert [event for event in events if event["ph"] == "M"] == [
        {"ph": "M", "name": "process_labels", "ts": 0.0, "pid": 9, "tid": 0, "args": {"labels": "CPU"}},
        {"ph": "M", "name": "thread_name", "ts": 0.0, "pid": 9, "tid": 1, "args": {"name": "thread 1"}},
    ]
    assert [event for event in events if event["ph"] == "s"] == [
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 4, "ts": 5.125 - 0.125, "pid": 9, "tid": 1, "bp": "e"}
    ]


def test_scrub_leaves_every_time_as_it_was(tmp_path: Path) -> None:
    path = Timeline(1_700_000_000_000_000).mlp(0.001).write(tmp_path)
    kineto.scrub(path, tmp_path / "out.json.gz")
    assert kineto.read(tmp_path / "out.json.gz").events == kineto.read(path).events
    first = (tmp_path / "out.json.gz").read_bytes()
    kineto.scrub(tmp_path / "out.json.gz", tmp_path / "again.json.gz")
    assert (tmp_path / "again.json.gz").read_bytes() == first


def test_scrub_writes_the_whole_file_or_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Timeline().mlp(1000).write(tmp_path)
    out = tmp_path / "out" / "old.json.gz"
    out.parent.mkdir()
    out.write_bytes(b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MlpfusionError, match=r"cannot write trace '.*old\.json\.gz': No space left on device"):
        kineto.scrub(path, out)
    assert out.read_bytes() == b"old"
    assert os.listdir(out.parent) == ["old.json.gz"]
    for bad in (tmp_path / "no" / "t.json.gz", tmp_path / "out", Path(os.devnull)):
        with pytest.raises(MlpfusionError, match="trace"):
            kineto.scrub(path, bad)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_recorded_traces_are_scrubbed(path: Path, tmp_path: Path) -> None:
    document = json.loads(gzip.decompress(path.read_bytes()))
    assert set(document) <= {
        "schemaVersion",
        "displayTimeUnit",
        "baseTimeNanoseconds",
        "deviceProperties",
        "traceEvents",
    }
    kineto.scrub(path, tmp_path / "again.json.gz")
    assert json.loads(gzip.decompress((tmp_path / "again.json.gz").read_bytes())) == document
