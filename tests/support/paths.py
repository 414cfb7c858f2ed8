"""Where the project keeps what tests read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
ROOT: Final = TESTS.parent
DATA: Final = TESTS / "data"
RESULTS: Final = ROOT / "bench" / "results"
