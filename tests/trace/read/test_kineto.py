"""Reading and scrubbing traces: exact times, old spellings, damaged entries, clear refusals, nothing private kept."""

from __future__ import annotations

import contextlib
import gzip
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings
from support.timeline import Timeline
from support.trace_files import write

from mlpfusion.errors import UsageError
from mlpfusion.trace.read import kineto


@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "named_wrongly.gz.json"])
def test_reads_plain_and_gzipped(tmp_path: Path, name: str) -> None:
    path = Timeline().mlp(1000).write(tmp_path, name)
    trace = kineto.read(path)
    assert len(trace.events) == 1 + 5 * 3
    assert trace.events[0].category == "annotation"
    assert [e.start_ns for e in trace.events] == sorted(e.start_ns for e in trace.events)


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
    "cut gzip": (gzip.compress(b'{"traceEvents": []}', mtime=0)[:-20], "compressed data end early"),
    "gzip of nothing": (gzip.compress(b"", mtime=0), "is empty"),
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


@settings(max_examples=rings.examples(300))
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


def test_reading_needs_no_torch() -> None:
    code = "import sys, mlpfusion.trace, mlpfusion.trace.read.kineto; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("size", [0, 100, 3 * 2**20])
def test_what_is_before_the_events_may_be_longer_than_a_block(size: int, tmp_path: Path) -> None:
    header = json.dumps({"distributedInfo": {"rank": 3, "world_size": 8}, "args": "x" * size})[:-1]
    path = write(tmp_path, f'{header}, "traceEvents": []}}')
    assert kineto.head(path).rank == 3


@pytest.mark.parametrize(
    "content", ["", "{", '{"distributedInfo": {"rank": 3}}', '{"a": "' + "x" * 3 * 2**20, "[]", "3"]
)
def test_nothing_is_known_before_the_events_of_what_is_no_trace(content: str, tmp_path: Path) -> None:
    assert kineto.head(write(tmp_path, content)).rank is None
