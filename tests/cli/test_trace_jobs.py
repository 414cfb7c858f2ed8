"""`mlpfusion read` of the ranks of a job: what is one job, what it prints, and with what exit code."""

from __future__ import annotations

import csv
import io
import json
import tarfile
import zipfile
from typing import TYPE_CHECKING

import pytest
from support import rings
from support.command import refused, run
from support.jobs_made import place_in, rank_trace, write_job, write_trace
from support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

RANKS = ([110, 110], [50, 50], [110, 110])


@pytest.mark.parametrize("form", ["directory", "pattern", "files", "zip", "tar", "tar.gz", "named files"])
def test_however_it_is_given_a_job_is_one(capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str) -> None:
    folder = write_job(tmp_path / "job", RANKS, name="t{}.json" if form == "files" else "rank_{}.json.gz")
    files = sorted(map(str, folder.iterdir()))
    given = {"directory": [str(folder)], "pattern": [f"{folder}/*.json*"]}.get(form, files)
    if form == "zip":
        given = [str(tmp_path / "all.zip")]
        with zipfile.ZipFile(given[0], "w") as made:
            for file in files:
                made.write(file, file.rpartition("/")[2])
    elif form.startswith("tar"):
        given = [str(tmp_path / f"all.{form}")]
        with tarfile.open(given[0], "w:gz" if form == "tar.gz" else "w") as made_tar:
            made_tar.add(str(folder), "deep/job")
    code, out, err = run(capsys, "read", *given)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith(
        "job         3 traces, ranks 0–2 of 3 (as the traces say), nccl, 6 collectives of a rank"
    )
    assert sum(line.startswith("summary     rank 1 arrives last at 6 of 6") for line in lines) == 1
    table = lines[lines.index("Ranks, µs of a call") :]
    assert [line.split()[0] for line in table[3:]] == ["0", "1", "2"]


def test_the_details_of_one_rank(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = write_job(tmp_path, RANKS)
    code, out, err = run(capsys, "read", str(folder), "--rank", "1")
    assert (code, err) == (0, "")
    assert out.startswith(f"trace       {folder}/rank_1.json\n")
    assert "\nFindings\n" in out
    assert "no trace is of rank 7; there are 0–2" in refused(capsys, "read", str(folder), "--rank", "7")


def test_files_whose_ranks_nobody_knows_stay_pages(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("eager.json", "compile.json"):
        write_trace(tmp_path / name, rank_trace([50]))
    code, out, _ = run(capsys, "read", f"{tmp_path}/eager.json", f"{tmp_path}/compile.json")
    assert (code, out.count("trace       ")) == (0, 2)
    code, out, _ = run(capsys, "read", str(tmp_path))  # together they are one job
    assert (code, out.count("trace       "), out.startswith("job ")) == (0, 0, True)
    (tmp_path / "eager.json").unlink()
    code, out, _ = run(capsys, "read", str(tmp_path))  # and alone one trace
    assert (code, out.startswith(f"trace       {tmp_path}/compile.json\n")) == (0, True)


def test_a_damaged_rank_is_a_line_and_the_others_go_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = write_job(tmp_path, RANKS)
    (folder / "rank_1.json").write_bytes(b'{"traceEvents": [{"ph": "X", "na')
    (folder / "rank_3.json").write_bytes(b"")
    (folder / "config.json").write_bytes(b'{"hidden": 1}')
    code, out, err = run(capsys, "read", str(folder))
    assert code == 2
    assert [line.split("'")[1].rpartition("/")[2] for line in err.splitlines()] == ["rank_1.json", "rank_3.json"]
    assert all(line.startswith("mlpfusion: trace ") for line in err.splitlines())
    assert out.startswith("job         2 traces, ranks 0, 2 of 3")
    assert sum(line.startswith("damaged     trace ") for line in out.splitlines()) == 2
    assert sum(line.startswith("left out    trace ") for line in out.splitlines()) == 1
    (folder / "rank_0.json").write_bytes(b"")
    (folder / "rank_2.json").write_bytes(b"")
    code, out, err = run(capsys, "read", str(folder))
    assert (code, out, len(err.splitlines())) == (2, "", 4)


def test_a_rank_above_the_limit_of_bytes_names_the_option(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = write_job(tmp_path, RANKS)
    code, _, err = run(capsys, "read", str(folder), "--max-bytes", "100")
    assert code == 2
    assert all(line.endswith("; allow more with --max-bytes") for line in err.splitlines())
    assert len(err.splitlines()) == 3


def test_formats(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(write_job(tmp_path / "job", RANKS))
    assert "| rank " in run(capsys, "read", folder, "--format", "github")[1].replace("|   rank", "| rank")
    rows = list(csv.DictReader(io.StringIO(run(capsys, "read", folder, "--format", "csv")[1])))
    assert [(row["rank"], row["world_size"], row["collectives"]) for row in rows] == [
        (str(n), "3", "6") for n in range(3)
    ]
    document = json.loads(run(capsys, "read", folder, "--format", "json")[1])
    assert (document["kind"], document["traces"]) == ("readings", [])
    (job,) = document["jobs"]
    assert [rank["rank"] for rank in job["ranks"]] == [0, 1, 2]
    file = tmp_path / "out.json"
    for _ in range(2):  # what is written may be written again
        code, out, _ = run(capsys, "read", folder, "--json", str(file))
        assert code == 0
        assert out.startswith("job ")
        assert json.loads(file.read_text()) == document
    assert json.loads(run(capsys, "read", folder, "--json", "-")[1]) == document


@pytest.mark.parametrize("ranks", rings.only_first([40, 200]))
def test_many_ranks_are_few_lines(capsys: pytest.CaptureFixture[str], tmp_path: Path, ranks: int) -> None:
    for rank in range(ranks):
        slow = 250.0 if rank % 17 == 5 else 100.0
        made = rank_trace([50], steps=2, product=slow, job=place_in(rank, ranks))
        write_trace(tmp_path / f"rank{rank}.json", made)
    code, out, err = run(capsys, "read", str(tmp_path))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) < 100
    table = lines[lines.index("Ranks, µs of a call") + 3 :]
    slow_ranks = [str(rank) for rank in range(ranks) if rank % 17 == 5]
    assert sorted(line.split()[0] for line in table[1:]) == sorted(slow_ranks)
    assert f"{ranks - len(slow_ranks)} ranks within 5% of the median" in table[0]
    code, out, _ = run(capsys, "read", str(tmp_path), "--all")
    table = out.splitlines()[out.splitlines().index("Ranks, µs of a call") + 3 :]
    assert [line.split()[0] for line in table] == [str(rank) for rank in range(ranks)]


def test_the_page_in_the_documentation_is_what_is_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rank, (all_reduces, product) in enumerate((([110, 110], 100.0), ([50, 50], 160.0), ([110, 110], 100.0))):
        made = rank_trace(all_reduces, product=product, job=place_in(rank, 3))
        write_trace(tmp_path / "traces" / f"rank_{rank}.json", made)
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "traces.md").read_text(encoding="utf-8")
    shown = page.split("<!-- job -->\n```\n")[1].split("```\n<!-- /job -->")[0]
    assert run(capsys, "read", "traces")[1] == shown


def test_two_jobs_are_compared_rank_by_rank(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before = write_job(tmp_path / "before", [[100, 100]] * 3)
    after = write_job(tmp_path / "after", [[60, 60]] * 3, gpu="NVIDIA A100")
    code, out, err = run(capsys, "diff", str(before), f"{after}/*.json")
    assert (code, err) == (0, "")
    assert out.startswith(f"devices  a NVIDIA H200, b NVIDIA A100\na  {before}, 3 traces\n")
    (talk,) = (line.split() for line in out.splitlines() if line.startswith("communication kernels"))
    assert talk[2:] == ["200", "120", "-80.0", "1.67x"]
    code, out, err = run(capsys, "diff", str(before), str(after), "--rank", "2")
    assert (code, err) == (0, "")
    assert f"b  {after}/rank_2.json" in out.splitlines()
    code, out, err = run(capsys, "diff", str(before), f"{after}/rank_1.json", "--rank", "1")
    assert (code, err) == (0, "")
    assert "job of 3 traces and the other side is one; name one rank by --rank: 0–2" in refused(
        capsys, "diff", str(before), f"{after}/rank_1.json"
    )
    assert "no trace is of rank 9; there are 0–2" in refused(capsys, "diff", str(before), str(after), "--rank", "9")
    assert "has no trace: it is empty" in refused(capsys, "diff", str(before), str(_empty(tmp_path)))


def _empty(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"
