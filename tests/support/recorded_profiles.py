"""Every profile that is recorded in bench/results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from mlpfusion.storage import results
from support.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from mlpfusion.records.profile import Profile

RECORDED = sorted(ROOT.glob("bench/results/**/*.json"))


def profiles_in(path: Path) -> list[Profile]:
    """The profiles in a recorded file, of whichever kind it is."""
    document = json.loads(path.read_text(encoding="utf-8"))
    if document.get("kind") == "profile":
        return [results.load(path)]
    if document.get("kind") == "traffic":
        return list(results.load_profiles(path).values())
    return []
