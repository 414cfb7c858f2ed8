"""Damaged, cut off and oddly written traces: what is whole is kept, what is not is repaired, or counted and placed."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings
from support.timeline import Timeline

from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.read import blocks, kineto
from mlpfusion.trace.read.source import Text

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.trace.read.kineto import Trace

# MLPFUSION_FUZZ=10000 mutates that many traces in each fuzz test.
EXAMPLES = int(os.environ.get("MLPFUSION_FUZZ", "250"))
fuzz = settings(max_examples=rings.examples(EXAMPLES))


def made(calls: int = 3, base: int = 0) -> Any:
    found = Timeline(base)
    for index in range(calls):
        found.mlp(1000 * (index + 1))
    return found


def text(calls: int = 3) -> bytes:
    return made(calls).text().encode()


def parsed(data: bytes, *, size: int | None = None) -> Trace:
    """The trace in `data`, given to the reader in parts of `size` bytes."""
    size = size or len(data) or 1
    return kineto.read_text(Text("it", (data[start : start + size] for start in range(0, len(data), size))))


BROKEN = {
    "bad bytes": (b"aten::gelu", b"aten::\xff\xfegelu", "aten::\ufffd\ufffdgelu"),
    "a lone backslash": (b"aten::gelu", rb"aten\gelu", "aten\\gelu"),
    "a path": (b"aten::gelu", rb"C:\users\x", "C:\\users\\x"),
    "a backslash at the end": (b'"aten::gelu"', b'"aten::gelu\\"', "aten::gelu\\"),
    "a bad unicode escape": (b"aten::gelu", rb"aten\u12", "aten\\u12"),
    "a lone surrogate": (b"aten::gelu", rb"aten\ud800", "aten\ufffd"),
    "a raw newline": (b"aten::gelu", b"aten::\ngelu", "aten::\ngelu"),
    "a control character": (b"aten::gelu", b"aten::\x01gelu", "aten::\x01gelu"),
    "quotes": (b"aten::gelu", b'aten::"gelu"', 'aten::"gelu"'),
    "not a number": (b'"args": {}', b'"args": {"occupancy": NaN}', "aten::gelu"),
    "infinite": (b'"args": {}', b'"args": {"bandwidth": -Infinity}', "aten::gelu"),
}


@pytest.mark.parametrize("size", [None, 300])
@pytest.mark.parametrize("case", BROKEN)
def test_one_broken_event_is_repaired(case: str, size: int | None) -> None:
    old, new, name = BROKEN[case]
    data = text()
    place = data.index(b"aten::gelu")
    start = data.rindex(b'{"ph"', 0, place)
    broken = data[:start] + data[start:].replace(old, new, 1)
    trace, whole = parsed(broken, size=size), parsed(data)
    assert (trace.integrity.repaired, trace.integrity.dropped) == (1, 0)
    assert trace.integrity.damage[0].offset == start
    assert len(trace.events) == len(whole.events)
    assert name in {event.name for event in trace.events}
    assert trace.integrity.lost_bytes is None


@pytest.mark.parametrize("size", [None, 300])
def test_what_cannot_be_repaired_is_dropped_and_placed(size: int | None) -> None:
    data = text()
    start = data.rindex(b'{"ph"', 0, data.index(b"aten::gelu"))
    broken = data[:start] + data[start:].replace(b'"cat": "cpu_op"', b'"cat" "cpu_op" ]', 1)
    trace = parsed(broken, size=size)
    assert (trace.integrity.repaired, trace.integrity.dropped) == (0, 1)
    assert (trace.integrity.damage[0].offset, trace.integrity.damage[0].what) == (start, "dropped")
    assert len(trace.events) == len(parsed(data).events) - 1


def test_the_last_event_and_the_end_of_the_list_may_be_damaged(tmp_path: Path) -> None:
    for ending in (b'], "traceName": "x"}', b"]}", b'],\n "metadata": [{"a": 1}, {"ph": "X"}]}'):
        data = text().removesuffix(b"]}") + ending
        assert len(parsed(data).events) == 48
        last = data.rindex(b'"name"')
        broken = parsed(data[:last] + b"\\" + data[last:])
        assert (len(broken.events), broken.integrity.dropped, broken.integrity.lost_bytes) == (47, 1, None)


@pytest.mark.parametrize("size", [None, 300])
def test_a_missing_comma_loses_nothing(size: int | None) -> None:
    data = text()
    for name in (b"aten::gelu", b"cudaLaunchKernel"):
        start = data.rindex(b'{"ph"', 0, data.index(name))
        for between in (b" ", b"", b"\n"):
            broken = data[:start].rstrip(b",\n") + between + data[start:]
            trace = parsed(broken, size=size)
            assert trace.events == parsed(data).events
            (damage,) = trace.integrity.damage
            assert (damage.what, damage.reason) == ("repaired", "no comma before it")
            assert broken[damage.offset :].startswith(data[start : start + 40])
            assert (trace.integrity.repaired, trace.integrity.dropped, trace.integrity.lost_bytes) == (1, 0, None)


def test_a_text_like_a_missing_comma_is_none() -> None:
    entries = made()
    entries.entries[3]["args"]["text"] = '} {"ph": "X"}'
    data = entries.text().encode()
    broken = data.replace(b'"args": {}', b'"args": {"x": NaN}', 1)
    trace = parsed(broken)
    assert (len(trace.events), trace.integrity.repaired, trace.integrity.dropped) == (48, 1, 0)


@pytest.mark.parametrize("size", [None, 300])
@pytest.mark.parametrize("ending", [b",]}", b" ,\n ]}", b',\n], "traceName": "x", "a": [{"ph": 1}, {}]}'])
def test_a_comma_behind_the_last_event_loses_nothing(ending: bytes, size: int | None) -> None:
    trace = parsed(text().removesuffix(b"]}") + ending, size=size)
    assert trace.events == parsed(text()).events
    assert (trace.integrity.damage, trace.integrity.repaired, trace.integrity.dropped) == ((), 0, 0)
    assert trace.integrity.lost_bytes is None


@pytest.mark.parametrize("size", [None, 300])
@pytest.mark.parametrize("broken_too", [False, True])
@pytest.mark.parametrize(
    ("old", "field", "reason"),
    [(rb'"ts": \d+', b'"ts": 1e400', "has no readable start"), (rb'"ts": \d+', b'"ts": -1e18', "has no readable start"),
     (rb'"dur": \d+', b'"dur": 1e99', "has no readable duration"), (rb'"name": "[^"]*"', b'"name": ""', "has no name")],
)  # fmt: skip
def test_what_has_no_time_or_name_is_placed(
    old: bytes, field: bytes, reason: str, size: int | None, *, broken_too: bool
) -> None:
    data = text()
    start = data.rindex(b'{"ph"', 0, data.index(b"aten::gelu"))
    stop = data.index(b'{"ph"', start + 1)
    data = data[:start] + re.sub(old, field, data[start:stop]) + data[stop:]
    if broken_too:  # the block is taken apart, with an event that is repaired
        data = data[: start + 400] + data[start + 400 :].replace(b'"args": {}', b'"args": {"x": NaN}', 1)
    trace = parsed(data, size=size)
    first, *more = trace.integrity.damage
    assert (first.offset, first.what, first.reason) == (start, "dropped", reason)
    assert [damage.what for damage in more] == ["repaired"] * broken_too
    assert (trace.integrity.dropped, len(trace.events)) == (1, 47)


def test_values_that_are_no_events_are_placed_each() -> None:
    data = b'{"traceEvents": [null, 1,"a",[], ' + text().split(b"[", 1)[1]
    trace = parsed(data)
    assert [damage.offset for damage in trace.integrity.damage] == [
        data.index(value) for value in (b"null", b"1,", b'"a"', b"[]")
    ]
    assert (trace.integrity.dropped, len(trace.events)) == (4, 48)


def test_every_event_broken_takes_no_longer_than_a_moment() -> None:
    broken = text(400).replace(b'"args": {', b'"args": {"x": NaN, ')
    broken = broken.replace(b"NaN, }", b"NaN}")
    trace = parsed(broken)
    assert trace.integrity.repaired == len(trace.events) == 400 * 16
    assert len(trace.integrity.damage) == 20


@given(st.integers(1, 700))
@settings(max_examples=rings.examples(60))
def test_the_size_of_blocks_does_not_matter(size: int) -> None:
    nested = [{"name": "x", "ph": 1}, {"a": [{"ph": "q"}, {}]}]
    entries = made(1)
    for index in (0, 5, 15):
        entries.entries[index]["args"] = {"list": nested, "text": '}, {"ph": "X"', **entries.entries[index]["args"]}
    data = entries.text().encode().removesuffix(b"]}") + b'], "after": [{"ph": "X"}, {"ph": "X", "ts": 1}]}'
    small, large = parsed(data, size=size), parsed(data)
    assert small.events == large.events
    assert small.integrity == large.integrity
    assert large.integrity.dropped == large.integrity.repaired == 0


def test_nested_lists_of_objects_are_no_events() -> None:
    data = json.dumps(
        {
            "deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}, {"id": 1}],
            "metadata": {"traceEvents": [{"ph": "X"}], "s": '"traceEvents": ['},
            "traceEvents": made(1).entries,
            "after": {"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "no", "ts": 1, "dur": 1}]},
        }
    ).encode()
    for size in (None, 64):
        trace = parsed(data, size=size)
        assert len(trace.events) == 16
        assert trace.gpu == "NVIDIA A100-SXM4-80GB"


@pytest.mark.parametrize("size", [None, 64])
@pytest.mark.parametrize("broken", [False, True])
def test_the_gpu_may_be_named_behind_the_events(size: int | None, *, broken: bool) -> None:
    devices = '"deviceProperties": [{"id": 0, "name": "NVIDIA H200"}, {"id": 1, "name": "NVIDIA H100"}]'
    for ending in (f'], {devices}, "traceName": "x"}}', f',\n], "a": [{{"b": 1}}], {devices}}}\n'):
        data = text().removesuffix(b"]}") + ending.encode()
        if broken:
            last = data.rindex(b'"args": {"stream"')
            data = data[:last] + data[last:].replace(b'"stream": 7', b'"stream": NaN', 1)
        trace = parsed(data, size=size)
        assert (trace.gpu, len(trace.events), trace.integrity.repaired) == ("NVIDIA H200", 48, int(broken))
        assert trace.integrity.lost_bytes is None


def test_what_is_damaged_behind_the_events_harms_none_of_them() -> None:
    for ending in (b'], "deviceProperties": [{"name": "NVIDIA H2', b'], "deviceProperties": 3}', b"]} more"):
        trace = parsed(text().removesuffix(b"]}") + ending)
        assert (trace.gpu, len(trace.events), trace.damaged_by) == (None, 48, None)
    nested = b'], "metadata": {"deviceProperties": [{"name": "NVIDIA H200"}]}}'
    assert parsed(text().removesuffix(b"]}") + nested).gpu is None
    packed = gzip.compress(text() + b" " * 300)
    assert kineto.read(packed[:-12]).integrity.lost_bytes is None


def test_a_cut_at_every_byte_keeps_a_prefix() -> None:
    data = text(2)
    whole = [event.name for event in parsed(data).events]
    total = len(whole)
    for end in range(len(data) - 3, 40, -7):
        if not re.search(rb'"dur": \d+\}', data[:end]):
            with pytest.raises(UsageError, match="cut off"):
                parsed(data[:end])
            continue
        trace = parsed(data[:end])
        assert len(trace.events) <= total
        assert trace.integrity.lost_bytes is not None
        assert trace.integrity.dropped == trace.integrity.repaired == 0
        kept = data[: end - trace.integrity.lost_bytes].count(b'"ph"')
        assert len(trace.events) == kept


def test_a_cut_off_trace_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    data = text(3)
    path = tmp_path / "t.json"
    path.write_bytes(data[: data.rindex(b'"ts": 3092') + 3])
    found = read(path)
    assert found.integrity.lost_bytes == len(path.read_bytes()) - path.read_bytes().rindex(b'{"ph"')
    assert found.incomplete is not None
    assert f"{found.integrity.lost_bytes} bytes after its last whole event are lost" in found.incomplete
    assert found.analysis.calls == 2
    assert found.analysis.kernel_us == (25.0, 25.0)


@pytest.mark.parametrize("where", ['"cat": "kernel"', '"name": "cudaLaunchKernel"'])
def test_a_trace_of_which_no_call_survives_is_refused(tmp_path: Path, where: str) -> None:
    path = tmp_path / "t.json"
    data = text(3)
    path.write_bytes(data[: data.index(where.encode())])
    with pytest.raises(UsageError, match="not one") as caught:
        read(path)
    assert "\n" not in str(caught.value)


def test_a_cut_off_gzip_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "t.json.gz"
    packed = gzip.compress(text(600))
    path.write_bytes(packed[: len(packed) // 2])
    found = read(path)
    assert found.incomplete is not None
    assert "its compressed data end early" in found.incomplete
    assert 200 < found.analysis.calls < 400
    path.write_bytes(packed[: len(packed) // 2] + b"\x00\xff" * 50 + packed[len(packed) // 2 + 100 :])
    found = read(path)
    assert "damaged" in (found.incomplete or "")


def test_a_list_of_events_may_lack_its_end(tmp_path: Path) -> None:
    entries = json.dumps(made(2).entries)
    for ending, lost in (("", None), (",", None), (",\n", None), (', {"ph', 4)):
        trace = parsed((entries.removesuffix("]") + ending).encode())
        assert len(trace.events) == 32
        assert trace.integrity.lost_bytes == lost


def test_an_event_without_end_stops_at_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_LONGEST_EVENT", 5000)
    data = b'{"traceEvents": [{"ph": "X", "name": "' + b"x" * 20_000 + b'"}' + text(1)[len(b'{"schemaVersion": 1, ') :]
    with pytest.raises(UsageError):
        parsed(data[: -len(text(1))], size=1000)


def test_a_header_without_events_stops_at_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_LONGEST_HEADER", 5000)
    with pytest.raises(UsageError, match="no traceEvents"):
        parsed(b'{"rows": [' + b"1, " * 20_000 + b'1], "traceEvents": []}', size=1000)


BITS = [
    b"null",
    b"{}",
    b"[]",
    b'"',
    b"1e999",
    b"[",
    b"]",
    b"}",
    b"{",
    b"-",
    b"NaN",
    b"\\",
    b"\n",
    b"},\n{",
    b"\xff",
    b"",
]


@fuzz
@given(data=st.data())
def test_mutated_traces_are_read_or_refused(data: st.DataObject) -> None:
    mutated = bytearray(text(data.draw(st.integers(1, 2))))
    for _ in range(data.draw(st.integers(1, 5))):
        start = data.draw(st.integers(0, len(mutated)))
        stop = min(len(mutated), start + data.draw(st.integers(0, 60)))
        mutated[start:stop] = data.draw(st.sampled_from(BITS) | st.binary(max_size=5))
    if data.draw(st.booleans()):
        del mutated[data.draw(st.integers(0, len(mutated))) :]
    packed = bytes(mutated)
    if data.draw(st.integers(0, 9)) == 0:
        packed = gzip.compress(packed)[: data.draw(st.integers(0, len(packed)))]
    with contextlib.suppress(MlpfusionError):
        found = read(packed, call=data.draw(st.sampled_from([None, "mlpfusion.call"])))
        assert found.analysis.calls > 0


ODD = st.sampled_from([None, -1, 0, 1.5, "x", "", "12", [], {}, True, 2**70, -(2**63), 1e-9, 1e300, [{}, {}], "}, {"])
KEYS = st.sampled_from(["ts", "dur", "name", "cat", "tid", "pid", "ph", "args", "id", "-"])


@fuzz
@given(st.lists(st.tuples(st.integers(0, 31), KEYS, ODD), max_size=12), st.sampled_from([None, "cuda", "cpu"]))
def test_mutated_entries_are_read_or_refused(damage: list[tuple[int, str, Any]], device: Any) -> None:
    entries = made(2).entries
    for index, key, value in damage:
        if key == "-":
            del entries[index % len(entries)]
        elif index % 3:
            entries[index % len(entries)][key] = value
        else:
            args = entries[index % len(entries)].get("args")
            if isinstance(args, dict):
                args["correlation"] = value
        if not entries:
            break
    with contextlib.suppress(MlpfusionError):
        found = read(json.dumps({"traceEvents": entries}).encode(), device=device)
        assert found.analysis.calls > 0
