"""`mlpfusion plot`: a caption on stdout, files whole or as they were, and one line for what is wrong."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from support.paths import DATA, RESULTS

from mlpfusion.cli.main import main
from mlpfusion.report.figures import registry

RESULT = str(RESULTS / "h200-profile.json")


def plot(*arguments: str) -> int:
    return main(["plot", *arguments])


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_it_prints_the_caption_and_writes_the_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert plot(RESULT, "--figure", "ratios", "-o", "f.json", "--data", "f.csv", "--width", "84") == 0
    out, err = capsys.readouterr()
    assert out.startswith("Speedup over eager by event_us")
    assert err == ""
    assert json.loads(Path("f.json").read_text())["width"] == pytest.approx(317.48)
    assert Path("f.csv").read_text().startswith("backend,shape,")
    assert sorted(path.name for path in Path().iterdir()) == ["f.csv", "f.json"]


def test_what_is_left_out_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert plot(RESULT, "--figure", "ratios", "-o", "f.json", "--clock", "graph_us") == 0
    assert "\nnot shown: compile-cudagraphs: no graph_us" in capsys.readouterr().out


def test_an_older_figure_is_replaced() -> None:
    arguments = (RESULT, "--figure", "ratios", "-o", "f.json", "--data", "d.json")
    assert plot(*arguments) == 0
    written = Path("f.json").read_text()
    Path("d.json").write_text("")
    assert (plot(*arguments), plot(*arguments)) == (0, 0)
    assert Path("f.json").read_text() == written


@pytest.mark.parametrize("content", [b"{}", b'{"traceEvents": []}', b"\x1f\x8b", b"[1]", b"words"], ids=repr)
def test_other_json_is_not_overwritten(content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    Path("f.json").write_bytes(content)
    assert plot(RESULT, "--figure", "ratios", "-o", "f.json") == 2
    assert "--out 'f.json' exists and is no figure" in capsys.readouterr().err
    assert Path("f.json").read_bytes() == content


WRONG = {
    "no figure": ((RESULT, "--figure", "ratio", "-o", "f.json"), "unknown figure 'ratio'; did you mean ratios?"),
    "ending": ((RESULT, "--figure", "ratios", "-o", "f.jpg"), "--out 'f.jpg' has to end in .svg, .pdf, .png, .json"),
    "no ending": ((RESULT, "--figure", "ratios", "-o", "f"), "--out 'f' has to end in"),
    "data": ((RESULT, "--figure", "ratios", "-o", "f.json", "--data", "f.txt"), "--data 'f.txt' has to end in .csv"),
    "one file": ((RESULT, "--figure", "ratios", "-o", "f.json", "--data", "./f.json"), "--out and --data are both"),
    "width": ((RESULT, "--figure", "ratios", "-o", "f.json", "--width", "85"), "unknown width '85'; valid: 84, 178"),
    "clock": ((RESULT, "--figure", "ratios", "-o", "f.json", "--clock", "sun"), "unknown clock 'sun'; valid: event_us"),
    "baseline": (
        (RESULT, "--figure", "ratios", "-o", "f.json", "--baseline", "none"),
        "needs rows with a ratio to 'none'",
    ),
    "folder": ((RESULT, "--figure", "ratios", "-o", "none/f.json"), "does not exist"),
    "stdout": ((RESULT, "--figure", "ratios", "-o", "-"), "'-' is none"),
    "no file": (("none.json", "--figure", "ratios", "-o", "f.json"), "result file 'none.json' does not exist"),
    "twice": ((RESULT, RESULT, "--figure", "ratios", "-o", "f.json"), "is given twice"),
    "empty": ((".", "--figure", "ratios", "-o", "f.json"), "holds no file of mlpfusion"),
    "a trace": ((str(DATA / "h200_eager.json.gz"), "--figure", "ratios", "-o", "f.json"), "is not a result file"),
    "other kind": (
        (str(RESULTS / "predict.json"), "--figure", "ratios", "-o", "f.json"),
        "the files hold no measured rows",
    ),
    "no numbers": ((str(RESULTS / "h200-validate.json.gz"), "--figure", "ratios", "-o", "f.json"), "needs rows with"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_one_line(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments, said = WRONG[case]
    assert plot(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("mlpfusion: ")
    assert err.count("\n") == 1
    assert said in err
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("option", ["-o", "--data"])
@pytest.mark.parametrize("made", [shutil.copy, lambda a, b: Path(b).symlink_to(a)], ids=["other result", "link"])
def test_a_result_is_never_overwritten(option: str, made, capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine.json").write_bytes(Path(RESULT).read_bytes())
    made("mine.json", "b.json")
    target = ["-o", "b.json"] if option == "-o" else ["-o", "f.json", "--data", "b.json"]
    assert plot("mine.json", "--figure", "ratios", *target) == 2
    assert "'b.json' holds a 'profile' of mlpfusion, which would be lost" in capsys.readouterr().err
    assert Path("mine.json").read_bytes() == Path(RESULT).read_bytes()
    assert not Path("f.json").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mine.svg", "--out 'mine.svg' would overwrite 'mine.svg', which is read"),
        ("mine.json", "--out 'mine.json' exists and is no figure"),
    ],
)
def test_an_input_that_is_gzip_is_not_overwritten(name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    content = gzip.compress(Path(RESULT).read_bytes())
    Path(name).write_bytes(content)
    assert plot(name, "--figure", "ratios", "-o", name) == 2
    assert said in capsys.readouterr().err
    assert Path(name).read_bytes() == content


def test_a_device_is_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("device.json").symlink_to("/dev/null")
    assert plot(RESULT, "--figure", "ratios", "-o", "device.json") == 2
    assert "is not a regular file" in capsys.readouterr().err


def test_a_full_disk_leaves_the_old_figure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Path("f.json").write_text('{"figure": "old"}')

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert plot(RESULT, "--figure", "ratios", "-o", "f.json") == 1
    assert capsys.readouterr().err == "mlpfusion: cannot write file 'f.json': No space left on device\n"
    assert Path("f.json").read_text() == '{"figure": "old"}'
    assert [path.name for path in Path().iterdir()] == ["f.json"]


def test_every_figure_is_listed_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", "--help"]) == 0
    said = capsys.readouterr().out
    assert ", ".join(registry.NAMES) in " ".join(said.split())
