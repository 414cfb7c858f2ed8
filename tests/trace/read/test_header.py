"""The parts of a trace around its events: where their list begins, and the GPU's name, of all else nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlpfusion.trace.read.header import HeaderScan, gpu, gpu_behind

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
    assert gpu(head.encode()) == shown
    tail = "]" + f', "deviceProperties": [{json.dumps({"name": name})}]}}'
    assert gpu_behind(b'{"ph": "X"}' + tail.encode()) == shown


@pytest.mark.parametrize("text", [b"", b"{", b'{"deviceProperties": 3, ', b'{"deviceProperties": [], '])
def test_without_a_device_there_is_no_name(text: bytes) -> None:
    assert gpu(text) is None
    assert gpu_behind(text) is None
