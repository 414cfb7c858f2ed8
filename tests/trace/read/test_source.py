"""Where a trace may come from: files, archives, stdin, bytes; never a bomb, never a secret, never a need for torch."""

from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from support.paths import DATA
from support.timeline import Timeline

from mlpfusion.errors import MlpfusionError, UsageError
from mlpfusion.trace.analysis.summary import read, read_all

if TYPE_CHECKING:
    from pathlib import Path


def text(calls: int = 3) -> bytes:
    made = Timeline()
    for index in range(calls):
        made.mlp(1000 * (index + 1))
    data: bytes = made.text().encode()
    return data


def archive(folder: Path, kind: str, members: dict[str, bytes]) -> Path:
    path = folder / f"all.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
            for name, data in members.items():
                made.writestr(name, data)
        return path
    mode: Any = "w:" if kind == "tar" else "w:gz"
    with tarfile.open(path, mode) as made_tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            made_tar.addfile(info, io.BytesIO(data))
    return path


def attempt(source: Any) -> tuple[Any, str]:
    """The readings, or why there are none."""
    try:
        return read_all(source), ""
    except MlpfusionError as error:
        return (), str(error)


KINDS = pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])


@KINDS
def test_an_archive_of_one_trace_is_that_trace(kind: str, tmp_path: Path) -> None:
    for name, data in (("a/t.json", text()), ("t.json.gz", gzip.compress(text()))):
        path = archive(tmp_path, kind, {name: data, "notes.txt": b"hello"})
        found = read(path)
        assert found.analysis.calls == 3
        assert found.source == f"{path}:{name}"
        assert read(f"{path}:{name}").analysis == found.analysis


@KINDS
def test_an_archive_of_several(kind: str, tmp_path: Path) -> None:
    members = {"a.json": text(2), "config.json": b'{"hidden": 1}', "b.trace.json.gz": gzip.compress(text(4))}
    path = archive(tmp_path, kind, members)
    assert [found.analysis.calls for found in read_all(path)] == [2, 4]
    with pytest.raises(UsageError, match="not the only trace"):
        read(path)
    assert read(f"{path}:b.trace.json.gz").analysis.calls == 4
    with pytest.raises(UsageError, match=r"no member 'c\.json'; it has 'a\.json', 'config\.json'"):
        read(f"{path}:c.json")
    with pytest.raises(UsageError, match="no traceEvents"):
        read(f"{path}:config.json")


@KINDS
def test_an_archive_without_a_trace(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no member that ends in"):
        read(archive(tmp_path, kind, {"notes.txt": b"hello"}))
    with pytest.raises(UsageError, match="no traceEvents"):
        read_all(archive(tmp_path, kind, {"a.json": b"{}", "b.json": b"{}"}))
    with pytest.raises(UsageError):
        read(archive(tmp_path, kind, {}))


@KINDS
def test_a_damaged_archive_is_refused_or_read_in_part(kind: str, tmp_path: Path) -> None:
    path = archive(tmp_path, kind, {"t.json": text(50)})
    data = path.read_bytes()
    for end in (4, 100, 600, len(data) // 2, len(data) - 30):
        path.write_bytes(data[:end])
        found, refusal = attempt(path)
        assert "\n" not in refusal
        assert refusal or found[0].integrity.lost_bytes is not None or found[0].analysis.calls == 50
    for start in range(0, len(data), max(1, len(data) // 40)):
        path.write_bytes(data[:start] + b"\xff\x00\xaa" + data[start + 3 :])
        assert "\n" not in attempt(path)[1]


def test_a_file_may_be_named_like_a_member(tmp_path: Path) -> None:
    path = tmp_path / "odd.zip:t.json"
    path.write_bytes(text())
    assert read(path).analysis.calls == 3


def test_bytes_and_stdin_are_sources_too() -> None:
    code = "from mlpfusion.trace.analysis.summary import read; print(read('-').source, read.__name__)"
    for data in (text(), gzip.compress(text())):
        assert read(data).analysis.calls == 3
        done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
        assert done.stdout.split() == [b"stdin", b"read"]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as made:
        made.writestr("t.json", text())
    done = subprocess.run([sys.executable, "-c", code], input=packed.getvalue(), capture_output=True, check=True)
    assert done.stdout.split() == [b"stdin:t.json", b"read"]


def test_several_gzip_members_and_padding_are_one_text() -> None:
    data = text()
    packed = gzip.compress(data[:500]) + gzip.compress(data[500:]) + bytes(700)
    assert read(packed).integrity == read(data).integrity


@pytest.mark.parametrize("kind", ["json", "json.gz", "zip", "tar", "tar.gz", "json.gz in zip"])
def test_more_text_than_allowed_is_refused(kind: str, tmp_path: Path) -> None:
    data = text() + b" " * 5_000_000
    if " in " in kind or kind in ("zip", "tar", "tar.gz"):
        inner = gzip.compress(data) if " in " in kind else data
        path = archive(tmp_path, kind.rpartition(" ")[2], {"t.json": inner})
    else:
        path = tmp_path / f"t.{kind}"
        path.write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    bomb = b'{"traceEvents": [' + data[:-1]
    assert len(bomb) > 1_000_000
    with pytest.raises(UsageError, match="holds more than 4000 bytes"):
        read(path, max_bytes=4000)
    with pytest.raises(UsageError, match="holds more than 4000 bytes"):
        read_all(path, max_bytes=4000)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_must_be_positive(limit: int) -> None:
    with pytest.raises(UsageError, match=f"max_bytes must be an integer from 1 to 9223372036854775807, got {limit}"):
        read(text(), max_bytes=limit)


def test_what_is_no_file_is_refused_in_one_line(tmp_path: Path) -> None:
    for source, reason in (
        (tmp_path, "is a directory"),
        (tmp_path / "none.json", "No such file"),
        ("a\0b", "cannot be read"),
        (f"{tmp_path}:x", "is a directory"),
        ("", "name is empty"),
    ):
        with pytest.raises(UsageError, match=reason) as caught:
            read(source)
        assert "\n" not in str(caught.value)
    if os.geteuid() != 0:
        path = tmp_path / "t.json"
        path.write_bytes(text())
        path.chmod(0)
        with pytest.raises(UsageError, match="Permission"):
            read(path)


def test_a_member_of_what_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(text())
    with pytest.raises(UsageError, match="no archive"):
        read(f"{path}:inner.json")


SECRET = "hf_FAKEsecretTOKENabc"


def test_a_secret_of_a_trace_reaches_no_output(tmp_path: Path) -> None:
    """P25: free-form metadata, the environment, arguments and thread names are never looked at."""
    made = Timeline()
    for index in range(3):
        made.mlp(1000 * (index + 1))
    for entry in made.entries:
        entry["args"].update({"FAKE_TOKEN": SECRET, "Call stack": SECRET, "Python module": SECRET})
        entry[SECRET] = SECRET
    named = {"ph": "M", "name": "thread_name", "pid": 9, "tid": 1, "ts": 0, "args": {"name": SECRET}}
    document = {
        "metadata": {"env": {"FAKE_TOKEN": SECRET}},
        "host_name": SECRET,
        "deviceProperties": [{"id": 0, "name": SECRET, "uuid": SECRET}],
        "distributedInfo": {"pg_config": SECRET},
        "traceEvents": [named, *made.entries, {"ph": "X", "cat": SECRET, "name": SECRET, "ts": 1, "dur": 1}],
        "traceName": SECRET,
        "metadata2": {"env": {"FAKE_TOKEN": SECRET}},
    }
    whole = json.dumps(document).encode()
    broken = whole.replace(b'"aten::gelu"', b'"aten::\xffgelu"').replace(b'"aten::mul"', b'"aten::mul" 5', 1)
    for data in (whole, broken, whole[: whole.rindex(b'"ph"')], whole.replace(b"traceEvents", b"events")):
        found, refusal = attempt(data)
        assert SECRET not in msgspec.json.encode(found).decode() + refusal


POISONED = """
import sys
for name in ("torch", "triton", "liger_kernel", "kernels", "typer", "rich", "tabulate"):
    sys.modules[name] = None
import pkgutil, importlib, mlpfusion.trace
for found in pkgutil.walk_packages(mlpfusion.trace.__path__, "mlpfusion.trace."):
    importlib.import_module(found.name)
assert "numpy" not in sys.modules, "numpy is for reading, not for importing"
from mlpfusion.trace.analysis.summary import read
for path in sys.argv[1:]:
    assert read(path).analysis.calls > 2, path
"""


def test_reading_needs_neither_torch_nor_a_gpu() -> None:
    """I3."""
    recorded = sorted(map(str, (DATA).glob("*.json.gz")))
    assert recorded
    subprocess.run([sys.executable, "-c", POISONED, *recorded], check=True)


def test_reading_changes_nothing() -> None:
    """P11: two readings of one trace are equal."""
    path = DATA / "h200_compile.json.gz"
    before = path.read_bytes()
    assert read(path) == read(path)
    assert path.read_bytes() == before


def test_a_reading_is_json_both_ways() -> None:
    found = read(DATA / "h200_eager_training.json.gz")
    assert msgspec.json.decode(msgspec.json.encode(found), type=type(found)) == found
