"""Two runs into one folder: the second is refused in one line while the first runs, and `make profile` keeps both."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlpfusion import api
from mlpfusion.cli import main
from mlpfusion.files import alone
from mlpfusion.spec import MLPSpec, Workload


def test_a_second_run_into_a_folder_is_refused_while_the_first_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = Workload(spec=MLPSpec(hidden_size=8, intermediate_size=8), batch=1, seq=1)
    with alone(tmp_path):
        with pytest.raises(api.UsageError, match="another run is writing there"):
            api.profile(work, backends=["eager"], device="cpu", out=tmp_path)
        assert main(["profile", "--backends", "eager", "--device", "cpu", "--out", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert list(tmp_path.iterdir()) == []
    with alone(tmp_path):  # it is free again
        pass


def test_make_profile_has_a_folder_for_each_run() -> None:
    text = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8")
    assert "RESULTS := results/$(shell date -u" in text
    assert "profile --out $(RESULTS)" in text
