"""Makes study files whose cells are small, and what tests ask of them."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from mlpfusion.models import known
from mlpfusion.records.choice import Conditions
from mlpfusion.records.sweep.cells import Cell, Settings, Use, Work
from mlpfusion.records.sweep.study import SCHEMA, Kept, Study
from mlpfusion.spec import MLPSpec
from mlpfusion.stages.sweep import local, run, study
from mlpfusion.stages.sweep.slots import Slot
from mlpfusion.storage import results
from support.choices_made import HERE, around, profile, row
from support.paths import RESULTS

if TYPE_CHECKING:
    from mlpfusion.records.profile import Profile

TINY = '{ name = "tiny", hidden_size = 64, intermediate_size = 32, activation = "silu", dtype = "float32" }'
SMALL = f"""models = [{TINY}]
tokens = [1, 4]
backends = ["eager"]
rounds = 5
"""


def written(folder: Path, text: str = SMALL, name: str = "small") -> Path:
    """A study file with this text."""
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return path


def read(folder: Path, text: str = SMALL, name: str = "small") -> study.Definition:
    """The study of this text."""
    return study.read(written(folder, text, name))


def slots(number: int = 1) -> tuple[Slot, ...]:
    """As many places on the CPU."""
    return tuple(Slot(None, frozenset({0}), HERE) for _ in range(number))


def result(tokens: int = 1, **changes: Any) -> Profile:
    """The result of a cell of `SMALL`."""
    spec = MLPSpec(hidden_size=64, intermediate_size=32, activation="silu", dtype="float32")
    made = profile(row("eager", around(100)), tokens=tokens, spec=spec)
    return replace(made, **changes)


def host(number: int = 1) -> run.Host:
    """This host with as many workers."""
    return run.Host(slots(number))


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Workers that answer at once; the file in which they write the tokens of each cell that they get."""
    folder = tmp_path / "workers"
    folder.mkdir()
    (folder / "template.json").write_text(results.encode(result()), encoding="utf-8")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))  # a driver that a test kills leaves its files there
    monkeypatch.setenv("STUDY_TEMPLATE", str(folder / "template.json"))
    monkeypatch.setattr(local, "COMMAND", (sys.executable, "-I", str(Path(__file__).with_name("sweep_worker.py"))))
    return folder / "log"


def measured(log: Path) -> list[int]:
    """The tokens of the cells that workers got."""
    return [int(line) for line in log.read_text(encoding="utf-8").split()] if log.exists() else []


def contents(folder: Path) -> dict[str, tuple[str, str | None]]:
    """What a study's folder holds, but for times: the state and the file of each cell, and the files that are there."""
    study = results.load_study(folder / "study.json")
    there = {path.name for path in (folder / "cells").iterdir()}
    assert there == {each.file for each in study.cells if each.file is not None}
    return {each.digest: (each.state, each.file) for each in study.cells}


def recorded(out: Path) -> Study:
    """A study's folder with the cells of a choice that was recorded on a card."""
    (out / "cells").mkdir(parents=True)
    found = {path: results.load(path) for path in sorted((RESULTS / "h200-choose-gemma-2b").glob("inference-*.json"))}
    kept = []
    for path, each in found.items():
        shutil.copy(path, out / "cells")
        cell = Cell(work=Work(of=(Use(model="gemma-2b"),), workload=each.workload), gpu=each.device.name)
        kept.append(Kept(cell=cell, digest=path.name, state="finished", file=path.name, node="node 1"))
    made = Study(
        schema=SCHEMA,
        kind="study",
        mlpfusion="0.1.0",
        created="2026-01-01T00:00:00+00:00",
        name="decode",
        definition="d",
        settings=Settings(backends=tuple(row.backend for row in each.rows), rounds=60),
        models=(known.find("gemma-2b"),),
        cells=tuple(kept),
        nodes={"node 1": Conditions(device=each.device.name, capability=(9, 0), versions={"torch": "2.11.0"})},
    )
    results.save(made, out / "study.json")
    return made
