"""A disk that is full, or a limit on files: one line says the cause and no scratch path, and nothing is torn."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mlpfusion import files, store
from mlpfusion.errors import MeasurementError, MlpfusionError
from mlpfusion.measure import recorder, supervise
from mlpfusion.report import table

RESULT = Path(__file__).parents[1] / "bench" / "results" / "h200-choose-article" / "inference-1.json"
SMALL = "--device cpu --backends eager --hidden-size 16 --intermediate-size 16 --batch 1 --seq 2 --rounds 2"


# What the least and the most leave room for; a run takes ten seconds.
@pytest.mark.parametrize("most", [0, 2**16, *(pytest.param(most, marks=pytest.mark.full) for most in (2**10, 2**14))])
def test_a_limit_on_the_size_of_files(tmp_path: Path, most: int) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "mlpfusion", "profile", *SMALL.split(), "--dtype", "float32", "--out", "out"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(scratch), "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    kept = tmp_path / "out" / store.RESULT_NAME
    said = done.stdout + done.stderr + (kept.read_text() if kept.exists() else "")
    assert done.returncode == 1, said
    assert "File too large" in said
    assert "Traceback" not in said
    assert not any(trace in said for trace in (str(scratch), ".part", "mlpfusion-"))
    assert not [*scratch.glob("mlpfusion*")]
    if kept.exists():
        assert store.load(kept).complete
        assert table.render(store.load(kept), "json")
        assert [path.name for path in kept.parent.iterdir()] == [store.RESULT_NAME]
    else:
        assert sorted(path.name for path in tmp_path.iterdir()) == ["scratch"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_result_that_the_disk_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, call: str
) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(RESULT.read_bytes())

    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number), str(tmp_path / ".mlpfusion-1.part"))

    monkeypatch.setattr(*((os, "fsync") if call == "fsync" else (Path, "replace")), refused)
    with pytest.raises(MlpfusionError) as caught:
        store.save(store.load(path), path)
    assert str(caught.value) == f"cannot write result file {str(path)!r}: {os.strerror(number)}"
    assert path.read_bytes() == RESULT.read_bytes()
    assert os.listdir(tmp_path) == ["r.json"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EDQUOT])
def test_a_temporary_file_that_the_disk_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(MlpfusionError) as caught, files.scratch() as folder:
        raise OSError(number, os.strerror(number), str(folder / "a"))
    assert str(caught.value) == f"a temporary file cannot be written: {os.strerror(number)}"
    with pytest.raises(OSError, match="elsewhere"), files.scratch():
        raise OSError(number, os.strerror(number), "elsewhere")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", [None, b"", b'{"traceEvents": [{"ph": "X", '])
def test_a_trace_that_the_profiler_could_not_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: bytes | None
) -> None:
    def torn(profiler: object, path: str) -> None:
        if left is not None:
            Path(path).write_bytes(left)

    monkeypatch.setattr("torch.profiler.profile.export_chrome_trace", torn)
    with pytest.raises(MeasurementError, match="its trace cannot be written: the profiler wrote none"):
        recorder.record(lambda: None, tmp_path / "t.json", calls=1)
    monkeypatch.setattr(files, "refusal", lambda folder: os.strerror(errno.ENOSPC))
    with pytest.raises(MeasurementError, match="its trace cannot be written: No space left on device"):
        recorder.record(lambda: None, tmp_path / "t.json", calls=1)
    assert list(tmp_path.iterdir()) == []


def test_a_worker_whose_log_the_disk_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert supervise.death(1, tmp_path / "none.log") == "the worker exited with code 1"
    monkeypatch.setattr(files, "refusal", lambda folder: os.strerror(errno.ENOSPC))
    assert supervise.death(1, tmp_path / "none.log") == "the worker exited with code 1: No space left on device"


def test_a_device_that_is_full_is_no_result_file() -> None:
    with pytest.raises(MlpfusionError, match="'/dev/full' is not a regular file"):
        store.check_file(Path("/dev/full"))
