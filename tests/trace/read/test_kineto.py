"""Reading and scrubbing traces: exact times, old spellings, damaged entries, clear refusals, nothing private kept."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.paths import DATA
from support.timeline import Timeline

from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.trace.read import kineto
from mlpfusion.trace.read.chrome import nanoseconds

if TYPE_CHECKING:
    from decimal import Decimal

RECORDED = sorted((DATA).glob("*.json.gz"))


def write(folder: Path, content: str | bytes) -> Path:
    path = folder / "trace.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "named_wrongly.gz.json"])
def test_reads_plain_and_gzipped(tmp_path: Path, name: str) -> None:
    path = Timeline().mlp(1000).write(tmp_path, name)
    trace = kineto.read(path)
    assert len(trace.events) == 1 + 5 * 3
    assert trace.events[0].category == "annotation"
    assert [e.start_ns for e in trace.events] == sorted(e.start_ns for e in trace.events)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1000),
        ("0", 0),
        ("1.5", 1500),
        ("4964198388798.555", 4964198388798555),
        ("1700000000000000.001", 1700000000000000001),
        ('"12.25"', 12250),
        ("1.2345", 1235),
        ("0.29999999999999999", 300),
        ("1.5e3", 1500000),
        ("-2.5", -2500),
        ("null", None),
        ("NaN", None),
        ("1e400", None),
        ("true", None),
        ("", None),
        ('"soon"', None),
        ("9" * 40, None),
    ],
)
def test_times_are_exact(text: str, expected: int | None) -> None:
    assert nanoseconds(text.encode()) == expected


@given(st.integers(0, 10**18))
def test_every_time_in_nanoseconds_survives(value: int) -> None:
    assert nanoseconds(f"{value // 1000}.{value % 1000:03d}".encode()) == value


@given(st.decimals(allow_nan=True, allow_infinity=True))
def test_any_number_is_a_time_or_none(value: Decimal) -> None:
    found = nanoseconds(str(value).encode())
    assert found is None or abs(found) < 2**63


@pytest.mark.parametrize("base", [0, 1_700_000_000_000_000])
def test_whole_fractional_and_absolute_times_tell_the_same(tmp_path: Path, base: int) -> None:
    whole = kineto.read(Timeline(base).mlp(1000).write(tmp_path)).events
    fractional = kineto.read(Timeline(base).mlp(1000.001).write(tmp_path)).events
    assert {b.start_ns - a.start_ns for a, b in zip(whole, fractional, strict=True)} == {1}
    assert whole[0].start_ns == (base + 1000) * 1000


def test_reads_old_spellings(tmp_path: Path) -> None:
    old = [
        {"ph": "X", "cat": "Operator", "name": "aten::mm", "pid": "9", "tid": "1", "ts": 1, "dur": 9,
         "args": {"External id": "12"}},
        {"ph": "X", "cat": "Runtime", "name": "cudaLaunchKernel", "pid": "9", "tid": 1, "ts": "2", "dur": "1",
         "args": {"correlation": "77", "external id": 12}},
        {"ph": "X", "cat": "Kernel", "name": "k", "pid": 0, "tid": "stream 7", "ts": 5, "dur": 3,
         "args": {"correlation": 77.0, "external id": "12", "stream": 7}},
    ]  # fmt: skip
    events = kineto.read(write(tmp_path, json.dumps(old))).events
    assert [event.category for event in events] == ["op", "api", "kernel"]
    assert events[1].correlation == events[2].correlation == 77
    assert (events[0].pid, events[0].tid, events[2].tid) == (9, 1, "stream 7")


def test_missing_and_wrong_fields_leave_the_rest(tmp_path: Path) -> None:
    odd = [
        {"ph": "X", "name": "no category", "ts": 1, "dur": 1},
        {"ph": "X", "cat": "cpu_op", "name": "no duration", "ts": 2},
        {"ph": "X", "cat": "cpu_op", "name": "odd arguments", "ts": 3, "dur": 1, "args": []},
        {"ph": "X", "cat": "cpu_op", "name": "odd ids", "ts": 4, "dur": 1, "args": {"correlation": {"a": 1}}},
        {"ph": "X", "cat": 5, "name": "odd category", "ts": 5, "dur": 1, "pid": [1]},
        {"ph": "X", "cat": "cpu_op", "name": None, "ts": 6, "dur": 1},
        {"ph": "X", "cat": "cpu_op", "name": "no time", "dur": 1},
        {"ph": "X", "cat": "cpu_op", "name": "runs backwards", "ts": 7, "dur": -1},
        "not an object",
        {"ph": "M", "name": "process_name"},
    ]
    trace = kineto.read(write(tmp_path, json.dumps({"traceEvents": odd})))
    # Those of no known category are counted, but of no use.
    assert [event.name for event in trace.events] == ["no duration", "odd arguments", "odd ids", "runs backwards"]
    assert trace.events[-1].duration_ns == 0
    assert trace.dropped == 3
    assert (trace.integrity.events, trace.integrity.negative) == (8, 1)


REFUSED = {
    "empty": (b"", "is empty"),
    "blank": (b" \n", "is empty"),
    "no json": (b"hello", "not valid JSON"),
    "cut off": (b'{"traceEvents": [{"ph": "X", "na', "is cut off .*: not one event of it survives"),
    "cut header": (b'{"schemaVersion": 1, "devi', "not valid JSON"),
    "bad bytes": (b'{"traceEvents": [{"name": "\xff\xfe"}]}', "no timed events"),
    "cut gzip": (gzip.compress(b'{"traceEvents": []}')[:-20], "compressed data end early"),
    "gzip of nothing": (gzip.compress(b""), "is empty"),
    "other json": (b'{"rows": []}', "no traceEvents"),
    "a number": (b"5", "not a Chrome trace"),
    "events no list": (b'{"traceEvents": 5}', "not a Chrome trace"),
    "nothing in it": (b'{"traceEvents": []}', "no timed events"),
    "metadata only": (b'{"traceEvents": [{"ph": "M", "name": "process_name", "args": {}}]}', "only metadata"),
    "deep": (b'{"traceEvents": [' + b"[" * 100_000, "is cut off"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses_what_is_no_trace_in_one_line(tmp_path: Path, case: str) -> None:
    content, reason = REFUSED[case]
    path = write(tmp_path, content)
    with pytest.raises(UsageError, match=reason) as caught:
        kineto.read(path)
    assert "\n" not in str(caught.value)
    assert "trace.json" in str(caught.value)


def test_refuses_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        kineto.read(tmp_path / "none.json")


@settings(max_examples=300)
@given(data=st.data())
def test_damaged_traces_are_read_or_refused(data: st.DataObject) -> None:
    text = bytearray(Timeline().mlp(10.5).text().encode())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text) - 1))
        stop = data.draw(st.integers(start, min(len(text), start + 40)))
        text[start:stop] = data.draw(
            st.binary(max_size=6) | st.sampled_from([b"null", b"{}", b'"', b"1e999", b"[", b"-"])
        )
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), bytes(text))
        for action in (kineto.read, lambda path: kineto.scrub(path, Path(folder) / "out.json.gz")):
            with contextlib.suppress(UsageError):
                action(path)


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
    hidden = "(scrubbed)"
    region = "Torch-Compiled Region: 0/1"
    assert names == ["mlpfusion.call", hidden, hidden, hidden, "aten::mm", hidden, region, hidden]
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


def test_reading_needs_no_torch() -> None:
    code = "import sys, mlpfusion.trace, mlpfusion.trace.read.kineto; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
