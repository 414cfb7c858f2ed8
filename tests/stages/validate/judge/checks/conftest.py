"""For the tests of checks: workers that examine targets, started once a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import forked

from mlpfusion.stages.validate.judge import examine

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def bench() -> Iterator[examine.Bench]:
    """Workers on the CPU."""
    with forked.workers(), examine.Bench("cpu") as made:
        yield made
