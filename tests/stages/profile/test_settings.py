"""What a profile was asked to measure, read from its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace
from support.paths import RESULTS
from support.profiles_made import LIGER, profile, timed

from mlpfusion.environment import provenance
from mlpfusion.records.environment import Process
from mlpfusion.stages.profile import settings
from mlpfusion.storage import results
from mlpfusion.storage.redacted import redacted

if TYPE_CHECKING:
    from pathlib import Path


def test_a_recorded_profile() -> None:
    found = results.load(RESULTS / "h200-article.json")
    asked = settings.of(found)
    assert asked.workload == found.workload
    assert asked.device == "cuda"
    assert asked.backends == tuple(row.backend for row in found.rows)
    assert (asked.rounds, asked.processes) == (100, 1)


def test_several_processes() -> None:
    row = timed("eager", 100)
    clock = replace(row.clocks.event_us, rounds=(row.clocks.event_us.rounds[0],) * 5)
    several = replace(row, clocks=replace(row.clocks, event_us=clock))
    process = Process(started="2026-01-01T00:00:00+00:00")
    asked = settings.of(profile(several, processes=(process,) * 5))
    assert (asked.rounds, asked.processes) == (60, 5)


def test_what_was_never_raced_has_the_usual_settings() -> None:
    asked = settings.of(profile(LIGER, processes=()))
    assert (asked.rounds, asked.processes) == (settings.ROUNDS, 1)


@pytest.mark.parametrize("typed", [("a/mine.py:Mine", "b/mine.py:Mine"), ("b/mine.py:Mine", "a/mine.py:Mine")])
def test_loose_backends_are_those_that_were_measured(
    typed: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(f"# {folder}", encoding="utf-8")
    rows = [replace(timed(name, 100), distributions=provenance.installed(name)) for name in typed]
    found = redacted(profile(timed("eager", 100), *rows))
    assert [row.backend for row in found.rows] == ["eager", "mine.py:Mine", "mine.py:Mine (2)"]
    assert settings.of(found).backends == ("eager", *typed)
