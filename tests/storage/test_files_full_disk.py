"""A disk that is full, or a limit on files: one line says the cause and no scratch path, and nothing is torn."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from support.checks_made import self_test
from support.paths import DATA, RESULTS

from mlpfusion.cli import main
from mlpfusion.device import detect
from mlpfusion.errors import MeasurementError, MlpfusionError, UnsavedError
from mlpfusion.measure import tracer
from mlpfusion.records.proof import Proof
from mlpfusion.records.validation import Validation, Verdict
from mlpfusion.report.profile import table
from mlpfusion.stages.validate import run
from mlpfusion.storage import files, results
from mlpfusion.workers import supervise

RESULT = RESULTS / "h200-choose-article" / "inference-1.json"
PROOF = RESULT.parents[1] / "h200-prove-gemma-2b-fused.json"
SMALL = "--device cpu --backends eager --hidden-size 16 --intermediate-size 16 --batch 1 --seq 2 --rounds 2"


@pytest.mark.full  # each is a run of its own of `profile`
@pytest.mark.parametrize("most", [2**14, 0, 2**10, 2**16])
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
    kept = tmp_path / "out" / results.RESULT_NAME
    said = done.stdout + done.stderr + (kept.read_text() if kept.exists() else "")
    assert done.returncode == 1, said
    assert "File too large" in said
    assert "Traceback" not in said
    assert not any(trace in said for trace in (str(scratch), ".part", "mlpfusion-"))
    assert not [*scratch.glob("mlpfusion*")]
    if kept.exists():
        assert results.load(kept).complete
        assert table.render(results.load(kept), "json")
        assert [path.name for path in kept.parent.iterdir()] == [results.RESULT_NAME]
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

    monkeypatch.setattr(f"os.{call}" if call == "fsync" else "pathlib.Path.replace", refused)
    with pytest.raises(MlpfusionError) as caught:
        results.save(results.load(path), path)
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
        tracer.record_scheduled(lambda: None, tmp_path / "t.json", calls=1)
    monkeypatch.setattr(files, "refusal", lambda folder: os.strerror(errno.ENOSPC))
    with pytest.raises(MeasurementError, match="its trace cannot be written: No space left on device"):
        tracer.record_scheduled(lambda: None, tmp_path / "t.json", calls=1)
    assert list(tmp_path.iterdir()) == []


def test_a_worker_whose_log_the_disk_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert supervise.death(1, tmp_path / "none.log") == "the worker exited with code 1"
    monkeypatch.setattr(files, "refusal", lambda folder: os.strerror(errno.ENOSPC))
    assert supervise.death(1, tmp_path / "none.log") == "the worker exited with code 1: No space left on device"


def test_a_device_that_is_full_is_no_result_file() -> None:
    with pytest.raises(MlpfusionError, match="'/dev/full' is not a regular file"):
        results.check_file(Path("/dev/full"))


# ---- what took long is printed where it cannot be saved --------------------------------------------------------------


@pytest.fixture
def _full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result file is refused at its last step."""

    def refused(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "replace", refused)


def a_validation() -> Validation:
    verdict = Verdict(target="mine.py:f", kind="act_mul", activation="silu", word="valid", headline="", checks=())
    return run.assembled([verdict], detect("cpu"), 1)


@pytest.mark.usefixtures("_full")
@pytest.mark.parametrize("there", [(), ("v.mine_py_f.inductor.txt",), ("v.json", "v.other_py_f.inductor.txt")])
def test_a_validation_that_cannot_be_saved_leaves_no_source_of_it(tmp_path: Path, there: tuple[str, ...]) -> None:
    for name in there:
        (tmp_path / name).write_text("earlier")
    path = tmp_path / "v.json"
    sources = run._Sources(path)
    names = [sources.keep(target, target) for target in ("a/mine.py:f", "b/mine.py:f", "other.py:f")]
    assert names == ["v.mine_py_f.inductor.txt", "v.mine_py_f1.inductor.txt", "v.other_py_f.inductor.txt"]
    found = a_validation()
    with pytest.raises(UnsavedError, match="No space left on device") as caught:
        run._save(found, path, sources.texts)
    assert caught.value.result is found
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == dict.fromkeys(there, "earlier")


def test_sources_lie_beside_the_result_each_in_a_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "v.json"
    sources = run._Sources(path)
    names = [sources.keep(target, target) for target in ("a/mine.py:f", "b/mine.py:f", "mine.py/f")]
    run._save(a_validation(), path, sources.texts)
    assert [(tmp_path / name).read_text() for name in names if name] == ["a/mine.py:f", "b/mine.py:f", "mine.py/f"]
    assert len(list(tmp_path.iterdir())) == 4
    assert run._Sources(None).keep("mine.py:f", "x") is None
    assert run._Sources(path).keep("mine.py:f", "") is None


@pytest.mark.parametrize("verb", ["validate", "self-test"])
def test_a_judgement_that_cannot_be_saved_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    found = a_validation()
    kept = self_test(seed=1, seconds=1.0)

    def unsaved(*_: object, **__: object) -> None:
        raise UnsavedError(
            "cannot write result file 'v.json': No space left on device", found if verb == "validate" else kept
        )

    monkeypatch.setattr(run, "validate", unsaved)
    monkeypatch.setattr(run, "self_test", unsaved)
    code = main.main(["validate", *(["mine.py:f"] if verb == "validate" else ["--self-test"]), "--format", "json"])
    out, err = capsys.readouterr()
    assert (code, err) == (1, "mlpfusion: cannot write result file 'v.json': No space left on device\n")
    assert msgspec.json.decode(out)["kind"] == ("validation" if verb == "validate" else "self-test")


@pytest.mark.usefixtures("_full")
@pytest.mark.parametrize("verb", ["read", "diff", "prove"])
def test_what_cannot_be_saved_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: str
) -> None:
    if verb == "prove":
        from mlpfusion.models import load, swap
        from mlpfusion.stages.prove import run as prove_run

        proof = msgspec.json.decode(PROOF.read_bytes(), type=Proof)
        handle = SimpleNamespace(swapped=(), refused=())
        monkeypatch.setattr(load, "load_model", lambda *_, **__: None)
        monkeypatch.setattr(load, "random_inputs", lambda *_, **__: None)
        monkeypatch.setattr(swap, "swap", lambda *_, **__: handle)
        monkeypatch.setattr(prove_run, "prove", lambda *_, **__: proof)
    trace = str(DATA / "h200_compile.json.gz")
    args = {
        "read": ["read", trace],
        "diff": ["diff", trace, str(DATA / "h200_eager.json.gz")],
        "prove": ["prove", "model", "--backend", "fused", "--device", "cpu"],
    }[verb]
    wanted = (main.main(args), capsys.readouterr().out)
    assert wanted[0] == 0
    code = main.main([*args, "--json", str(tmp_path / "r.json")])
    out, err = capsys.readouterr()
    assert (code, out) == (1, wanted[1])
    assert err.splitlines()[-1].endswith(f"'{tmp_path}/r.json': No space left on device")
    assert list(tmp_path.iterdir()) == []
