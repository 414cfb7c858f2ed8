"""stages.trace.read: what arguments name, each trace alone or those of a job together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.jobs_made import rank_trace, write_job, write_trace

from mlpfusion.errors import UsageError
from mlpfusion.records.job import Job
from mlpfusion.stages.trace.read import read_job, results
from mlpfusion.trace.job.ranks import Told, Untold

if TYPE_CHECKING:
    from pathlib import Path


def kinds(*arguments: str) -> list[str]:
    return [type(found).__name__ for found in results(arguments)]


def test_each_argument_is_by_itself_unless_they_are_ranks(tmp_path: Path) -> None:
    first, second = (str(write_job(tmp_path / name, [[50], [50]])) for name in ("a", "b"))
    write_trace(tmp_path / "eager.json", rank_trace([50]))
    eager = f"{tmp_path}/eager.json"
    assert kinds(eager) == ["Told"]
    assert kinds(f"{first}/rank_0.json", f"{first}/rank_1.json") == ["Job"]
    assert kinds(f"{first}/rank_0.json", f"{second}/rank_0.json") == ["Told", "Told"]
    assert kinds(eager, f"{tmp_path}/nowhere.json") == ["Told", "Untold"]
    assert kinds(first, eager) == ["Job"]  # a directory makes one job of all


def test_read_job(tmp_path: Path) -> None:
    folder = write_job(tmp_path, [[50], [50]])
    found = read_job(folder)
    assert isinstance(found, Job)
    assert found == read_job(*sorted(folder.iterdir()))
    assert [rank.rank for rank in found.ranks] == [0, 1]
    assert len(read_job(folder / "rank_0.json").ranks) == 1
    with pytest.raises(UsageError, match="cannot be read"):
        read_job("nowhere.json")
    with pytest.raises(UsageError, match="no trace is given"):
        read_job()


def test_one_rank_of_a_job(tmp_path: Path) -> None:
    folder = write_job(tmp_path, [[50], [50]])
    (folder / "broken.json").write_bytes(b"{")
    (folder / "rank_0.json").write_bytes(b"{")
    found = list(results([str(folder)], rank=1))
    assert [type(one) for one in found] == [Untold, Told]  # of the broken file nobody knows the rank
    assert isinstance(found[1], Told)
    assert found[1].place.rank == 1
