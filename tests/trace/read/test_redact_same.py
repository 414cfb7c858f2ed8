"""Scrubbed traces read the same: the recorded ones exactly, and any with a user's names but for those."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import rings
from support.paths import DATA
from support.timeline import Timeline

from mlpfusion.errors import UsageError
from mlpfusion.trace.analysis.summary import read
from mlpfusion.trace.findings.host import findings
from mlpfusion.trace.read.redact import scrub

RECORDED = sorted(DATA.glob("*.json.gz"))


def told(path: Path) -> tuple[Any, list[str]]:
    """All that is read in a trace but its file's name, the names of annotations and frames, and where damage was."""
    reading = read(path)
    said = msgspec.to_builtins(reading)
    said["source"] = said["call"]["name"] = ""
    said["modules"] = [len(chain) for chain in said["modules"]]
    said["integrity"]["damage"] = [what["reason"] for what in said["integrity"]["damage"]]
    return nameless(said), [finding.id for finding in findings(reading)]


def nameless(value: Any) -> Any:
    """The same without names that have no dot, colon or bracket, as those of operators, kernels and API calls have."""
    if isinstance(value, dict):
        return {key: "" if key == "name" and is_word(item) else nameless(item) for key, item in value.items()}
    return [nameless(item) for item in value] if isinstance(value, list | tuple) else value


def is_word(name: object) -> bool:
    return isinstance(name, str) and name.startswith(("secret", "step", "x_", "range_", "frame_", "nn.Module"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_a_recorded_trace_reads_the_same(path: Path, tmp_path: Path) -> None:
    scrub(path, tmp_path / "out.json")
    assert told(tmp_path / "out.json") == told(path)


@settings(max_examples=rings.examples(60), deadline=None)
@given(
    st.lists(
        st.sampled_from(["secret", "secret_{}", "secret fp16 {}", "step{}", "x_{}({})", "ProfilerStep#{}"]),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
def test_any_annotations_delimit_the_same_calls(names: list[str], damaged: bool) -> None:
    timeline = Timeline()
    for index, name in enumerate(["secret", *names] * 2):
        timeline.mlp(1000.0 + 200 * index, name=name.format(index, index % 2))
    timeline.add("python_function", "secret.py(3): f", 1001, 50).add(
        "python_function", "nn.Module: SecretMLP_0", 1002, 60
    )
    timeline.add("Trace", "secret", 990, 2000)
    document = json.loads(timeline.text())
    if damaged:
        document["traceEvents"][3]["ts"] = document["traceEvents"][-3]["ts"] = "never"
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "a.json", Path(folder) / "b.json.gz"
        path.write_text(json.dumps(document), encoding="utf-8")
        scrub(path, out)
        assert told(out) == told(path)
        assert "ecret" not in gzip.decompress(out.read_bytes()).decode()


@pytest.mark.parametrize("name", ["b.json", "b.json.gz"])
def test_the_name_says_whether_it_is_gzipped(name: str, tmp_path: Path) -> None:
    source = Timeline().mlp(1000).write(tmp_path, "a.json.gz")
    scrub(source, tmp_path / name)
    data = (tmp_path / name).read_bytes()
    assert data.startswith(b"\x1f\x8b") == name.endswith(".gz")
    assert read(tmp_path / name).call.count == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"{", "is not valid JSON"),
        (b'{"traceEvents": 3}', "is not a Chrome trace"),
        (gzip.compress(b'{"traceEvents": []}' * 99, mtime=0)[:-30], "is cut off"),
    ],
)
def test_what_cannot_be_read_is_one_line(data: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=reason) as caught:
        scrub(path, tmp_path / "b.json")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "b.json").exists()
