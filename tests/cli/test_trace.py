"""cli_traces: read, explain, diff, trace and open: what they refuse, print and write, and with what exit code."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from support import forked
from support.command import refused, run
from support.eager_and_compile import COMPILE, EAGER, EAGER_TO_COMPILE
from support.paths import DATA

from mlpfusion.workers import supervise, tasks

FUSED = "triton_poi_fused__unsafe_view_gelu_mul_0"
NO_TORCH = "import sys; sys.modules['torch'] = None; from mlpfusion.cli.main import main; sys.exit(main(sys.argv[1:]))"


def spawn(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", NO_TORCH, *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["read"], "TRACE"),
        (["read", "nowhere.json"], "trace 'nowhere.json' cannot be read: No such file or directory"),
        (["read", ""], "a trace's name is empty: ''"),
        (["read", "a\0b"], "trace"),
        (["read", str(DATA / "printed")], "has no trace: no file in it, or in a directory in it, ends in .json"),
        (["read", f"{DATA}/*.xyz"], "no file matches"),
        (["read", EAGER, EAGER], "is given twice; give it once"),
        (["read", EAGER, "--rank", "3"], "no trace is of rank 3; no rank is known of any"),
        (["read", EAGER, "--rank", "-1"], "--rank must be an integer from 0 to 10000000, got '-1'"),
        (["read", __file__], "is not valid JSON"),
        (
            ["read", EAGER, "--call", "my_step"],
            "the trace has no annotation named 'my_step'; there are 'mlpfusion.call'",
        ),
        (["read", EAGER, "--format", "latex"], "unknown format 'latex'; valid: text, github, csv, json"),
        (["read", EAGER, "--device", "tpu"], "unknown device 'tpu'; valid: cuda, cpu"),
        (
            ["read", EAGER, "--max-bytes", "many"],
            "must be an integer from 1 to 9223372036854775807, got 'many'",
        ),
        (["read", EAGER, "--max-bytes", "0"], "--max-bytes must be an integer from 1 to 9223372036854775807, got '0'"),
        (["read", EAGER, "--max-bytes", "1000"], "holds more than 1000 bytes; allow more with --max-bytes\n"),
        (["diff", EAGER, EAGER, "--max-bytes", "1000"], "holds more than 1000 bytes; allow more with --max-bytes\n"),
        (["read", EAGER, "--json", "no/such/folder/r.json"], "does not exist"),
        (["read", EAGER, "--json", ""], "--json needs a path, got ''"),
        (["read", EAGER, "--json", "."], "is a directory"),
        (["read", EAGER, "--json", os.devnull], "is not a regular file"),
        (["read", EAGER, "--frob"], "valid: --call, --rank, --all, --json"),
        (["explain"], "NAME"),
        (["explain", "  "], "a kernel's name is empty: ' '"),
        (["explain", "x", "--format", "xml"], "unknown format 'xml'"),
        (["diff", EAGER], "B"),
        (["diff", EAGER, "nowhere.json"], "trace 'nowhere.json'"),
        (["diff", EAGER, ""], "a trace's name is empty: ''"),
        (["diff", "-", "-"], "A and B are both stdin"),
        (["diff", EAGER, COMPILE, "--call", "x"], "no annotation named 'x'"),
        (["diff", EAGER, COMPILE, "--format", "xml"], "unknown format 'xml'"),
        (["trace"], "SCRIPT.py:FUNCTION"),
        (["trace", "mine.py"], "give a script and a function in it as SCRIPT.py:FUNCTION, got 'mine.py'"),
        (["trace", "mine.py:"], "got 'mine.py:'"),
        (["trace", "mine.py:two words"], "got 'mine.py:two words'"),
        (["trace", "nowhere.py:f"], "script 'nowhere.py' does not exist"),
        (["trace", f"{__file__}:f", "--calls", "0"], "--calls must be an integer from 1 to 100000, got '0'"),
        (["trace", f"{__file__}:f", "--out", ""], "--out needs a path, got ''"),
        (["trace", f"{__file__}:f", "--out", "no/such/t.json"], "trace file 'no/such/t.json': directory"),
        (
            ["trace", f"{__file__}:f", "--time-limit", "-1"],
            "--time-limit must be a number of seconds from 0.001",
        ),
        (["open", "nowhere.json"], "trace 'nowhere.json' does not exist"),
        (["open", os.devnull], f"trace {os.devnull!r} is no regular file"),
        (["open", "."], "trace '.' is a directory; name a file in it"),
        (
            ["open", EAGER, "--timeout", "soon"],
            "--timeout must be a number of seconds from 0.001",
        ),
        (["open", EAGER, "--port", "99999"], "--port must be an integer from 0 to 65535, got '99999'"),
        (["open", EAGER, "--port", "-1"], "--port must be an integer from 0 to 65535, got '-1'"),
    ],
)
def test_refusals(capsys: pytest.CaptureFixture[str], args: list[str], message: str) -> None:
    assert message in refused(capsys, *args)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"{}", "is not a Chrome trace"),
        (b'{"traceEvents": []}', "no timed events"),
        (b'{"traceEvents": [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]}', "metadata"),
        (
            b'{"traceEvents": [{"ph": "B", "name": "f", "pid": 1, "tid": 1, "ts": 1}, {"ph": "E", "pid": 1, "ts": 2}]}',
            "has only begin/end pairs (ph B and E), which are not read; complete events (ph X) are",
        ),
        (b"\x1f\x8b broken", "broken.json"),
    ],
)
def test_a_file_that_is_no_trace(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    assert message in refused(capsys, "read", str(path))


# ---- read ------------------------------------------------------------------------------------------------------------


def test_read_says_how_the_calls_were_found_and_what_they_ran(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "read", COMPILE)
    assert (code, err) == (0, "")
    for part in ("NVIDIA H200", "mlpfusion.call, 20 of them", FUSED, "3 cuLaunchKernelEx", "dynamo_cache_lookup"):
        assert part in out
    assert "\nFindings\nbound_unclear: " in out
    code, out, _ = run(capsys, "read", COMPILE, "--call", "mlpfusion.warmup")
    assert code == 0
    assert "mlpfusion.warmup, 3 of them: it was requested" in out
    assert "medians of 3 calls [lowest to highest]" in out


def test_formats(capsys: pytest.CaptureFixture[str]) -> None:
    assert "**Findings**" in run(capsys, "read", EAGER, "--format", "github")[1]
    rows = list(csv.DictReader(io.StringIO(run(capsys, "read", EAGER, COMPILE, "--format", "csv")[1])))
    assert len(rows) == 7 + 6
    assert {row["source"] for row in rows} == {EAGER, COMPILE}
    document = json.loads(run(capsys, "read", EAGER, COMPILE, "--format", "json")[1])
    assert (document["kind"], document["schema"], len(document["traces"])) == ("readings", 1, 2)


def test_json_holds_everything_and_goes_where_it_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    code, out, _ = run(capsys, "read", COMPILE, "--json", str(file))
    assert code == 0
    assert FUSED in out
    (trace,) = json.loads(file.read_text())["traces"]
    assert trace["analysis"]["launches"]["runtime_launches"]["cuLaunchKernelEx"] == 3
    assert {"call", "integrity", "timeline", "kernel_spread", "streams", "findings"} <= set(trace)
    assert set(trace["findings"][0]) == {"id", "seen", "means", "do", "cost_us", "share"}
    assert list(tmp_path.iterdir()) == [file]
    code, out, _ = run(capsys, "read", COMPILE, "--json", "-")
    assert json.loads(out) == json.loads(file.read_text())


def test_a_bad_trace_among_good_ones_costs_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "read", "nowhere.json", EAGER, __file__, COMPILE)
    assert code == 2
    assert out.count("trace       ") == 2
    assert len(err.splitlines()) == 2
    assert all(line.startswith("mlpfusion: trace ") for line in err.splitlines())


def test_stdin_and_archives(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with open(EAGER, "rb") as file:
        done = spawn("read", "-", stdin=file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "gate_gemm" in done.stdout
    archive = tmp_path / "traces.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.write(EAGER, "a/eager.json.gz")
        made.writestr("b/compile.json", gzip.decompress(Path(COMPILE).read_bytes()))
    code, out, err = run(capsys, "read", str(archive))
    assert (code, err) == (0, "")
    assert out.startswith("job         2 traces, ranks not known\n")
    code, out, err = run(capsys, "diff", f"{archive}:a/eager.json.gz", f"{archive}:b/compile.json")
    assert (code, err) == (0, "")
    assert "three GEMMs" in out


def test_nothing_of_a_traces_free_text_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    document = json.loads(gzip.decompress(Path(EAGER).read_bytes()))
    document["metadata"] = {"env": {"FAKE_TOKEN": "abc-planted-abc"}}
    document["distributedInfo"] = {"host": "abc-planted-abc"}
    for event in document["traceEvents"]:
        if isinstance(event.get("args"), dict):
            event["args"]["Call stack"] = "abc-planted-abc"
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document))
    reads = [["read", str(path), *more] for more in ([], ["--json", "-"], ["--format", "github"], ["--format", "csv"])]
    diffs = [["diff", str(path), COMPILE, "--format", each] for each in ("text", "json")]
    for arguments in (*reads, *diffs):
        code, out, err = run(capsys, *arguments)
        assert code == 0
        assert out
        assert "planted" not in out + err


def test_a_name_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = gzip.decompress(Path(EAGER).read_bytes()).decode().replace("nvjet_sm90", "\\u001b[31m_sm90")
    path = tmp_path / "t.json"
    path.write_text(text)
    for fmt in ("text", "github"):
        code, out, _ = run(capsys, "read", str(path), "--format", fmt)
        assert code == 0
        assert "\x1b" not in out
        assert "\x1b" not in run(capsys, "diff", str(path), COMPILE, "--format", fmt)[1]
        assert "\x1b" not in run(capsys, "explain", "a\x1b[31m", "--format", fmt)[1]


# ---- explain, diff ---------------------------------------------------------------------------------------------------


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "explain", FUSED, "nobody_knows_this")
    assert (code, err) == (0, "")
    assert "fuses gelu and mul" in out
    assert "established" in out
    assert "follows no convention known here" in out
    names = json.loads(run(capsys, "explain", FUSED, "--format", "json")[1])["names"]
    assert names[0]["decoded"]["library"] == "inductor"
    rows = list(csv.DictReader(io.StringIO(run(capsys, "explain", FUSED, "--format", "csv")[1])))
    assert rows[0]["token"] == "triton"
    assert "| token" in run(capsys, "explain", FUSED, "--format", "github")[1]


def test_diff_of_eager_and_compile(tmp_path: Path) -> None:
    """Three GEMMs the same, GELU and mul gone, one fused kernel new: without torch."""
    file = tmp_path / "d.json"
    done = spawn("diff", EAGER, COMPILE, "--json", str(file))
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert "the same, name for name: three GEMMs, two memsets" in lines
    assert "gone: activation (gelu), mul" in lines
    assert f"new: one fused kernel {FUSED} (inductor)" in lines
    assert any(line.startswith("operators gone: 3x aten::linear → aten::t → aten::transpose") for line in lines)
    pairs = json.loads(file.read_text())["kernels"]
    assert [(pair["change"], pair["role"]) for pair in pairs if pair["role"] != "memset"] == EAGER_TO_COMPILE


def test_diff_in_other_formats(capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(run(capsys, "diff", EAGER, COMPILE, "--format", "csv")[1])))
    assert [row["change"] for row in rows].count("same") == 5
    assert "**Kernels**" in run(capsys, "diff", EAGER, COMPILE, "--format", "github")[1]
    code, out, _ = run(capsys, "diff", EAGER, COMPILE, "--json", "-")
    assert code == 0
    assert json.loads(out)["kind"] == "difference"


# ---- trace -----------------------------------------------------------------------------------------------------------


def test_trace_records_what_read_reads(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "mine.py"
    script.write_text("import torch\nx = torch.ones(3)\n\n\ndef step():\n    print('noise')\n    return torch.sin(x)\n")
    monkeypatch.chdir(tmp_path)
    with forked.processes_of(supervise):
        assert run(capsys, "trace", "mine.py:step", "--calls", "4") == (0, "step.trace.json.gz\n", "")
    code, out, _ = run(capsys, "read", "step.trace.json.gz")
    assert code == 0
    assert "mlpfusion.call, 4 of them" in out
    assert "aten::sin" in out
    failed = tasks.Broken(kind="failed", reason="ValueError: no")
    monkeypatch.setattr(supervise, "run", lambda task, **how: failed)
    code, out, err = run(capsys, "trace", "mine.py:step", "--out", "other.json.gz")
    assert (code, out) == (1, "")
    assert err == "mlpfusion: mine.py:step could not be traced: ValueError: no\n"
    assert not Path("other.json.gz").exists()


def test_help_names_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "--help")[1]
    assert all(f"  {verb} " in out for verb in ("read", "explain", "diff", "trace", "open"))
