"""The parts of a trace around its events: where their list begins, the GPU's name and the rank, of all else nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.trace.read.header import Facts, HeaderScan, facts, facts_behind

DOCUMENTS = [
    {"traceEvents": [1]},
    {"schemaVersion": 1, "traceEvents": []},
    {"a": {"traceEvents": 1}, "b": [{"traceEvents": 2}], "traceEvents": [3]},
    {"a": '"traceEvents": [', "b": "[{", "traceEvents": [3]},
    {"deviceProperties": [{"name": "NVIDIA H200"}], "traceEvents": [4]},
]


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (",\n", " :\n ")])
def test_the_first_key_of_the_document_is_meant_and_none_inside(document: dict, separators: tuple[str, str]) -> None:
    text = json.dumps(document, separators=separators).encode()
    found = HeaderScan().find(text)
    assert found is not None
    assert json.loads(text[found:-1]) == document["traceEvents"]


@given(st.sampled_from(DOCUMENTS), st.data())
def test_it_is_found_however_the_text_comes(document: dict, data: st.DataObject) -> None:
    text = json.dumps(document).encode()
    scan, whole = HeaderScan(), HeaderScan().find(text)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    found = next((place for cut in [*cuts, len(text)] if (place := scan.find(text[:cut])) is not None), None)
    assert found == whole


@pytest.mark.parametrize("text", [b"{}", b'{"a": [1, 2]}', b"[1]", b'{"a": {"traceEvents": []}}'])
def test_a_document_without_events_is_closed(text: bytes) -> None:
    scan = HeaderScan()
    assert scan.find(text) is None
    assert scan.closed


def test_a_document_that_goes_on_is_not_closed() -> None:
    scan = HeaderScan()
    assert scan.find(b'{"a": [1, ') is None
    assert not scan.closed


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("NVIDIA H200", "NVIDIA H200"),
        ("AMD Instinct MI300X", "AMD Instinct MI300X"),
        ("my secret box", None),
        ("NVIDIA\nH200", None),
        ("NVIDIA " + "x" * 100, None),
        (3, None),
    ],
)
def test_only_what_looks_like_a_gpu_is_shown(name: object, shown: str | None) -> None:
    head = json.dumps({"deviceProperties": [{"id": 0, "name": name}]})[:-1] + ', "traceEvents": '
    assert facts(head.encode()).gpu == shown
    tail = "]" + f', "deviceProperties": [{json.dumps({"name": name})}]}}'
    assert facts_behind(b'{"ph": "X"}' + tail.encode()).gpu == shown


@pytest.mark.parametrize("text", [b"", b"{", b'{"deviceProperties": 3, ', b'{"deviceProperties": [], '])
def test_without_a_device_there_is_no_name(text: bytes) -> None:
    assert facts(text) == Facts()
    assert facts_behind(text) == Facts()


@pytest.mark.parametrize(
    ("job", "place"),
    [
        ({"backend": "nccl", "rank": 3, "world_size": 8, "pg_count": 2}, (3, 8, "nccl")),
        ({"backend": "cpu:gloo,cuda:nccl", "rank": "3", "world_size": "8"}, (3, 8, "cpu:gloo,cuda:nccl")),
        ({"rank": 0}, (0, None, None)),
        ({"rank": 9, "world_size": 8}, (9, 8, None)),  # said by who reads the job
        ({"rank": -1, "world_size": 0, "backend": "my secret"}, (None, None, None)),
        ({"rank": True, "world_size": 2.5, "backend": 1}, (None, None, None)),
        ({"rank": 10**12, "world_size": 10**12}, (None, None, None)),
        ([3, 8], (None, None, None)),
        ("rank 3", (None, None, None)),
        (None, (None, None, None)),
    ],
)
@pytest.mark.parametrize("gpu", [None, "NVIDIA H200"])
def test_the_rank_before_the_events_or_behind(job: object, place: tuple[object, ...], gpu: str | None) -> None:
    document = {"deviceProperties": [{"name": gpu}] if gpu else [], "distributedInfo": job}
    head = json.dumps(document)[:-1] + ', "traceEvents": '
    assert facts(head.encode()) == (gpu, *place)
    assert facts_behind(b'{"ph": "X"}], ' + json.dumps(document)[1:].encode()) == (gpu, *place)


def test_what_is_before_the_events_goes_before_what_is_behind() -> None:
    before, behind = Facts("NVIDIA H200", 3, 8, "nccl"), Facts("NVIDIA A100", 4, 16, "gloo")
    assert before.or_else(behind) == before
    assert Facts().or_else(behind) == behind
    assert Facts("NVIDIA H200").or_else(behind) == behind._replace(gpu="NVIDIA H200")
